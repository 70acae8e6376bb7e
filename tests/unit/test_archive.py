"""What the kernel compiler hands to the executor is read back as it was written, or refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "harness"))

from executor import archive
from shared import plan


def test_the_archive_is_read_as_it_was_written() -> None:
    made = archive.pack(b'{"version": 1}', {}, {})
    with pytest.raises(plan.PlanError):
        archive.unpack(made)
    for damaged in (b"", made[:4], made[:12], b"\xff" * 64):
        with pytest.raises(archive.ArchiveError):
            archive.unpack(damaged)
