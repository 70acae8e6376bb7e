"""Launchers for all submissions: the small C library with which Triton starts a kernel, which gcc needs 0.2 s for.

It is made of the types of a kernel's arguments and of nothing else. A compile child that had to build one leaves a note
of the types in its scratch directory. The zygote, in which no foreign code runs, reads the note when the child has
ended, takes only lists of types that Triton has, and makes the launcher anew where every later child reads and none can
write. So a candidate can at most have right launchers built, WISHES_MAX of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from shared import wire

NOTE: Final = "launcher-types"
NOTE_MAX: Final = 1 << 16
KEPT_MAX: Final = 1024
WAITING_MAX: Final = 32
WISHES_MAX: Final = 8
"""Launchers for all, those that wait to be made, and those of one submission."""
ARGUMENTS_MAX: Final = 64
TYPE: Final = re.compile(
    r"constexpr|\*?k?(?:i1|i8|i16|i32|i64|u1|u8|u16|u32|u64|fp16|bf16|fp32|f32|fp64"
    r"|fp8e4nv|fp8e5|fp8e4b8|fp8e4b15|fp8e5b16)"
)

Types = tuple[str, ...]


class NoMetadata:
    """Of a kernel that is not compiled: a launcher needs none where there are no tensor descriptors."""

    def __getattr__(self, name: str) -> None:
        return None


class Source:
    """As much of a kernel as a launcher is made of."""

    def __init__(self, types: Types) -> None:
        self.signature = dict(enumerate(types))


def types_of(source: Any) -> Types | None:
    """Of a kernel's arguments; None where they are not only types of TYPE."""
    signature = getattr(source, "signature", None)
    return checked(list(signature.values())) if isinstance(signature, dict) else None


def checked(types: Any) -> Types | None:
    """The same list as types, None where it is anything else."""
    if not isinstance(types, list) or len(types) > ARGUMENTS_MAX:
        return None
    if not all(isinstance(item, str) and TYPE.fullmatch(item) for item in types):
        return None
    return tuple(types)


def marker(folder: Path, types: Types) -> Path:
    """The file that is in folder when the launcher for these types is."""
    return folder / f"launcher-{hashlib.sha256(json.dumps(types).encode()).hexdigest()}"


def leave_note(scratch: Path, types: Types) -> None:
    with contextlib.suppress(OSError), (scratch / NOTE).open("a") as file:
        file.write(json.dumps(types) + "\n")


def read_note(scratch: Path) -> list[Types]:
    """What a child left there, which may be anything: lists of types, and nothing of what is not."""
    try:
        fd = os.open(scratch / NOTE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        text = os.read(fd, NOTE_MAX).decode("utf-8", "replace") if is_file else ""
    except OSError:
        return []
    finally:
        os.close(fd)
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            types = checked(json.loads(line))
            if types is not None:
                found.append(types)
    return found


class Builder:
    """The zygote's side: one process at a time makes what is wished for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[Types] = []
        self._known: set[Types] = set()
        self._pid = 0

    def wish(self, scratch: Path) -> None:
        """Begin with what a child that has ended had to build itself."""
        for types in read_note(scratch)[:WISHES_MAX]:
            if types not in self._known and len(self._known) < KEPT_MAX and len(self._waiting) < WAITING_MAX:
                self._known.add(types)
                self._waiting.append(types)

    def begin(self, close: Sequence[int]) -> None:
        """The next one, if none is being made. close: descriptors that its process is not to keep."""
        if self._pid != 0 or not self._waiting:
            return
        try:
            self._pid = os.fork()
        except OSError:  # no process or memory is left: the next time
            return
        types = self._waiting.pop(0)
        if self._pid == 0:
            self._build(types, close)

    def ended(self, pid: int) -> None:
        """A process of the zygote's is gone."""
        if pid == self._pid:
            self._pid = 0

    def _build(self, types: Types, close: Sequence[int]) -> None:
        try:
            for fd in close:
                os.close(fd)
            from triton.backends.nvidia.driver import CudaLauncher

            os.nice(10)
            CudaLauncher(Source(types), NoMetadata())
            marker(self._folder, types).touch(mode=0o444)
        except BaseException as error:
            text = wire.clean_text(f"no launcher for {', '.join(types)}: {error}", 1000)
            print(json.dumps({"level": "warn", "from": "zygote", "text": text}), file=sys.stderr, flush=True)
        finally:
            os._exit(0)
