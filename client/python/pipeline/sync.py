"""trainer sync: the working directory to a remote, by an engine that exists (rclone, or a configured command).

A copy is a snapshot in three parts, each finished before the next: data, manifests, `latest`. So a remote never has a
manifest without its data, and an interrupted copy is not a checkpoint. Nothing on the remote is ever deleted. Each part
is compared with the remote afterwards; without a command for that, data and manifests are fetched back before `latest`
goes. One copy of a working directory at a time: the next waits.
"""

from __future__ import annotations

import argparse
import fcntl
import glob
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from finetune import checkpoint, layout
from finetune.errors import TrainError

from . import engine
from .common import INTERRUPTED, OK, SERVICE, Json, PipelineError, parser, read, whole
from .process import Stop

RETRY_S = 60
PARTS = ("data", "manifests", "latest")  # in the order in which they go
CHECKPOINTS = ("checkpoints/*/step-*", "checkpoints/*")
PLAIN = ("run.json", "training.log", "checkpoints/curriculum.json", "outputs/*", "outputs/*/*", "data/processed/*",
         "evaluation/data/processed/*")  # fmt: skip
LATEST = ("checkpoints/*/latest", "checkpoints/latest")


class Snapshot:
    """The files to copy, laid out in root/.sync, each part with paths as below root.

    Checkpoints that verify are hard links (their files never change, so that pruning and replacing do not matter), the
    rest are copies. sent: of checkpoints that are on the remote the digests of their manifests.
    """

    def __init__(self, root: Path, sent: dict[str, str]) -> None:
        self.root, self.stage, self.sent = root, root / ".sync", sent

    def take(self) -> dict[str, str]:
        """Lay it out, without what was sent. The digests of the checkpoints that are in it."""
        self.remove()
        now: dict[str, str] = {}
        for path in self.matches(*CHECKPOINTS):
            self.add_checkpoint(path, now)
        for part, patterns in (("data", PLAIN), ("latest", LATEST)):
            for path in self.matches(*patterns):
                if (self.root / path).is_file():
                    with suppress(FileNotFoundError):  # it is gone meanwhile
                        shutil.copyfile(self.root / path, self.place(part, path))
        return now

    def remove(self) -> None:
        shutil.rmtree(self.stage, ignore_errors=True)

    def matches(self, *patterns: str) -> list[str]:
        return [path for pattern in patterns for path in sorted(glob.glob(pattern, root_dir=self.root))]  # noqa: PTH207 (none that is hidden)

    def place(self, part: str, path: str) -> Path:
        place = self.stage / part / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def add_checkpoint(self, path: str, now: dict[str, str]) -> None:
        """Unless the remote has it. A checkpoint that does not verify is left out, and reported."""
        directory = self.root / path
        try:
            digest = checkpoint.digest_of(directory / layout.MANIFEST)
        except OSError:
            return
        if self.sent.get(path) == digest:
            return
        try:
            names = list(checkpoint.verify(directory)["files"])
        except TrainError as error:
            print(f"trainer: not copied: {error}", file=sys.stderr)
            return
        try:
            for name in names:
                self.link("data", f"{path}/{name}")
            self.link("manifests", f"{path}/{layout.MANIFEST}")
        except FileNotFoundError:
            return  # it is being pruned: data without a manifest are not a checkpoint
        now[path] = digest

    def link(self, part: str, path: str) -> None:
        try:
            os.link(self.root / path, self.place(part, path))
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without links
            shutil.copyfile(self.root / path, self.place(part, path))


class Sync:
    def __init__(self, given: Any, stop: Stop) -> None:
        self.stop, self.copy, self.remote = stop, given.copy_command, given.remote
        self.check = given.check_command  # "": fetch back and compare
        if self.check is None:
            self.check = engine.CHECK if self.copy == engine.COPY else ""
        self.root = given.workdir.resolve(strict=True)
        before = read(self.root / "sync.json", dict) or {}
        is_same = before.get("remote") == self.remote
        self.snapshot = Snapshot(self.root, dict(before.get("sent") or {}) if is_same else {})
        self.good_at = (
            float(before.get("good_at") or 0) if is_same else 0.0
        )  # when the last good copy was made; 0: never

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Waits for another copy of this directory."""
        was_stopping, is_told = bool(self.stop), False  # an emergency's copy is not given up
        with (self.root / "sync.lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    pass
                if self.stop and not was_stopping:
                    raise PipelineError("interrupted", INTERRUPTED)
                if not is_told:
                    print(f"trainer: another copy of {self.root} is being made: waiting for it", file=sys.stderr)
                    is_told = True
                time.sleep(0.1)
            yield

    def compare_back(self, names: Sequence[str], remote: str) -> None:
        """Fetched from the remote, is it what was sent?"""
        parts = [part for name in names if (part := self.snapshot.stage / name).exists()]
        if not parts:
            return
        back = self.snapshot.stage / "back"
        engine.run(self.copy, remote, back)
        for part in parts:
            for path in sorted(path for path in part.rglob("*") if path.is_file()):
                name = path.relative_to(part)
                if not (back / name).is_file() or checkpoint.digest_of(path) != checkpoint.digest_of(back / name):
                    raise PipelineError(f"{remote}: {name} is not there as it was sent", SERVICE)
        shutil.rmtree(back)

    def send(self, name: str, remote: str) -> None:
        part = self.snapshot.stage / name
        if not part.exists():
            return
        engine.run(self.copy, part, remote)
        if self.check:
            engine.run(self.check, part, remote)

    def once(self) -> None:
        """Data, then manifests, then latest."""
        with self.locked():
            error = None
            try:
                now = self.snapshot.take()
                for part in PARTS:
                    if part == PARTS[-1] and not self.check:  # once: all that the remote has is fetched
                        self.compare_back(PARTS[:-1], self.remote)
                    self.send(part, self.remote)
                self.snapshot.sent |= now
                self.good_at = time.time()
            except (OSError, PipelineError) as found:
                error = str(found)
                raise found if isinstance(found, PipelineError) else PipelineError(error, SERVICE) from None
            finally:
                self.snapshot.remove()
                state: Json = {"remote": self.remote, "good_at": self.good_at, "tried_at": time.time()}
                state |= {"sent": self.snapshot.sent} | ({"error": error} if error else {})
                checkpoint.replace(self.root / "sync.json", json.dumps(state, indent=2) + "\n")

    def probe(self) -> None:
        """A small object is written to REMOTE/trainer-probe, listed and compared there, and read back."""
        with self.locked():
            self.snapshot.remove()
            below = f"{self.remote}/trainer-probe"
            self.snapshot.place("probe", "written").write_text(f"{time.time():.0f}\n")
            try:
                self.send("probe", below)
                self.compare_back(["probe"], below)
            finally:
                self.snapshot.remove()

    def loop(self, every_s: int, hurry: Hurry) -> None:
        """Again and again, until a signal; SIGUSR1: now."""
        while True:
            pause_s: float = every_s
            try:
                self.once()
                print(f"{self.remote} has all of {self.root}", flush=True)
            except (OSError, PipelineError) as error:  # sync.json, too, may find no place
                print(f"trainer: the copy failed, and is tried again: {error}", file=sys.stderr, flush=True)
                pause_s = min(every_s, RETRY_S)
            until = time.monotonic() + pause_s
            while time.monotonic() < until and not hurry.is_on and not self.stop:
                time.sleep(0.1)
            hurry.is_on = False
            if self.stop:
                return


class Hurry:
    """SIGUSR1 came."""

    def __init__(self) -> None:
        self.is_on = False
        signal.signal(signal.SIGUSR1, self._come)

    def _come(self, number: int, frame: object) -> None:
        self.is_on = True


def engine_options(p: argparse.ArgumentParser, where: str) -> None:
    p.add_argument("--remote", required=True, metavar="REMOTE", help=where)
    p.add_argument("--copy-command", default=engine.COPY, metavar="COMMAND", help="the engine: copies directory "
                   f"{{source}} into {{target}} (default: {engine.COPY})")  # fmt: skip


def main(arguments: list[str]) -> int:
    hurry, stop = Hurry(), Stop()
    p = parser("sync", "Copy a run's checkpoints and results to a remote.")
    engine_options(p, "where to: NAME:BUCKET/PATH of rclone's, or whatever the engine takes")
    p.add_argument("--every", type=whole(1, 86400), metavar="SECONDS", help="again and again, until a signal (default: "
                   "once); SIGUSR1: now")  # fmt: skip
    p.add_argument("--check-command", metavar="COMMAND", help="compares {source} with {target} (default: rclone check; "
                   "with another engine what was sent is fetched back)")  # fmt: skip
    p.add_argument("--probe", action="store_true", help="only write a small object, list it and read it back")
    given: Any = p.parse_args(arguments)
    sync = Sync(given, stop)
    try:
        if given.probe:
            sync.probe()
        elif given.every:
            sync.loop(given.every, hurry)
        else:
            sync.once()
            print(f"{sync.remote} has all of {sync.root}")
    except PipelineError as error:
        raise PipelineError(str(error), INTERRUPTED if stop and error.status == SERVICE else error.status) from None
    return OK
