"""Daemons with scripted workers (harness/): real forks, pipes and descriptors, and no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import service  # noqa: E402

SCRIPTED = {
    "harness": HERE / "harness",
    "device": "cpu",
    "python": sys.executable,
    "stage_limit_ms": 2000,
    "tiny_limit_ms": 1000,
    "cpu_jobs": 2,
}

TASK = {"name": "scripted", "reference": "# script: describe=pass\n"}


@pytest.fixture
def start_scripted() -> Iterator[service.StartDaemon]:
    """Start a daemon of one's own with scripted workers: start_scripted(paused=True)."""
    with ExitStack() as stack:

        def start(*, ready: bool = True, **options: object) -> service.Daemon:
            one = service.Daemon(stack.enter_context(service.directory()), SCRIPTED | options)
            stack.callback(one.kill)
            one.start(ready=ready)
            return one

        yield start
