"""The programs that accompany a run: trainer sync to a remote, and trainer watch for the cloud's notices.

One that ends is started again, after 1, 2, 4 ... 60 s; training goes on meanwhile.
"""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

from .common import OK, RESUME, PipelineError
from .process import status_of
from .state import now

if TYPE_CHECKING:
    from .run import Run

LIFE_S, PAUSE_MAX_S = 120, 60


def pause_s(n: int) -> int:
    """How long one waits that ended for the nth time (from 1) within a short life."""
    return int(min(PAUSE_MAX_S, 2 ** min(n - 1, 6)))


class Companion:
    def __init__(self, run: Run, command: str, *options: str) -> None:
        self.run, self.command, self.options = run, command, options
        self.process: subprocess.Popen[bytes] | None = None
        self.ended = self.soon = 0  # how often it ended by itself; without having lived for two minutes in between
        self.again = 0.0
        self.is_over = False  # is not started again: its work is done

    def spawn(self, *more: str) -> subprocess.Popen[bytes] | None:
        return self.run.spawn([self.run.program, self.command, f"--workdir={self.run.workdir}", *self.options, *more])

    def note(self, how: str = "") -> None:
        """The part of the status about it. how: it ended."""
        along = self.run.state.document["along"]
        before = along.get(self.command, {})
        pid = self.process.pid if self.process else 0
        ended = {"how": how, "at": now()} if how else {"how": before.get("how"), "at": before.get("at")}
        along[self.command] = {"is_running": pid > 0, "pid": pid, "ended": self.ended, **ended}
        self.run.state.save()

    def begin(self, *more: str) -> None:
        self.process = self.spawn(*more)
        self.began = time.monotonic()
        self.again = self.began + PAUSE_MAX_S  # if no process could be started
        self.note()

    def tend(self, *more: str) -> None:
        """Start it again where it ended, and say so."""
        if self.process is None:
            if not self.is_over and not self.run.stop and time.monotonic() >= self.again:
                self.begin(*more)
                self.run.say(f"{self.command} " + ("was started again" if self.process else "cannot be started"))
        elif self.process.poll() is not None:
            code, self.process = self.process.returncode, None
            self.ended += 1
            self.soon = 1 if time.monotonic() - self.began > LIFE_S else self.soon + 1
            self.again = time.monotonic() + pause_s(self.soon)
            # A watch that saw a notice has sent us a signal: its work is done.
            self.is_over = self.command == "watch" and code == RESUME
            how = f"signal {-code}" if code < 0 else f"status {code}"
            if not self.is_over:
                again = f"it is started again in {pause_s(self.soon)} s, training goes on"
                self.run.say(f"{self.command} ended ({how}): {again}")
            self.note(how)

    def end(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None


class Along:
    def __init__(self, run: Run) -> None:
        self.run, self.is_hurried = run, False
        sync, watch = run.conf["sync"], run.conf["watch"]
        engine = [f"--copy-command={sync['engine']}"] if sync["engine"] != "rclone" else []
        self.sync = Companion(run, "sync", f"--remote={sync['remote']}", *engine) if sync["remote"] else None
        options = (f"--clouds={watch['clouds']}", f"--pid={run.pid}", f"--every={watch['every_s']:g}")
        self.watch = Companion(run, "watch", *options) if watch["clouds"] else None
        self.every = f"--every={sync['every_s']}"

    def start(self) -> None:
        """The remote is written, read back and compared before anything else is done."""
        if self.sync:
            status = self.run.wait(self.sync.spawn("--probe"))
            if status != OK:
                text = f"the remote {self.run.conf['sync']['remote']} cannot be used: nothing was begun"
                self.run.log(text)
                self.sync = None
                raise PipelineError(text, status)
            self.sync.begin(self.every)
        if self.watch:
            self.watch.begin()

    def tend(self) -> None:
        """Once the run is asked to stop nothing is started, and sync is asked to copy at once all that verifies."""
        if self.sync:
            self.sync.tend(self.every)
        if self.watch:
            self.watch.tend()
        if self.run.stop and not self.is_hurried:
            self.is_hurried = True
            if self.sync and self.sync.process:
                self.sync.process.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        """After the last step, or the interrupted one: end both, and copy a last time."""
        if self.watch:
            self.watch.end(signal.SIGKILL)
        if self.sync:
            self.sync.end(signal.SIGTERM)
            last = self.sync.spawn()
            if last is not None:
                last.wait()  # the signal that we got is not for this one
            if last is None or status_of(last) != OK:
                self.run.say(f"the last copy to {self.run.conf['sync']['remote']} failed: trainer sync --remote=...")
