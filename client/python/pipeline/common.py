"""The common part of the commands: how they end, their options, the files that they read and write."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, TypeVar

OK, FAILED, USAGE, CONFIG, NOTHING, SERVICE, UNEXTRACTED, RESUME, INTERRUPTED = 0, 1, 2, 3, 5, 7, 9, 75, 130

Json = dict[str, Any]


class PipelineError(Exception):
    """Ends a command: a text for people, and its exit status."""

    def __init__(self, text: str, status: int = CONFIG) -> None:
        super().__init__(text)
        self.status = status


def parser(command: str, about: str) -> argparse.ArgumentParser:
    """With the options that every command has. allow_abbrev: as getopt_long, which the other commands use."""
    made = argparse.ArgumentParser(f"trainer {command}", description=about)
    made.add_argument(
        "-w", "--workdir", type=Path, default=Path(), metavar="DIRECTORY", help="of the run (default: here)"
    )
    made.add_argument("--check-arguments", action="store_true", help=argparse.SUPPRESS)
    return made


def whole(low: int, high: int) -> Any:
    """An option's whole number from low to high."""

    def number(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"takes a whole number from {low} to {high}, not {text!r}")
        return int(text)

    return number


T = TypeVar("T", dict[str, Any], list[Any])


def read(path: Path, kind: type[T]) -> T | None:
    """A JSON document; None: there is none, or another thing."""
    try:
        document = json.loads(path.read_text("utf-8", "replace"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, kind) else None
