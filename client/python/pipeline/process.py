"""Programs that are started and end with us, and the signal that asks us to stop."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .common import CONFIG

PR_SET_PDEATHSIG = 1
LOOK_S = 0.05

libc = ctypes.CDLL(None)


class Stop:
    """True once SIGINT or SIGTERM came: finish the present work and stop."""

    def __init__(self) -> None:
        self._came = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._come)

    def _come(self, number: int, frame: object) -> None:
        self._came = True

    def __bool__(self) -> bool:
        return self._came


def end_with_parent() -> Callable[[], None]:
    """Called in a child before exec, so that it gets SIGTERM when this process ends."""
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(127)

    return prepare


def spawn(argv: Sequence[str | Path], **more: Any) -> subprocess.Popen[bytes] | None:
    """Start a program, which ends with us. None after a line on stderr: it cannot be started."""
    try:
        return subprocess.Popen([str(word) for word in argv], preexec_fn=end_with_parent(), **more)
    except OSError as error:
        print(f"trainer: cannot start {argv[0]}: {error.strerror}", file=sys.stderr)
        return None


def status_of(process: subprocess.Popen[bytes]) -> int:
    """Of one that ended: its exit status, or 128 + its signal."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def wait(process: subprocess.Popen[bytes] | None, stop: object = False, tend: Callable[[], None] = lambda: None) -> int:
    """The status at its end. A stop is handed on once; tend is called again and again meanwhile."""
    if process is None:
        return CONFIG
    is_told = False
    while process.poll() is None:
        if stop and not is_told:
            process.terminate()
            is_told = True
        tend()
        time.sleep(LOOK_S)
    return status_of(process)
