"""The reasons why there is no plan."""

from __future__ import annotations

import sys


class Untraced(BaseException):
    """A thing that cannot be traced: where the candidate asked for it (0: unknown), and what to know about it.

    Not an Exception, so that a candidate's own `except Exception` does not turn it into another plan.
    """

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


class Raised(Exception):
    """The candidate's code raised; `stage` is "import", "construct" or "call"; "timeout": it did not end."""

    def __init__(self, stage: str, error: BaseException, line: int) -> None:
        super().__init__(f"{type(error).__name__} in {stage}")
        self.stage = stage
        self.error = error
        self.line = line


def line_of(file: str, skip: int = 1) -> int:
    """The innermost line of the candidate's file that is being run; 0 where there is none."""
    frame = sys._getframe(skip)
    while frame is not None:
        if frame.f_code.co_filename == file:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0
