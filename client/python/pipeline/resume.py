"""trainer resume: restores the copy of trainer sync on a new machine.

The engine copies the remote into root/.resume; root/.resume.json has the source, and whether the copy is complete.
Files of a checkpoint that differ from its manifest are removed there and fetched once more. Then everything is moved to
its place, file by file, and the mark is removed last. After a kill at any moment the same command continues: before the
copy is complete by the engine (rclone fetches files that are missing or differ in size or time), then with the moves.
No run begins in a directory that has the mark.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from finetune import checkpoint, layout
from finetune.errors import TrainError

from . import engine
from .common import FAILED, INTERRUPTED, NOTHING, OK, SERVICE, PipelineError, parser, read
from .process import Stop
from .sync import CHECKPOINTS, Snapshot, engine_options

MARK, LANDING = ".resume.json", ".resume"


def unfinished(workdir: Path) -> str | None:
    """The remote of a restore that was begun here and not finished."""
    mark = read(workdir / MARK, dict) or {}
    return str(mark["remote"]) if mark.get("remote") else None


def drop_damaged(directory: Path) -> int:
    """Remove files that differ from the manifest, so that they are fetched again; returns their number."""
    dropped = 0
    files = (read(directory / layout.MANIFEST, dict) or {}).get("files")
    for name, expected in files.items() if isinstance(files, dict) else ():
        path = directory / name
        if not checkpoint.is_inside(name) or not path.is_file() or not isinstance(expected, dict):
            continue
        if checkpoint.digest_of(path) != expected.get("digest"):
            print(f"trainer: {directory}: {name} is not what was written", file=sys.stderr)
            path.unlink()
            dropped += 1
    return dropped


class Restore:
    def __init__(self, root: Path, remote: str, copy: str) -> None:
        self.root, self.remote, self.copy = root, remote, copy
        self.mark_path, self.landing = root / MARK, root / LANDING

    def checkpoints(self, root: Path) -> list[Path]:
        """Each one's directory, finished adapters first."""
        found = [root / path for path in Snapshot(root, {}).matches(*reversed(CHECKPOINTS))]
        return [path for path in found if path.is_dir()]

    def is_fetched(self) -> bool:
        """Has all of it arrived before? PipelineError: a restore of another remote was begun, or a run is here."""
        before = unfinished(self.root)
        if before and before != self.remote:
            raise PipelineError(f"{self.root}: a restore of {before} was begun here: go on with that, or take another "
                                "directory")  # fmt: skip
        if not before and (self.root / "checkpoints").exists():
            raise PipelineError(f"{self.root / 'checkpoints'} is there already: restore into an empty directory")
        return (read(self.mark_path, dict) or {}).get("is_fetched") is True

    def mark(self, *, is_fetched: bool) -> None:
        checkpoint.replace(self.mark_path, json.dumps({"remote": self.remote, "is_fetched": is_fetched}) + "\n")

    def fetch(self) -> None:
        """Into the landing, until what has a manifest is as it says, or is not so on the remote either."""
        self.mark(is_fetched=False)
        try:
            engine.run(self.copy, self.remote, self.landing)
            if sum(drop_damaged(path) for path in self.checkpoints(self.landing)):
                engine.run(self.copy, self.remote, self.landing)
        except PipelineError:
            with suppress(OSError):
                self.landing.rmdir()
            if not self.landing.exists():  # nothing has arrived: nothing was begun
                self.mark_path.unlink()
            raise
        self.mark(is_fetched=True)

    def settle(self) -> None:
        """To its place."""
        for directory, _, names in os.walk(self.landing):
            for path in (Path(directory) / name for name in names):
                if path.is_file() and not path.is_symlink():
                    to = self.root / path.relative_to(self.landing)
                    to.parent.mkdir(parents=True, exist_ok=True)
                    path.rename(to)
        shutil.rmtree(self.landing, ignore_errors=True)
        self.mark_path.unlink()

    def tell(self) -> int:
        """Verifies the copy. Returns the number of checkpoints."""
        n, is_damaged = 0, False
        for path in self.checkpoints(self.root):
            if not (path / layout.MANIFEST).exists():
                continue  # a run's directory, or cut off before its manifest
            try:
                manifest = checkpoint.verify(path)
            except TrainError as error:
                print(f"trainer: no checkpoint: {error}", file=sys.stderr)
                is_damaged = True
                continue
            print(f"{path.relative_to(self.root)}: {manifest.get('method')}, step {manifest.get('step')}")
            n += 1
        if n == 0 and is_damaged:
            raise PipelineError(f"{self.remote} has no checkpoint that verifies", FAILED)
        if n == 0:
            raise PipelineError(f"nothing to resume: {self.remote} has no checkpoint", NOTHING)
        return n


def main(arguments: list[str]) -> int:
    stop = Stop()
    p = parser(
        "resume", "Restore a run from a remote, and check it. Ended in any way, it goes on when it is given again."
    )
    engine_options(p, "where from: as trainer sync's")
    given: Any = p.parse_args(arguments)
    given.workdir.mkdir(parents=True, exist_ok=True)
    restore = Restore(given.workdir.resolve(), given.remote, given.copy_command)
    if not restore.is_fetched():
        try:
            restore.fetch()
        except PipelineError as error:
            raise PipelineError(str(error), INTERRUPTED if stop and error.status == SERVICE else error.status) from None
    restore.settle()
    restore.tell()
    print(f"restored; go on with the same trainer run, or: trainer status --workdir {restore.root}")
    return OK
