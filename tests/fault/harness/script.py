"""What a scripted worker does is written in the source it is given, in comments such as

    # script: compile=fail:compile tiny=sleep:0.1,pass full=crash timing=1.3

`size=BYTES` in a reference is what its jobs take of the device. Else there is one key for each stage (ast, compile,
build, inspect, describe, open, tiny, full, timing, sanitize), and for each a list of steps:

    pass  fail:CLASS[:RULE]  skip  reopen  generality     end the stage so (a number does so for timing: the speedup);
                                                   reopen, fail:policy and fail:hack also where the process ends before
    untraced  pass:plan                            compile: no plan can be made; passes, and sends one unasked
    rough:MS                                       full: passes, and a call took so long by the rough clock
    turn                                           full: passes the first time, a mismatch from then on
    inconclusive                                   how the timing went
    reference                                      the task's reference fails, not the candidate
    background                                     timing: somebody's work is found the first time, and then 1.5
    drift                                          the GPU is not as it was, the first time; passes from then on
    flaky                                          the same while the file SCRIPT_REFERENCE_FAILS is there
    sleep:SECONDS  print:BYTES  litter  bury       then go on
    touch:PATH                                     make such a file, then go on
    until:PATH                                     wait until there is such a file, then go on
    burn:SECONDS                                   compute for so long, on the one CPU that all who burn share
    burn_until:PATH                                the same until there is such a file
    hang  exit:STATUS  signal:NAME  crash          what a candidate's process may do
    kill_zygote  kill_referee                      what only a hole in the sandbox would let it do
    oom_zygote  oom_referee                        the worker is killed meanwhile, as the kernel does for want of memory
    stop_zygote                                    it hears and reaps nothing any more; then go on
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path


def settings() -> dict[str, str]:
    """What the test set for scripted workers: variables of the daemon's, which passes none of them on."""
    entries = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    found = dict(entry.decode(errors="replace").partition("=")[::2] for entry in entries if entry)
    return {name: value for name, value in found.items() if name.startswith("SCRIPT_")}


_LINE = re.compile(r"^#\s*script:\s*(.*?)\s*$", re.MULTILINE)

_TO_ZYGOTE = {"kill_zygote": signal.SIGSEGV, "oom_zygote": signal.SIGKILL, "stop_zygote": signal.SIGSTOP}

HANG_S = 120
"""Longer than any limit here; who has not been killed by then never will be."""


def steps(source: str, stage: str) -> list[str]:
    """The steps of a stage; `pass` alone where the source says nothing."""
    for line in _LINE.findall(source):
        for word in line.split():
            key, _, value = word.partition("=")
            if key == stage:
                return str(value).split(",")
    return ["pass"]


def perform(todo: list[str], scratch: Path | None) -> str:
    """Do the steps in this process, up to the one that ends the stage, which is returned."""
    for step in todo:
        name, _, value = step.partition(":")
        if name == "sleep":
            time.sleep(float(value))
        elif name == "touch":
            Path(value).touch()
        elif name == "until":
            while not Path(value).exists():
                time.sleep(0.01)
        elif name == "burn":
            _burn(_spent(float(value)))
        elif name == "burn_until":
            _burn(Path(value).exists)
        elif name == "print":
            sys.stdout.write("x" * (int(value) - 1) + "\n")
            sys.stdout.flush()
        elif name == "litter" and scratch is not None:
            _litter(scratch)
        elif name == "bury" and scratch is not None:
            _dig(scratch / "cache")
        elif name == "hang":
            time.sleep(HANG_S)
            os._exit(1)
        elif name == "exit":
            os._exit(int(value))
        elif name == "signal":
            os.kill(os.getpid(), signal.Signals["SIG" + value])
            time.sleep(60)
        elif name == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(60)
        elif name in _TO_ZYGOTE:
            with contextlib.suppress(OSError):
                os.setresuid(0, 0, 0)
            os.kill(os.getppid(), _TO_ZYGOTE[name])
            if name != "stop_zygote":
                time.sleep(60)
        else:
            return step
    return "pass"


def _spent(seconds: float) -> Callable[[], bool]:
    """Whether this process has had so much of the CPU from now on."""
    end = time.process_time() + seconds
    return lambda: time.process_time() >= end


def _burn(is_done: Callable[[], bool]) -> None:
    """Compute, however little of the CPU this process has.

    Where we may, before what else this machine has to do: then those who burn have only each other to share with.
    """
    with contextlib.suppress(OSError):
        os.setresuid(0, 0, 0)
        os.setpriority(os.PRIO_PROCESS, 0, -10)
        Path("/proc/self/autogroup").write_text("-10")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while not is_done():
        pass


def _dig(top: Path) -> None:
    """A tree that is deeper than anybody wants to follow."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def _litter(scratch: Path) -> None:
    """Leave behind what is awkward to remove or to hand on: links that lead away, and what nobody may enter."""
    _dig(scratch)
    for place in (scratch, scratch / "cache"):
        (place / "passwd").symlink_to("/etc/passwd")
        (place / "root").symlink_to("/")
        os.mkfifo(place / "fifo")
    (scratch / "file").write_text("x")
    (scratch / "cache" / "hard").hardlink_to(scratch / "file")
    closed = scratch / "closed"
    closed.mkdir()
    (closed / "file").write_text("x")
    closed.chmod(0)
