"""The inspect stage: what trusted code finds on disk after a compile child has ended (docs/compile.md).

Reads the cubins in a submission's cache. Every byte comes from a process that ran the candidate's code: sizes
are bounded, links are not followed, and offsets are checked before they are used. Nothing is executed or
unpickled. A cubin counts when it is for the target and its entry is one of the kernels in the syntax tree.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shared import wire

CUBIN_MAX: Final = 64 * 1024 * 1024
FOLDERS_MAX: Final = 4096
FILES_MAX: Final = 256
"""Entries looked at in the cache, and in each of its folders."""

REPORTED_MAX: Final = 200
SECTIONS_MAX: Final = 4096
NAME_MAX: Final = 512

ELF_MAGIC: Final = b"\x7fELF\x02\x01\x01"
EM_CUDA: Final = 190
SHT_NOBITS: Final = 8

EIATTR_REGCOUNT: Final = 0x2F
EIATTR_FRAME_SIZE: Final = 0x11
EIATTR_FORMATS: Final = {1: 0, 2: 0, 3: 0, 4: None}
"""Sizes of an attribute's payload beyond its four-byte head, by format; None: the head has the size."""


class BadElf(ValueError):
    """Not the ELF of a cubin; the text has the fault."""


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    offset: int
    size: int


@dataclass(frozen=True)
class Kernel:
    name: str
    registers: int
    spill_bytes: int
    """Local memory of one thread in bytes: its stack frame, where spilled registers lie."""
    shared_bytes: int
    """Shared memory that the code declares; what the launch adds is in Triton's own note."""


class Elf:
    """Sections and symbols of a cubin, each read checked against the file's end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        if len(data) < 64 or not data.startswith(ELF_MAGIC):
            raise BadElf("no 64-bit little-endian ELF")
        fields = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
        self.machine: int = fields[1]
        self.flags: int = fields[6]
        section_offset, entry_size, count, names_index = fields[5], fields[10], fields[11], fields[12]
        if self.machine != EM_CUDA:
            raise BadElf(f"machine {self.machine}, not CUDA")
        if entry_size != 64 or count > SECTIONS_MAX or names_index >= count:
            raise BadElf("section table out of range")
        self._abi: int = data[8]
        raw = [self._header(section_offset + index * entry_size) for index in range(count)]
        names = self._slice(raw[names_index][4], raw[names_index][5])
        self.sections = [Section(_text_at(names, head[0]), head[1], head[4], head[5]) for head in raw]

    def _slice(self, offset: int, size: int) -> bytes:
        if offset > len(self._data) or size > len(self._data) - offset:
            raise BadElf("a section ends behind the file")
        return self._data[offset : offset + size]

    def _header(self, offset: int) -> tuple[int, ...]:
        if offset + 64 > len(self._data):
            raise BadElf("section table ends behind the file")
        return struct.unpack_from("<IIQQQQIIQQ", self._data, offset)

    def content(self, section: Section) -> bytes:
        return b"" if section.kind == SHT_NOBITS else self._slice(section.offset, section.size)

    def section(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    @property
    def capability(self) -> int:
        """The target of the code, as 90: ELF flags keep it in the low byte, newer ABIs in the second one."""
        low, second = self.flags & 0xFF, self.flags >> 8 & 0xFF
        return second if self._abi >= 8 else low


def _text_at(table: bytes, offset: int) -> str:
    if offset >= len(table):
        raise BadElf("a name lies behind its table")
    end = table.find(b"\0", offset, offset + NAME_MAX)
    if end < 0:
        raise BadElf("a name does not end")
    return table[offset:end].decode("utf-8", "replace")


def attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """The (attribute, payload) pairs of a .nv.info section."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = info[at], info[at + 1], struct.unpack_from("<H", info, at + 2)[0]
        at += 4
        if form not in EIATTR_FORMATS:
            raise BadElf(f"attribute format {form}")
        if EIATTR_FORMATS[form] is not None:
            yield attribute, struct.pack("<H", size)
            continue
        if at + size > len(info):
            raise BadElf("an attribute ends behind its section")
        yield attribute, info[at : at + size]
        at += size


def kernels_of(data: bytes) -> tuple[int, list[Kernel]]:
    """The capability that a cubin is for, and its entry functions."""
    elf = Elf(data)
    found = []
    for section in elf.sections:
        if not section.name.startswith(".text."):
            continue
        name = section.name.removeprefix(".text.")
        shared = elf.section(f".nv.shared.{name}")
        if elf.section(f".nv.info.{name}") is None:
            continue
        found.append(
            Kernel(
                name=name,
                registers=_figure(elf, name, EIATTR_REGCOUNT),
                spill_bytes=_figure(elf, name, EIATTR_FRAME_SIZE),
                shared_bytes=0 if shared is None else shared.size,
            )
        )
    return elf.capability, found


def _symbols(elf: Elf) -> dict[int, str]:
    table, names = elf.section(".symtab"), elf.section(".strtab")
    if table is None or names is None:
        return {}
    content, strings = elf.content(table), elf.content(names)
    return {
        index: _text_at(strings, struct.unpack_from("<I", content, index * 24)[0])
        for index in range(min(len(content) // 24, 65536))
    }


def _figure(elf: Elf, name: str, wanted: int) -> int:
    """The figure of a function in .nv.info, which has a (symbol, figure) pair for each attribute of each."""
    info = elf.section(".nv.info")
    if info is None:
        return 0
    symbols = _symbols(elf)
    for attribute, payload in attributes(elf.content(info)):
        if attribute == wanted and len(payload) >= 8:
            symbol, figure = struct.unpack_from("<II", payload)
            if symbols.get(symbol) == name:
                return int(figure)
    return 0


# --- the cache on disk ---


def _names(folder: int, most: int) -> list[str]:
    with os.scandir(folder) as entries:
        found = [entry.name for _, entry in zip(range(most), entries, strict=False)]
    return sorted(found)


def _open(name: str, folder: int, flags: int) -> int | None:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None


def _read(name: str, folder: int, most: int) -> bytes | None:
    """A regular file of at most that many bytes, else None. Links are not followed."""
    fd = _open(name, folder, os.O_RDONLY)
    if fd is None:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            return None
        parts = []
        left = most
        while part := os.read(fd, min(left, 1 << 20)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def cubins(cache: str) -> Iterator[tuple[str, bytes, int]]:
    """Every cubin one folder below the cache: stem, bytes, and its folder (open until the next step)."""
    root = os.open(cache, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder_name in _names(root, FOLDERS_MAX):
            folder = _open(folder_name, root, os.O_RDONLY | os.O_DIRECTORY)
            if folder is None:
                continue
            try:
                for name in _names(folder, FILES_MAX):
                    data = _read(name, folder, CUBIN_MAX) if name.endswith(".cubin") else None
                    if data is not None:
                        yield name.removesuffix(".cubin"), data, folder
            finally:
                os.close(folder)
    finally:
        os.close(root)


def _noted_shared(stem: str, folder: int) -> int:
    """Shared memory of a launch as Triton noted it next to the cubin: a claim, but the size that a launch requests."""
    data = _read(f"{stem}.json", folder, 1 << 20)
    try:
        shared = wire.decode(data or b"{}").get("shared")
    except wire.ProtocolError:
        return 0
    return shared if isinstance(shared, int) and 0 <= shared <= 1 << 30 else 0


def inspect(cache: str, capability: int, wanted: frozenset[str]) -> list[wire.Json]:
    """The kernels that count, by name and hash."""
    found: dict[tuple[str, str], wire.Json] = {}
    for stem, data, folder in cubins(cache):
        try:
            built_for, kernels = kernels_of(data)
        except (BadElf, struct.error):
            continue
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        for kernel in kernels:
            if built_for != capability or kernel.name not in wanted or len(found) >= REPORTED_MAX:
                continue
            found[kernel.name, digest] = {
                "name": kernel.name,
                "registers": kernel.registers,
                "spill_bytes": kernel.spill_bytes,
                "shared_bytes": max(kernel.shared_bytes, _noted_shared(stem, folder)),
                "cubin_bytes": len(data),
                "hash": digest,
            }
    return [found[key] for key in sorted(found)]


def main(channel: wire.Channel) -> None:
    """One request, one report."""
    request = channel.receive()
    if request.text("op") != "inspect":
        raise wire.ProtocolError(f"an inspect child was asked for {request.text('op')!r}")
    backend, _, number = request.text("target").partition(":")
    if backend != "cuda" or not number.isdigit():
        raise wire.ProtocolError(f"target {request.text('target')!r} is not like cuda:90")
    wanted = frozenset(name for name in request.items("kernels") if isinstance(name, str))
    kernels = inspect(request.text("cache"), int(number), wanted)
    channel.send({"ev": "result", "outcome": "pass", "kernels": kernels})
