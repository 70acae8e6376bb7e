"""What a bench ends with: a line for each target, met or missed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A figure, and what it may be at most, or has to be at least."""

    name: str
    value: float
    limit: float
    unit: str
    is_least: bool

    def is_met(self) -> bool:
        return self.value >= self.limit if self.is_least else self.value <= self.limit

    def line(self) -> str:
        word = "at least" if self.is_least else "at most"
        verdict = "met" if self.is_met() else "MISSED"
        return f"{verdict:7}{self.name:58}{self.value:9.2f} {self.unit}, {word} {self.limit:g}"
