"""What CUPTI recorded in a candidate's process, read by the referee: parsed, attributed, weighed.

Every byte comes from a process that runs the candidate's code. The layout is that of native/cupti.h; sizes are
checked first, then the figures. docs/trust.md says what the result is worth.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = 0x50554356
FORMAT: Final = 1
RECORDS_MAX: Final = 8192
MODULES_MAX: Final = 1024
NAMES_MAX: Final = 256
NAME_SIZE: Final = 512
HEAD: Final = struct.Struct("<IIIIIIQ")
RECORD: Final = struct.Struct("<IIQQQ3I3III")
MODULE: Final = struct.Struct("<32sQ")
LONGEST_NS: Final = 600_000_000_000
"""No piece of work lasts longer: calls have deadlines."""

MEMCPY: Final = 1
COPY_NAMES: Final = {1: "memcpy from host", 2: "memcpy to host"}
"""By CUPTI's kind of a copy; others stay on the GPU."""
MEMSET: Final = 2
KERNEL: Final = 10


class BadRecords(ValueError):
    """Not what native/cupti.h writes; the text says what is off."""


@dataclass(frozen=True)
class Record:
    """One piece of work of the GPU. name: a kernel's, `memcpy…` or `memset`. threads: of a copy, its 4-byte words."""

    kind: int
    name: str
    start_ns: int
    end_ns: int
    threads: int
    stream: int

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass
class Activity:
    records: list[Record] = field(default_factory=list)
    modules: frozenset[str] = frozenset()  # "sha256:…" of the images that were loaded
    lost: int = 0
    is_overrun: bool = False
    """More was done than there is room to record: what was lost came after it."""


def parse(data: bytes) -> Activity:
    """BadRecords for anything that is not whole and sane."""
    if len(data) < HEAD.size:
        raise BadRecords(f"{len(data)} bytes are no head")
    magic, form, n_records, n_modules, n_names, lost, _ = HEAD.unpack_from(data)
    if magic != MAGIC or form != FORMAT:
        raise BadRecords(f"magic {magic:#x}, format {form}")
    if n_records > RECORDS_MAX or n_modules > MODULES_MAX or n_names > NAMES_MAX:
        raise BadRecords(f"{n_records} records, {n_modules} modules, {n_names} names: more than there can be")
    modules_at = HEAD.size + n_records * RECORD.size
    names_at = modules_at + n_modules * MODULE.size
    if len(data) != names_at + n_names * NAME_SIZE:
        raise BadRecords(f"{len(data)} bytes, not {names_at + n_names * NAME_SIZE}")
    names = [_name(data[names_at + i * NAME_SIZE :][:NAME_SIZE]) for i in range(n_names)]
    records = [_record(RECORD.unpack_from(data, HEAD.size + i * RECORD.size), names) for i in range(n_records)]
    hashes = [MODULE.unpack_from(data, modules_at + i * MODULE.size)[0] for i in range(n_modules)]
    modules = frozenset("sha256:" + found.hex() for found in hashes if any(found))
    is_overrun = lost > 0 and (n_records == RECORDS_MAX or n_names == NAMES_MAX)
    return Activity(records, modules, lost, is_overrun)


def plain(text: str) -> str:
    """A name as it is shown to people: what is not printable ASCII becomes a question mark."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)


def _name(cell: bytes) -> str:
    text, end, _ = cell.partition(b"\0")
    if not end:
        raise BadRecords("a name does not end")
    return text.decode("utf-8", "replace")


def _record(fields: tuple[int, ...], names: list[str]) -> Record:
    kind, name, start, end, size, gx, gy, gz, bx, by, bz, stream, _ = fields
    if kind not in (MEMCPY, MEMSET, KERNEL):
        raise BadRecords(f"a record of kind {kind}")
    if end < start or end - start > LONGEST_NS:
        raise BadRecords(f"work from {start} to {end} ns")
    if kind != KERNEL:
        text = COPY_NAMES.get(name, "memcpy") if kind == MEMCPY else "memset"
        return Record(kind, text, start, end, size // 4, stream)
    if name >= len(names):
        raise BadRecords(f"name {name} of {len(names)}")
    return Record(kind, names[name], start, end, gx * gy * gz * bx * by * bz, stream)
