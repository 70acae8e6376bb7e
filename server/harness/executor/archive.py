"""A plan with the images of its kernels, as one run of bytes: passed from the kernel compiler to the executor.

Both ends are trusted code, so this only guards against mistakes. Layout: the length of a JSON head as eight bytes, the
head, then the plan's document and the images, whose places in the rest the head names.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from shared import plan

from executor.launch import Compiled

HEAD_MAX: Final = 64 << 20
BYTES_MAX: Final = 1 << 30
_LENGTH: Final = struct.Struct("<Q")


class ArchiveError(ValueError):
    """The bytes are not an archive: the text has the fault."""


def pack(document: bytes, images: Mapping[int, Compiled], summary: Mapping[str, Any]) -> bytes:
    """document: the plan as parse() accepted it. images: by the index of a kernel in it; a missing one was left out.

    summary: JSON for a reader of the archive, not used here.
    """
    blobs, kernels = [document], {}
    at = len(document)
    for index, image in sorted(images.items()):
        note = asdict(replace(image, image=b""))
        note["image"] = [at, len(image.image)]
        kernels[str(index)] = note
        blobs.append(image.image)
        at += len(image.image)
    head = json.dumps({"plan": [0, len(document)], "kernels": kernels, "summary": dict(summary)}).encode()
    return b"".join((_LENGTH.pack(len(head)), head, *blobs))


def unpack(data: bytes) -> tuple[plan.Plan, dict[int, Compiled]]:
    """ArchiveError, or PlanError of the plan in it."""
    if len(data) < _LENGTH.size:
        raise ArchiveError(f"{len(data)} bytes are no archive")
    (length,) = _LENGTH.unpack_from(data)
    if length > min(HEAD_MAX, len(data) - _LENGTH.size):
        raise ArchiveError(f"a head of {length} bytes in an archive of {len(data)}")
    start = _LENGTH.size + length

    def part(place: list[int]) -> bytes:
        at, size = place
        if at < 0 or size < 0 or start + at + size > len(data):
            raise ArchiveError(f"bytes {at} to {at + size} are not in the archive")
        return data[start + at : start + at + size]

    try:
        head = json.loads(data[_LENGTH.size : start])
        found = plan.parse(part(head["plan"]))
        images = {
            int(index): Compiled(**{**note, "image": part(note["image"]), "descriptors": tuple(note["descriptors"])})
            for index, note in head["kernels"].items()
        }
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ArchiveError(f"{type(error).__name__}: {error}") from None
    return found, images
