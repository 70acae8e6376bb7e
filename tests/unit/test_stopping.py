"""When a timing stops and what it is called: common/statistics as the harness reaches it (C tests have its sums)."""

from __future__ import annotations

import math

import pytest
from shared import native

RULE = native.StopRule(least=10, most=50, every=5, narrow=0.005, is_fixed=False)


def pairs(n: int, spread: float) -> tuple[list[float], list[float]]:
    reference = [2e5 * (1 + spread * ((i * 37) % 60) / 60) for i in range(n)]
    return reference, [1e5] * n


@pytest.mark.parametrize(
    ("n", "spread", "is_spent", "stop"),
    [
        (9, 0.0, True, native.STOP_GO_ON),
        (10, 0.0, False, native.STOP_NARROW),
        (10, 1.0, False, native.STOP_GO_ON),
        (10, 1.0, True, native.STOP_SPENT),
        (50, 1.0, False, native.STOP_ALL),
    ],
)
def test_stop_rule(n: int, spread: float, is_spent: bool, stop: int) -> None:
    assert RULE.decide(*pairs(n, spread), is_spent=is_spent) == stop


def test_fixed_does_not_stop_early() -> None:
    fixed = native.StopRule(10, 50, 5, 0.005, is_fixed=True)
    assert fixed.decide(*pairs(10, 0.0), is_spent=False) == native.STOP_GO_ON


def test_outcomes() -> None:
    assert native.judge_samples(*pairs(50, 0.0), 1e4, 0.1) == (native.MEASURED, 0.0)
    outcome, width = native.judge_samples(*pairs(50, 3.0), 1e4, 0.1)
    assert outcome == native.INCONCLUSIVE and width > 0.1
    assert native.judge_samples(*pairs(50, 0.0), 3e5, 0.1)[0] == native.TOO_SMALL
    outcome, width = native.judge_samples([1e5], [1e5], 1e4, 0.1)
    assert outcome == native.INCONCLUSIVE and math.isnan(width)


def test_samples_that_are_no_times_are_refused() -> None:
    with pytest.raises(native.NativeError, match="not all times above zero"):
        native.judge_samples([1.0, -1.0], [1.0, 1.0], 0.0, 0.1)
    with pytest.raises(native.NativeError, match="every 0 pairs"):
        native.StopRule(1, 2, 0, 0.1, is_fixed=False).decide([1.0], [1.0], is_spent=False)
