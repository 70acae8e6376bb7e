"""Evidence of whose kernels did the work: CUPTI's records, their attribution, decoys."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import activity
import native
import pytest
import rig
from activity import BadRecords

FAKE = Path(__file__).with_name("fake_cupti.c")
DRIVE = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import native
try:
    native.cupti_open(["/nonexistent/libcupti.so"])
    sys.exit("opened what is not there")
except native.NativeError as error:
    assert "libcupti" in str(error), error
assert native.cupti_open(["/nonexistent/libcupti.so", sys.argv[2]]) == 999
native.cupti_watch()
fake = ctypes.CDLL(sys.argv[2])
fake.fake_kernel.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64]
fake.fake_copy.argtypes = [ctypes.c_uint8, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]
fake.fake_load_module.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
fake.fake_load_module(b"image one", 9)
fake.fake_kernel(b"before", 1, 2)
native.cupti_record(True)
KERNELS
native.cupti_record(False)
fake.fake_kernel(b"after", 1, 2)
open(sys.argv[3], "wb").write(native.cupti_take())
"""


def recorded(directory: Path, kernels: str) -> activity.Activity:
    """What a process of its own records while it runs these lines against the fake CUPTI."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to build the fake CUPTI with")
    library, out = directory / "libfake.so", directory / "records"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, FAKE], check=True)
    script = DRIVE.replace("KERNELS", kernels)
    subprocess.run([sys.executable, "-c", script, str(rig.HARNESS), library, out], check=True, env=dict(os.environ))
    return activity.parse(out.read_bytes())


def test_records_are_those_between_on_and_off(tmp_path: Path) -> None:
    lines = 'fake.fake_kernel(b"add_kernel", 1000, 1500)\nfake.fake_copy(8, 4096, 1600, 1700)'
    found = recorded(tmp_path, lines)
    assert [(item.name, item.ns, item.threads, item.stream) for item in found.records] == [
        ("add_kernel", 500, 4 * 2 * 128, 7),
        ("memcpy", 100, 0, 7),
    ]
    assert found.modules == {"sha256:" + hashlib.sha256(b"image one").hexdigest()}
    assert found.lost == 0


def test_more_records_than_there_is_room_for_are_counted(tmp_path: Path) -> None:
    lines = 'names = [b"k%d" % i for i in range(300)]\nfor i in range(9000): fake.fake_kernel(names[i % 300], i, i + 1)'
    found = recorded(tmp_path, lines)
    kept = len(found.records)
    assert kept <= activity.RECORDS_MAX and kept + found.lost == 9000
    assert len({item.name for item in found.records}) == activity.NAMES_MAX


def test_sha256_is_sha256() -> None:
    library = ctypes.CDLL(str(native.library_path()))
    for size in (0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 4099):
        data, out = bytes(i * 7 % 251 for i in range(size)), ctypes.create_string_buffer(32)
        library.harness_sha256(data, ctypes.c_size_t(size), out)
        assert out.raw == hashlib.sha256(data).digest(), size


# --- hostile records ---


def packed(
    records: list[tuple[int, ...]],
    names: list[bytes],
    modules: tuple[bytes, ...] = (),
    head: tuple[int, ...] | None = None,
) -> bytes:
    data = activity.HEAD.pack(*(head or (activity.MAGIC, 1, len(records), len(modules), len(names), 0, 0)))
    data += b"".join(activity.RECORD.pack(*item) for item in records)
    data += b"".join(activity.MODULE.pack(item, 1) for item in modules)
    return data + b"".join(name.ljust(activity.NAME_SIZE, b"\0") for name in names)


def kernel(name: int = 0, start: int = 10, end: int = 20) -> tuple[int, ...]:
    return (activity.KERNEL, name, start, end, 0, 1, 1, 1, 32, 1, 1, 7, 1)


def test_a_whole_one_is_read() -> None:
    found = activity.parse(packed([kernel()], [b"add"], (b"\1" * 32, b"\0" * 32)))
    assert [item.name for item in found.records] == ["add"]
    assert found.modules == {"sha256:" + "01" * 32}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 31,
        packed([kernel()], [b"add"])[:-1],
        packed([kernel()], [b"add"]) + b"\0",
        packed([], [], head=(activity.MAGIC, 1, 0xFFFFFFFF, 0, 0, 0, 0)),
        packed([], [], head=(activity.MAGIC, 1, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0)),
        packed([], [], head=(activity.MAGIC, 2, 0, 0, 0, 0, 0)),
        packed([], [], head=(0x4D4D4D4D, 1, 0, 0, 0, 0, 0)),
        packed([kernel(name=1)], [b"add"]),
        packed([kernel(name=0xFFFFFFFF)], [b"add"]),
        packed([kernel(start=20, end=10)], [b"add"]),
        packed([kernel(start=0, end=1 << 63)], [b"add"]),
        packed([(99, *kernel()[1:])], [b"add"]),
        packed([kernel()], [b"a" * activity.NAME_SIZE]),
    ],
)
def test_what_is_not_whole_and_sane_is_refused(data: bytes) -> None:
    with pytest.raises(BadRecords):
        activity.parse(data)


def test_a_cut_at_any_byte_is_refused() -> None:
    whole = packed([kernel(), kernel(1)], [b"add", b"mul"], (b"\1" * 32,))
    for size in range(len(whole)):
        with pytest.raises(BadRecords):
            activity.parse(whole[:size])
