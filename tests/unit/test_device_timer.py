"""The clock of plans, as far as it needs no GPU: what it credits must have room in the host's clock."""

from __future__ import annotations

import pytest
from oracle import timing

US = 1000.0


@pytest.mark.parametrize(
    ("credited_us", "host_us"),
    [(35.0, 20.0), (35.0, 45.0), (1.5, 3.0), (7000.0, 8000.0)],
)
def test_a_bell_that_takes_as_long_by_both_clocks_is_believed(credited_us: float, host_us: float) -> None:
    assert not timing.is_forged(credited_us * US, host_us * US)


@pytest.mark.parametrize(
    ("credited_us", "host_us"),
    [(0.01, 18.0), (-5.0, 4.0), (8.8, 14.5), (100.0, 1000.0)],
)
def test_a_bell_that_is_credited_with_less_than_it_took_is_not(credited_us: float, host_us: float) -> None:
    """One of 12 calls was once credited with a nanosecond each, since the empty bells beside it came late."""
    assert timing.is_forged(credited_us * US, host_us * US)
