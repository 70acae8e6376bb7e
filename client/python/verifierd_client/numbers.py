"""A verdict as numbers, for trainers that stack what they are given: every key is always there, and none is null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ABSENT: dict[str, float] = {
    "extracted": 0.0,
    "valid": 0.0,
    "compiled": 0.0,
    "correct": 0.0,
    "hack": 0.0,
    "timed": 0.0,
    "speedup": 0.0,
    "speedup_lo": 0.0,
    "speedup_hi": 0.0,
    "coverage": 0.0,
    "sol": 0.0,
    "rank": -1.0,
    "cases_passed": 0.0,
    "generality": -1.0,
    "peak_mem_ratio": 0.0,
}
"""Components of docs/rewards.md, each with the number that stands for null."""


def reward_of(verdict: Mapping[str, Any]) -> float | None:
    """The reward; None where there is none: leave the sample out."""
    reward = verdict.get("reward")
    return None if reward is None else float(reward)


def numbers_of(verdict: Mapping[str, Any], fill: float = 0.0) -> dict[str, float]:
    """score (the reward, or fill), masked (1 where it is fill), and the components of ABSENT.

    The components of a refused cheat are not disclosed: they are the values for null, but for hack, which is 1.
    """
    reward = reward_of(verdict)
    components = verdict.get("components") or {}
    numbers = {"score": fill if reward is None else reward, "masked": float(reward is None)}
    for name, absent in ABSENT.items():
        value = components.get(name)
        numbers[name] = absent if value is None else float(value)
    if verdict.get("class") in ("hack", "policy"):
        numbers["hack"] = 1.0
    return numbers
