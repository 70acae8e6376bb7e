"""The tasks and candidates of tests/tasks and tests/candidates, as selftest.corpus reads them."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "client/python"))

from selftest.corpus import (  # noqa: E402
    CLASSES,
    KINDS,
    STAGES,
    Candidate,
    CorpusError,
    Task,
    load,
    load_candidate,
    load_task,
)

__all__ = ["CLASSES", "HERE", "KINDS", "STAGES", "Candidate", "CorpusError", "Task", "load_candidate", "load_task"]


def load_tasks() -> dict[str, Task]:
    """Every task by name."""
    return load(HERE).tasks


def load_candidates() -> list[Candidate]:
    """Every candidate, ordered by task and name."""
    return load(HERE).candidates


def twins() -> frozenset[str]:
    """The tasks that have honest kernels and some that are nearly right, and nothing else."""
    kinds: dict[str, set[str]] = {}
    for candidate in load_candidates():
        kinds.setdefault(candidate.task, set()).add(candidate.kind)
    return frozenset(task for task, found in kinds.items() if found == {"honest", "mistake"})
