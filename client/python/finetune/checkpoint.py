"""Checkpoints that are complete or absent.

A checkpoint is a directory in peft's own layout. It is written under a temporary name, every file is forced to the
disk, the manifest (sizes and digests of all files) comes last, and a rename puts it in place; `latest` is replaced
then. A reader relies on the manifest alone: a directory without one, or whose files differ, is not a checkpoint.
Nothing here imports torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import layout
from .errors import TrainError

VERSION = 1
PARTIAL = ".partial-"  # prefix of a checkpoint that is being written, or removed
AT_FDCWD = -100
RENAME_EXCHANGE = 2

Manifest = dict[str, Any]


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _exchange(one: Path, other: Path) -> None:
    """Swap two directories in one step, so that there is no moment without either."""
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise TrainError(f"cannot replace {other}: {os.strerror(number)}")


def replace(path: Path, text: str) -> None:
    """A small file, whole: the old text or the new, in a directory that is made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(PARTIAL + path.name)
    _write(beside, text)
    beside.rename(path)
    _sync(path.parent)


def discard(path: Path) -> None:
    """Remove a checkpoint. It stops being one before its first file goes."""
    aside = path.with_name(PARTIAL + path.name)
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    shutil.rmtree(aside)


def save(
    root: Path,
    name: str,
    write: Callable[[Path], None],
    about: Manifest,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write root/name: write(directory) makes the files, `about` goes into the manifest. Replaces one of that name.

    progress is called with each step before it is taken (tests end the process there).
    """
    root.mkdir(parents=True, exist_ok=True)
    partial = root / (PARTIAL + name)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        progress("files")
        write(partial)
        progress("sync")
        files = {}
        for path in sorted(p for p in partial.rglob("*") if p.is_file()):
            _sync(path)
            progress("digest")
            files[path.relative_to(partial).as_posix()] = {"size": path.stat().st_size, "digest": digest_of(path)}
        for path in [p for p in partial.rglob("*") if p.is_dir()]:
            _sync(path)
        progress("manifest")
        _write(
            partial / layout.MANIFEST, json.dumps({"version": VERSION, "name": name, **about, "files": files}, indent=1)
        )
        _sync(partial)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise TrainError(f"cannot write the checkpoint {root / name}: {error}") from error
    progress("rename")
    if (root / name).exists():
        _exchange(partial, root / name)
        shutil.rmtree(partial)
    else:
        partial.rename(root / name)
    _sync(root)
    progress("latest")
    replace(root / layout.LATEST, name + "\n")
    return root / name


def is_inside(name: str) -> bool:
    """May a manifest name this file? Not one outside its directory: it may be another machine's text."""
    return not name.startswith("/") and ".." not in Path(name).parts


def verify(path: Path) -> Manifest:
    """The manifest of a checkpoint that is as it was written; TrainError names the difference."""
    try:
        manifest = json.loads((path / layout.MANIFEST).read_text())
        files = manifest["files"].items()
    except FileNotFoundError:
        raise TrainError(f"{path} is no checkpoint: it has no {layout.MANIFEST}") from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise TrainError(f"{path / layout.MANIFEST} cannot be read: {error}") from error
    if not files:
        raise TrainError(f"{path}: its manifest names no files")
    for name, expected in files:
        file = path / name
        if not is_inside(name) or not isinstance(expected, dict):
            raise TrainError(f"{path / layout.MANIFEST} cannot be read: {name!r}")
        try:
            size = file.stat().st_size
            is_same = size == expected.get("size") and digest_of(file) == expected.get("digest")
        except OSError as error:
            raise TrainError(f"{path}: {name} is missing: {error.strerror}") from error
        if not is_same:
            raise TrainError(f"{path}: {name} is not what was written ({size} bytes of {expected.get('size')})")
    return dict(manifest)


def step_directories(root: Path) -> list[Path]:
    """Of a run, newest first, whether whole or not."""
    found = [p for p in root.glob("step-*") if p.is_dir() and p.name.removeprefix("step-").isdigit()]
    return sorted(found, key=lambda p: int(p.name.removeprefix("step-")), reverse=True)


def newest(root: Path, say: Callable[[str], None]) -> tuple[Path, Manifest] | None:
    """The newest checkpoint that verifies. One that does not is reported, and left in place."""
    for path in step_directories(root):
        try:
            return path, verify(path)
        except TrainError as error:
            say(f"passed over: {error}")
    return None


def prune(root: Path, keep: int) -> None:
    """Leave the newest `keep` that verify; remove older ones and what was left half written."""
    for path in root.glob(PARTIAL + "*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
    kept = 0
    for path in step_directories(root):
        if kept >= keep:
            discard(path)
            continue
        try:
            verify(path)
            kept += 1
        except TrainError:
            continue
