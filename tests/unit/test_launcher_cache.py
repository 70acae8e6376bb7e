"""Launchers that every later submission finds: made by the zygote, of types alone, whatever a child says."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live import launcher_cache
from live.launcher_cache import Builder, Source, Types
from stages import UID, Zygote, spec, tensor
from triton.backends.nvidia import driver

KERNEL = """\
import torch, triton, triton.language as tl
@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + {constant}, mask=at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
"""
DRIVER = """
int cuDeviceGetCount(int *n) { return 3; }
int cuCtxGetCurrent() { return 3; } int cuCtxSetCurrent() { return 3; } int cuDeviceGet() { return 3; }
int cuDevicePrimaryCtxRetain() { return 3; } int cuFuncSetAttribute() { return 3; } int cuGetErrorString() { return 3; }
int cuPointerGetAttribute() { return 3; }
"""
"""As much of libcuda as a launcher is linked with: it is not initialised, and never will be."""


@pytest.mark.parametrize(
    ("signature", "types"),
    [
        ({"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, ("*fp32", "i32", "constexpr")),
        ({0: "*k fp32"}, None),
        ({0: "*kfp16", 1: "u64", 2: "fp8e4nv"}, ("*kfp16", "u64", "fp8e4nv")),
        ({0: ("i32", "i32")}, None),
        ({0: "tensordesc<fp16[64, 64]>"}, None),
        ({0: 'i32; system("x")'}, None),
        ({0: "i32\n"}, None),
        ({}, ()),
        (dict.fromkeys(range(65), "i32"), None),
        (None, None),
    ],
)
def test_types_are_those_that_triton_has(signature: Any, types: Types | None) -> None:
    source = Source(())
    source.signature = signature
    assert launcher_cache.types_of(source) == types


def test_a_launcher_depends_on_the_types_alone() -> None:
    types = ("*fp32", "i32", "fp32", "constexpr", "fp64")
    named = dict(zip("abcde", types, strict=True))
    assert driver.make_launcher({}, named, None) == driver.make_launcher({}, Source(types).signature, None)
    assert driver.make_launcher({(3,): 64}, named, None) == driver.make_launcher({}, named, None)


def test_a_note_may_be_anything(tmp_path: Path) -> None:
    note = tmp_path / launcher_cache.NOTE
    assert launcher_cache.read_note(tmp_path) == []
    launcher_cache.leave_note(tmp_path, ("*fp32", "i32"))
    with note.open("a") as file:
        file.write('["i32"\n{"a": 1}\nnull\n["i32", 3]\n["../../x"]\n' + "[" * 5000 + "\n" + '["i64"]\n')
    assert launcher_cache.read_note(tmp_path) == [("*fp32", "i32"), ("i64",)]
    note.write_bytes(b"\xff\x00" * 100_000 + b'\n["i32"]\n')
    assert launcher_cache.read_note(tmp_path) == []
    note.unlink()
    (tmp_path / "aside").write_text('["i32"]\n')
    note.symlink_to(tmp_path / "aside")
    assert launcher_cache.read_note(tmp_path) == []
    note.unlink()
    os.mkfifo(note)
    assert launcher_cache.read_note(tmp_path) == []
    note.unlink()
    note.mkdir()
    assert launcher_cache.read_note(tmp_path) == []


def test_one_at_a_time_and_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"

    def launcher(source: Source, metadata: Any) -> None:
        with log.open("a") as file:
            file.write(f"{source.signature[0]}\n")
        if source.signature[0] == "i64":
            raise RuntimeError("no compiler")

    monkeypatch.setattr(driver, "CudaLauncher", launcher)
    builder, folder = Builder(tmp_path), tmp_path
    for _ in range(2):
        for name in ("i32", "i64", "fp32"):
            launcher_cache.leave_note(tmp_path, (name,))
        builder.wish(tmp_path)
    for expected in (["i32"], ["i32", "i64"], ["i32", "i64", "fp32"], ["i32", "i64", "fp32"]):
        builder.begin(close=())
        pid = builder._pid
        builder.begin(close=())
        assert builder._pid == pid
        if pid:
            builder.ended(pid + 1)
            assert builder._pid == pid
            assert os.waitpid(pid, 0)[1] == 0
            builder.ended(pid)
        assert log.read_text().split() == expected
    found = [launcher_cache.marker(folder, (name,)).exists() for name in ("i32", "i64", "fp32", "u8")]
    assert found == [True, False, True, False]


def test_there_is_an_end_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_cache, "KEPT_MAX", 3)
    monkeypatch.setattr(launcher_cache, "WAITING_MAX", 2)
    builder = Builder(tmp_path)
    for count in range(1, 10):
        launcher_cache.leave_note(tmp_path, ("i32",) * count)
    builder.wish(tmp_path)
    assert len(builder._waiting) == 2
    builder._waiting.clear()
    builder.wish(tmp_path)
    assert len(builder._known) == 3
    monkeypatch.setattr(launcher_cache, "KEPT_MAX", 100)
    monkeypatch.setattr(launcher_cache, "WAITING_MAX", 100)
    greedy = Builder(tmp_path)
    greedy.wish(tmp_path)
    assert len(greedy._waiting) == launcher_cache.WISHES_MAX < 9


@pytest.fixture(scope="module")
def with_driver() -> Iterator[Zygote]:
    """A compile zygote on a machine that seems to have a CUDA driver."""
    with tempfile.TemporaryDirectory(prefix="verifierd-test-") as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "cuda.c").write_text(DRIVER)
        command = ["cc", "-shared", "-fPIC", "-w", "-o", str(folder / "libcuda.so.1"), str(folder / "cuda.c")]
        subprocess.run(command, check=True)
        patch.setenv("LD_LIBRARY_PATH", name, prepend=os.pathsep)
        started = Zygote("compile")
        yield started
        assert started.close() == 0


def test_the_second_submission_finds_what_the_first_had_to_build(with_driver: Zygote) -> None:
    """Its own cache has it too, so that a GPU child needs neither a compiler nor the zygote's directory."""
    is_noted = []
    for turn in range(20):
        with tempfile.TemporaryDirectory(prefix="verifierd-test-", ignore_cleanup_errors=True) as name:
            scratch = Path(name)
            scratch.chmod(0o755)
            if UID is not None:
                os.chown(scratch, UID, UID)
            source = KERNEL.format(constant=turn).encode()
            request = {"op": "compile", "target": "cuda:90", "entry": "ModelNew", "cache": str(scratch / "cache")}
            told = with_driver.ask(request, {"source": source, "spec": json.dumps(spec(tensor(64))).encode()}, scratch)
            assert told.report is not None and told.report["outcome"] == "pass", told
            assert told.report["flags"] == []
            assert len(list((scratch / "cache").glob("*/__triton_launcher*.so"))) == 1
            is_noted.append((scratch / launcher_cache.NOTE).exists())
        if not is_noted[-1]:
            break
    assert is_noted[0] and not is_noted[-1], is_noted
