"""Compiled kernels on disk, by content: <key>.cubin and <key>.json, for all submissions and processes.

Both files are written beside their place and renamed, the note last and with the hash of its image, so that a reader
finds a pair that belongs together or nothing. The folder is held below a number of bytes: what was not used for longest
goes first. A reader that loses a file to that has a miss; there are no locks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

BYTES_MAX: Final = 4 << 30
SWEPT_TO: Final = 0.9
"""How full a sweep leaves the folder."""
NOTE_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Image:
    """One compiled kernel: what its launch needs, and what of it is reported."""

    key: str
    """Of its files in the cache."""
    sha256: str
    """Of the cubin."""
    entry: str
    shared_bytes: int
    num_warps: int
    num_ctas: int
    cluster: tuple[int, ...]
    global_scratch_size: int
    global_scratch_align: int
    profile_scratch_size: int
    profile_scratch_align: int
    launch_cooperative_grid: bool
    launch_pdl: bool
    tensordesc_meta: tuple[dict[str, Any] | None, ...]
    registers: int
    spill_bytes: int
    """Local memory of one thread: its stack frame, where spilled registers lie."""
    cubin_bytes: int

    def note(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @staticmethod
    def parse(data: bytes) -> Image:
        """ValueError: not what note() writes."""
        found = json.loads(data)
        names = {entry.name for entry in fields(Image)}
        if not isinstance(found, dict) or set(found) != names:
            raise ValueError("not the note of an image")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
        }
        return Image(**values)


class Cache:
    """A folder of images. Made where it is missing; OSError where it cannot be."""

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self.folder = folder
        self._bytes_max = bytes_max
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> Image | None:
        """The image of a key, marked as used; None where it is not there whole."""
        note, cubin = self._paths(key)
        try:
            with note.open("rb") as file:
                image = Image.parse(file.read(NOTE_MAX))
            data = cubin.read_bytes()
            if image.key != key or hashlib.sha256(data).hexdigest() != image.sha256:
                return None
        except (OSError, ValueError):
            return None
        for path in (cubin, note):
            with contextlib.suppress(OSError):  # another user's: it stays as old as that user says
                os.utime(path)
        return image

    def put(self, image: Image, cubin: bytes) -> None:
        """Store an image in place of any other of its key. OSError: it cannot be written."""
        note, path = self._paths(image.key)
        self._write(path, cubin)
        self._write(note, image.note())

    def cubin(self, image: Image) -> bytes:
        """An image's code. FileNotFoundError: it was swept away."""
        return self._paths(image.key)[1].read_bytes()

    def sweep(self) -> int:
        """Remove what was not used for longest while the folder is too large. Returns the bytes that are left."""
        found = sorted(self._files(), key=lambda entry: (entry[1].st_mtime_ns, entry[0]))
        total = sum(status.st_size for _, status in found)
        if total <= self._bytes_max:
            return total
        for path, status in found:
            if total <= self._bytes_max * SWEPT_TO:
                break
            path.unlink(missing_ok=True)
            total -= status.st_size
        return total

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    yield Path(entry.path), entry.stat(follow_symlinks=False)

    def _paths(self, key: str) -> tuple[Path, Path]:
        return self.folder / f"{key}.json", self.folder / f"{key}.cubin"

    def _write(self, path: Path, data: bytes) -> None:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:16]}-", dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), 0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
