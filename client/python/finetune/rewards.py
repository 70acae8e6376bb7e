"""From rewards to what a step learns by: advantages of sampled answers, weights of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .errors import FAILED, TrainError


def advantages(rewards: Sequence[float | None], baseline: str) -> list[float | None]:
    """Of one group; None stays None (no verdict) and counts nowhere.

    leave_one_out: the reward less the mean of the others. group: GRPO's, the distance from the mean in standard
    deviations. none: the reward itself. A group of one has advantage 0 under the first two.
    """
    known = [r for r in rewards if r is not None]
    if baseline == "none":
        return list(rewards)
    if len(known) < 2:
        return [None if r is None else 0.0 for r in rewards]
    n, mean = len(known), math.fsum(known) / len(known)
    if baseline == "group":
        scale = 1 / (math.sqrt(math.fsum((r - mean) ** 2 for r in known) / (n - 1)) + 1e-4)
    else:
        scale = n / (n - 1)
    return [None if r is None else (r - mean) * scale for r in rewards]


def is_constant(rewards: Sequence[float | None]) -> bool:
    """Nothing to learn from this group?"""
    known = [r for r in rewards if r is not None]
    return len(known) == 0 or max(known) - min(known) <= 1e-12


def check_constant(steps: int, limit: int, groups: Sequence[Sequence[float | None]]) -> None:
    """Ends a run in which there is nothing to learn from: after `limit` steps of constant groups. groups: the last."""
    if steps < limit:
        return
    known = [r for group in groups for r in group if r is not None]
    value = f"{known[0]:g} in the last group" if known else "null: no answer was judged"
    raise TrainError(
        f"the reward was constant over every group of {steps} steps ({value}): there is no gradient. "
        "Sample more answers, at a higher temperature, of easier tasks, or fine-tune first",
        FAILED,
    )


def _quantile(ordered: Sequence[float], p: float) -> float:
    at = p * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def weights_of(rewards: Sequence[float], kind: str, tau: float, cap: float) -> list[float]:
    """Weights of rows by their rewards; never negative.

    winsorized: the reward, moved to the 5th and 95th percentile where it is beyond.
    exponential: exp((r - mean)/tau), at most cap.
    """
    if kind == "exponential":
        mean = math.fsum(rewards) / len(rewards)
        return [min(math.exp(min((r - mean) / tau, 700.0)), cap) for r in rewards]
    ordered = sorted(rewards)
    low, high = _quantile(ordered, 0.05), _quantile(ordered, 0.95)
    return [max(0.0, min(max(r, low), high)) for r in rewards]
