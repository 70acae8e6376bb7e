"""Daemons with scripted workers (harness/): real forks, pipes and descriptors, and no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import service
from scripted import SCRIPTED


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
