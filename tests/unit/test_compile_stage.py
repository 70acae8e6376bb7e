"""The compile and inspect stages, in a real zygote's children, down to cubins. No GPU is used."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stages
from shared import fake_cuda, wire
from stages import Zygote, spec, tensor
from static import inspect_stage

PRELUDE = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    started = Zygote("compile")
    yield started
    assert started.close() == 0


@pytest.fixture(scope="module")
def reader() -> Iterator[Zygote]:
    started = Zygote("static")
    yield started
    assert started.close() == 0


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where children under other user ids may go; pytest's own is closed to them whenever another pytest begins."""
    with tempfile.TemporaryDirectory(prefix="verifierd-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def compile_source(
    zygote: Zygote, scratch: Path, source: str, specification: dict[str, Any], **more: Any
) -> stages.Ended:
    request = {"op": "compile", "entry": "ModelNew", "target": "cuda:90", "policy": {"name": "strict"}}
    data = (PRELUDE + textwrap.dedent(source)).encode()
    return zygote.ask(
        {**request, "cache": str(scratch / "cache"), **more},
        {"source": data, "spec": json.dumps(specification).encode()},
        scratch,
    )


def inspect(reader: Zygote, cache: Path, scratch: Path, *kernels: str) -> list[dict[str, Any]]:
    scratch.mkdir()
    request = {"op": "inspect", "target": "cuda:90", "cache": str(cache), "kernels": list(kernels)}
    ended = reader.ask(request, {}, scratch)
    assert ended.report is not None, ended
    found: list[dict[str, Any]] = ended.report["kernels"]
    return found


ADD = """
@triton.jit
def add_kernel(x, y, o, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    mask = offsets < n
    tl.store(o + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)

class ModelNew(nn.Module):
    def forward(self, x, y):
        o = torch.empty_like(x)
        n = x.numel()
        add_kernel[lambda meta: (triton.cdiv(n, meta["B"]),)](x, y, o, n, B=256)
        return o
"""

# Each: source, inputs, constructor arguments, and the kernels that must come out with how often each was compiled.
KERNELS: dict[str, tuple[str, tuple[Any, ...], tuple[Any, ...], dict[str, int]]] = {
    "elementwise": (ADD, (tensor(1000), tensor(1000)), (), {"add_kernel": 1}),
    "softmax": (
        """
        @triton.jit
        def softmax_kernel(x, o, columns, stride, B: tl.constexpr):
            row = tl.program_id(0)
            c = tl.arange(0, B)
            v = tl.load(x + row * stride + c, mask=c < columns, other=-float("inf"))
            e = tl.exp(v - tl.max(v, axis=0))
            tl.store(o + row * stride + c, e / tl.sum(e, axis=0), mask=c < columns)

        class ModelNew(nn.Module):
            def forward(self, x):
                o = torch.empty_like(x)
                softmax_kernel[(x.shape[0],)](x, o, x.shape[1], x.stride(0), B=triton.next_power_of_2(x.shape[1]))
                return o
        """,
        (tensor(8, 100),),
        (),
        {"softmax_kernel": 1},
    ),
    "layer norm with weights, helper functions and properties": (
        """
        @triton.jit
        def mean_of(v, n):
            return tl.sum(v, axis=0) / n

        @triton.jit
        def norm_kernel(x, w, b, o, n, eps, B: tl.constexpr):
            row = tl.program_id(0)
            c = tl.arange(0, B)
            v = tl.load(x + row * n + c, mask=c < n, other=0.0)
            mean = mean_of(v, n)
            d = tl.where(c < n, v - mean, 0.0)
            s = d / tl.sqrt(mean_of(d * d, n) + eps)
            tl.store(o + row * n + c, s * tl.load(w + c, mask=c < n) + tl.load(b + c, mask=c < n), mask=c < n)

        class ModelNew(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.norm = nn.LayerNorm(n)
                self.sms = torch.cuda.get_device_properties(0).multi_processor_count

            def forward(self, x):
                assert x.is_cuda and x.device.type == "cuda" and self.norm.weight.is_cuda
                assert self.sms == 132 and torch.cuda.get_device_capability() == (9, 0)
                o = torch.empty_like(x)
                with torch.cuda.device(x.device):
                    norm_kernel[(x.shape[0],)](x, self.norm.weight, self.norm.bias, o, x.shape[1], 1e-5, B=64)
                return o
        """,
        (tensor(4, 64),),
        (64,),
        {"norm_kernel": 1},
    ),
    "autotuned matmul in half precision": (
        """
        @triton.autotune(
            configs=[
                triton.Config({"M_": 32, "N_": 32}, num_warps=2),
                triton.Config({"M_": 64, "N_": 64}, num_warps=4, num_stages=2),
                triton.Config({"M_": 8192, "N_": 4096}, num_warps=8),
            ],
            key=["m", "n", "k"],
        )
        @triton.jit
        def matmul_kernel(a, b, c, m, n, k, M_: tl.constexpr, N_: tl.constexpr, K_: tl.constexpr):
            r = tl.program_id(0) * M_ + tl.arange(0, M_)
            s = tl.program_id(1) * N_ + tl.arange(0, N_)
            acc = tl.zeros((M_, N_), dtype=tl.float32)
            for t in range(0, k, K_):
                q = t + tl.arange(0, K_)
                acc += tl.dot(tl.load(a + r[:, None] * k + q[None, :]), tl.load(b + q[:, None] * n + s[None, :]))
            tl.store(c + r[:, None] * n + s[None, :], acc.to(tl.float16))

        class ModelNew(nn.Module):
            def forward(self, a, b):
                c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
                grid = lambda meta: (a.shape[0] // meta["M_"], b.shape[1] // meta["N_"])
                try:
                    matmul_kernel[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], K_=32)
                except Exception:
                    matmul_kernel.configs.pop()
                    matmul_kernel[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], K_=32)
                return c
        """,
        (tensor(128, 64, dtype="float16"), tensor(64, 128, dtype="float16")),
        (),
        {"matmul_kernel": 3},
    ),
    "heuristics": (
        """
        @triton.heuristics(
            {"B": lambda args: triton.next_power_of_2(args["n"]), "EVEN": lambda args: args["n"] % 64 == 0}
        )
        @triton.jit
        def copy_kernel(x, o, n, B: tl.constexpr, EVEN: tl.constexpr):
            i = tl.arange(0, B)
            if EVEN:
                tl.store(o + i, tl.load(x + i))
            else:
                tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)

        class ModelNew(nn.Module):
            def forward(self, x):
                o = torch.empty_like(x)
                copy_kernel[(1,)](x, o, x.numel())
                return o
        """,
        (tensor(100),),
        (),
        {"copy_kernel": 1},
    ),
    "bfloat16 dot": (
        """
        @triton.jit
        def dot_kernel(a, b, o, B: tl.constexpr):
            i = tl.arange(0, B)
            at = i[:, None] * B + i[None, :]
            tl.store(o + at, tl.dot(tl.load(a + at), tl.load(b + at)).to(tl.bfloat16))

        class ModelNew(nn.Module):
            def forward(self, a, b):
                o = a.new_empty(a.shape)
                dot_kernel[(1, 1)](a, b, o, B=32, num_warps=1)
                return o
        """,
        (tensor(32, 32, dtype="bfloat16"), tensor(32, 32, dtype="bfloat16")),
        (),
        {"dot_kernel": 1},
    ),
    "atomics, None for a pointer, keyword arguments, two specialisations": (
        """
        @triton.jit
        def sum_kernel(x, bias, o, n, HAS_BIAS: tl.constexpr, B: tl.constexpr):
            i = tl.program_id(0) * B + tl.arange(0, B)
            v = tl.load(x + i, mask=i < n, other=0.0)
            if HAS_BIAS:
                v += tl.load(bias + i, mask=i < n, other=0.0)
            tl.atomic_add(o, tl.sum(v, axis=0))

        class ModelNew(nn.Module):
            def forward(self, x):
                o = torch.zeros(1, device="cuda", dtype=torch.float32)
                for bias in (None, x):
                    sum_kernel[(4,)](x, bias=bias, o=o, n=x.numel(), HAS_BIAS=bias is not None, B=64)
                return o
        """,
        (tensor(250),),
        (),
        {"sum_kernel": 2},
    ),
    "two kernels, a view that is not aligned, .cuda() in forward": (
        """
        @triton.jit
        def scale_kernel(x, o, n, factor, B: tl.constexpr):
            i = tl.arange(0, B)
            tl.store(o + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)

        @triton.jit
        def shift_kernel(x, o, n, B: tl.constexpr):
            i = tl.arange(0, B)
            tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

        class ModelNew(nn.Module):
            def forward(self, x):
                x = x.cuda().to("cuda:0")
                o = torch.empty_like(x)
                scale_kernel[(1,)](x, o, 64, 2.0, B=64)
                scale_kernel[(1,)](x[1:], o, 64, 2.0, B=64)
                shift_kernel[(1,)](o, o, x.numel(), B=128)
                torch.cuda.synchronize()
                return o
        """,
        (tensor(100),),
        (),
        {"scale_kernel": 2, "shift_kernel": 1},
    ),
    "kernel below an autograd function": (
        ADD.replace("class ModelNew", "class Inner")
        + """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return Inner()(x, y)

class ModelNew(nn.Module):
    def forward(self, x, y):
        return Function.apply(x, y)
""",
        (tensor(16), tensor(16)),
        (),
        {"add_kernel": 1},
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_become_cubins(zygote: Zygote, reader: Zygote, scratch: Path, tmp_path: Path, name: str) -> None:
    source, inputs, args, expected = KERNELS[name]
    ended = compile_source(zygote, scratch, source, spec(*inputs, args=args))
    report = ended.report
    assert report is not None, ended
    assert report["outcome"] == "pass", report
    assert report["flags"] == [], report
    assert report["unreached"] == []
    assert {kernel["name"]: kernel["compiles"] for kernel in report["kernels"]} == expected
    assert ended.exited["code"] == 0
    found = inspect(reader, scratch / "cache", tmp_path / "inspect", *expected)
    assert {kernel["name"] for kernel in found} == set(expected)
    for kernel in found:
        assert 0 < kernel["registers"] <= 255
        assert kernel["cubin_bytes"] > 1000
        assert kernel["hash"].startswith("sha256:")


def test_a_target_that_the_settings_take_has_a_board() -> None:
    """The daemon's own list: a target that no board has would have the compile zygote end again and again."""
    source = Path(__file__).parents[2].joinpath("server", "config.c").read_text()
    known = source.partition("is_target(const char *text)")[2].partition("};")[0]
    assert {int(number) for number in re.findall(r'"cuda:(\d+)"', known)} == set(fake_cuda.DEVICES)


def test_a_moved_cache_is_found_and_nothing_is_compiled_again(zygote: Zygote, scratch: Path, tmp_path: Path) -> None:
    inputs = spec(tensor(1000), tensor(1000))
    first = compile_source(zygote, scratch, ADD, inputs).report
    assert first is not None
    moved = tmp_path / "second"
    moved.mkdir()
    shutil.copytree(scratch / "cache", moved / "cache")
    shutil.rmtree(scratch / "cache")
    for folder, _, files in os.walk(moved):
        for path in (Path(folder), *(Path(folder, file) for file in files)):
            path.chmod(0o777)
    second = compile_source(zygote, moved, ADD, inputs).report
    assert second is not None
    assert second["outcome"] == "pass"
    cubins = list((moved / "cache").glob("*/*.cubin"))
    assert len(cubins) == 1
    assert second["kernels"][0]["ms"] < first["kernels"][0]["ms"] / 2


def test_other_sizes_are_compiled_ahead_and_decide_nothing(zygote: Zygote, scratch: Path, tmp_path: Path) -> None:
    source = ADD.replace("n = x.numel()", "n = x.numel()\n        assert n != 7")
    specification = spec(tensor(1024), tensor(1024))
    cases = specification["cases"]
    cases["tiny"] = {**cases["own"], "name": "tiny", "inputs": {"list": [tensor(1), tensor(1)]}}
    cases["shapes"] = [{**cases["own"], "inputs": {"list": [tensor(size), tensor(size)]}} for size in (7, 100)]
    report = compile_source(zygote, scratch, source, specification).report
    assert report is not None
    assert (report["outcome"], report["launches"], report["flags"]) == ("pass", 1, [])
    # n is 1024 (divisible by 16), 1 and 100: three specialisations.
    assert len(list((scratch / "cache").glob("*/*.cubin"))) == 3


def test_configurations_are_compiled_side_by_side(zygote: Zygote, scratch: Path, tmp_path: Path) -> None:
    """With the code that machines of many cores use, whatever this one has."""
    source = f"""
import sys
sys.path.insert(0, {str(stages.HARNESS)!r})
from live import compile_stage
from triton.runtime.autotuner import Autotuner
bounded = Autotuner.prune_configs

def prune(tuner, arguments):
    found = bounded(tuner, arguments)
    compile_stage._compile_side_by_side(tuner, found, arguments, 3)
    assert len(list(__import__("pathlib").Path({str(scratch)!r}, "cache").glob("*/*.cubin"))) == 4
    return found

Autotuner.prune_configs = prune
"""
    configs = "configs=[triton.Config({'B': b}) for b in (64, 128, 256, 512)], key=['n']"
    source += ADD.replace("@triton.jit", f"@triton.autotune({configs})\n@triton.jit").replace(", B=256)", ")")
    report = compile_source(zygote, scratch, source, spec(tensor(64), tensor(64))).report
    assert report is not None
    assert (report["outcome"], report["flags"]) == ("pass", []), report
    assert report["kernels"][0]["compiles"] == 4


FAILURES: dict[str, tuple[str, str, int | None, str]] = {
    "unknown name in a kernel": (
        ADD.replace("mask = offsets < n", "mask = offsets < limit"), "compile", 9, "limit is not defined"
    ),
    "in a helper": (
        ADD.replace("@triton.jit", "@triton.jit\ndef helper(v):\n    return v + missing\n\n@triton.jit").replace(
            "tl.load(x + offsets, mask=mask) +", "helper(tl.load(x + offsets, mask=mask)) +"
        ),
        "compile", 8, "missing is not defined",
    ),
    "too much shared memory": (
        """
        @triton.jit
        def greedy_kernel(a, b, c, k, B: tl.constexpr, K: tl.constexpr):
            i = tl.arange(0, B)
            acc = tl.zeros((B, B), dtype=tl.float32)
            for t in range(0, k, K):
                q = t + tl.arange(0, K)
                acc += tl.dot(tl.load(a + i[:, None] * k + q[None, :]), tl.load(b + q[:, None] * B + i[None, :]))
            tl.store(c + i[:, None] * B + i[None, :], acc)

        class ModelNew(nn.Module):
            def forward(self, a, b):
                c = torch.empty_like(a)
                greedy_kernel[(1,)](a, b, c, a.shape[1], B=128, K=64, num_stages=5)
                return c
        """,
        "compile", 7, "out of resource: shared memory",
    ),
    "not a power of two": (ADD.replace("B=256", "B=100"), "compile", 8, "power of 2"),
    "import raises": ("raise KeyError('first')\n", "import", 5, "KeyError: 'first'"),
    "missing module": ("import not_there_at_all\n", "import", 5, "not_there_at_all"),
    "leaves politely": ("import sys\nsys.exit(0)\n", "import", 6, "SystemExit"),
    "no class": ("ModelOld = 1\n", "import", None, "no class 'ModelNew'"),
    "constructor raises": (
        "class ModelNew(nn.Module):\n    def __init__(self):\n        raise ValueError('why')\n",
        "import", 7, "ValueError: why",
    ),
    "constructor wants more": (
        "class ModelNew(nn.Module):\n    def __init__(self, size):\n        pass\n", "import", None, "size"
    ),
    "hoards": ("hoard = [bytes(1 << 28) for _ in range(100)]\n", "oom", 5, "MemoryError"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_failures_have_their_class_and_line(zygote: Zygote, scratch: Path, name: str) -> None:
    source, kind, line, text = FAILURES[name]
    ended = compile_source(zygote, scratch, source, spec(tensor(128, 1024), tensor(1024, 128)))
    report = ended.report
    assert report is not None, ended
    assert (report["outcome"], report["class"]) == ("fail", kind), report
    assert text in report["error"]["text"]
    assert "zygote.py" not in report["error"]["text"]
    if line is not None:
        assert report["error"]["line"] == line, report["error"]


def test_what_fake_tensors_cannot_do_is_left_to_the_next_stage(zygote: Zygote, scratch: Path) -> None:
    source = ADD.replace("n = x.numel()", "n = int(x.sum().item())")
    report = compile_source(zygote, scratch, source, spec(tensor(64), tensor(64))).report
    assert report is not None
    assert report["outcome"] == "pass"
    assert report["flags"] == ["compile_deferred", "no_launch"]
    assert report["unreached"] == ["add_kernel"]
    assert report["deferred"]["line"] == 15


def test_a_wrong_call_is_left_to_the_next_stage(zygote: Zygote, scratch: Path) -> None:
    source = ADD.replace("(x, y, o, n, B=256)", "(x, y, o, B=256)")
    report = compile_source(zygote, scratch, source, spec(tensor(64), tensor(64))).report
    assert report is not None
    assert (report["outcome"], report["flags"]) == ("pass", ["compile_deferred", "no_launch"])
    assert "missing 1 required positional argument" in report["deferred"]["text"]


def test_many_configurations_are_bounded(zygote: Zygote, scratch: Path) -> None:
    configs = "configs=[triton.Config({'B': 64}, num_warps=1, maxnreg=64 + i) for i in range(65)], key=['n']"
    source = ADD.replace("@triton.jit", f"@triton.autotune({configs})\n@triton.jit").replace(", B=256)", ")")
    report = compile_source(zygote, scratch, source, spec(tensor(64), tensor(64))).report
    assert report is not None
    assert report["outcome"] == "pass", report["error"]
    assert report["flags"] == ["autotune_bounded"]
    assert report["kernels"][0]["compiles"] == 64


ENDINGS: dict[str, tuple[str, int | None, int | None]] = {
    "os._exit": ("import os\nos._exit(0)\n", 0, None),
    "os._exit with a status": ("import os\nos._exit(7)\n", 7, None),
    "abort": ("import os\nos.abort()\n", None, signal.SIGABRT),
    "kills itself": ("import os\nos.kill(os.getpid(), 9)\n", None, signal.SIGKILL),
    "segfault": ("import faulthandler\nfaulthandler._sigsegv()\n", None, signal.SIGSEGV),
    "bad pointer": ("import pathlib\n(lambda c: c.string_at(1))(__import__('ctypes'))\n", None, signal.SIGSEGV),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_children_that_end_are_reported_as_they_ended(zygote: Zygote, scratch: Path, name: str) -> None:
    source, code, number = ENDINGS[name]
    ended = compile_source(zygote, scratch, source, spec(tensor(64)))
    assert ended.report is None
    assert (ended.exited["code"], ended.exited["signal"]) == (code, number)
    assert ended.exited["error"] is None


def test_a_killed_child_takes_along_what_it_started(zygote: Zygote, scratch: Path) -> None:
    source = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open("alive", "a").close()
        while True:
            time.sleep(0.01)
            os.utime("alive")
while True:
    time.sleep(1)
"""
    name, channel, output, pidfd = zygote.spawn("compile", scratch)
    data = wire.make_memfd((PRELUDE + source).encode())
    spec_fd = wire.make_memfd(json.dumps(spec(tensor(4))).encode())
    request = {"op": "compile", "entry": "ModelNew", "target": "cuda:90", "policy": {}, "cache": str(scratch / "c")}
    channel.send(request, {"source": data, "spec": spec_fd})
    end = time.monotonic() + 120
    while not (scratch / "alive").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    zygote.channel.send({"op": "kill", "child": name})
    exited = zygote.channel.receive(120).body
    assert (exited["ev"], exited["child"], exited["signal"]) == ("exited", name, signal.SIGKILL)
    stamp = (scratch / "alive").stat().st_mtime_ns
    time.sleep(0.2)
    assert (scratch / "alive").stat().st_mtime_ns == stamp
    channel.close()
    for fd in (data, spec_fd, output, pidfd):
        os.close(fd)


def test_output_is_the_childs_own_and_after_a_crash_the_next_is_unharmed(zygote: Zygote, scratch: Path) -> None:
    ended = compile_source(zygote, scratch, "print('hello', flush=True)\nimport os\nos.abort()\n", spec())
    assert ended.output.startswith("hello")
    again = scratch.parent / "again"
    again.mkdir()
    report = compile_source(zygote, again, ADD, spec(tensor(64), tensor(64))).report
    assert report is not None
    assert report["outcome"] == "pass"


def test_a_child_finds_nothing_about_another(zygote: Zygote, scratch: Path) -> None:
    first, channel, output, pidfd = zygote.spawn("compile", scratch)
    own = scratch.parent / "own"
    own.mkdir()
    source = """
    import gc, os
    known = [vars(o) for o in gc.get_objects() if type(getattr(o, "__dict__", None)) is dict]
    print("seen", [fields for fields in known if "pidfd" in fields], flush=True)
    os._exit(0)
    """
    try:
        assert compile_source(zygote, own, source, spec()).output == "seen []\n"
    finally:
        zygote.channel.send({"op": "kill", "child": first})
        assert zygote.channel.receive(120).body["child"] == first
        channel.close()
        for fd in (output, pidfd):
            os.close(fd)


def test_what_is_no_request_is_refused(zygote: Zygote, reader: Zygote, scratch: Path) -> None:
    """Candidates' code runs in no child of the zygote whose children are believed."""
    for asked, role, roles in ((zygote, "ast", "compile, build"), (reader, "compile", "ast, inspect")):
        asked.channel.send({"op": "spawn", "child": "bad", "role": role, "scratch": str(scratch), "limits": {}})
        answer = asked.channel.receive(120).body
        assert answer["ev"] == "exited"
        assert f"role must be one of {roles}, not {role!r}" in answer["error"]


def test_who_only_reads_has_no_torch(reader: Zygote) -> None:
    """A child of it is made and gone in a tenth of the time that one with torch takes."""
    assert list(reader.ready.body["versions"]) == ["python"]
    guard = reader.process.pid  # where the zygote has a PID namespace it is the child of its guard
    children = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in children or [str(guard)])
    assert "libharness" in maps and "libtorch" not in maps and "libtriton" not in maps


def test_inspect_wants_the_target_and_the_name(zygote: Zygote, scratch: Path, tmp_path: Path) -> None:
    compile_source(zygote, scratch, ADD, spec(tensor(64), tensor(64)))
    cache = str(scratch / "cache")
    assert inspect_stage.inspect(cache, 90, frozenset({"add_kernel"}))
    assert inspect_stage.inspect(cache, 80, frozenset({"add_kernel"})) == []
    assert inspect_stage.inspect(cache, 90, frozenset({"other"})) == []


def test_inspect_survives_damaged_cubins(zygote: Zygote, scratch: Path) -> None:
    compile_source(zygote, scratch, ADD, spec(tensor(64), tensor(64)))
    cubin = next((scratch / "cache").glob("*/*.cubin"))
    whole = cubin.read_bytes()
    assert inspect_stage.kernels_of(whole)[0] == 90
    refused = 0
    for cut in range(0, len(whole), 97):
        refused += _refuses(whole[:cut])
        damaged = bytearray(whole)
        damaged[cut : cut + 8] = b"\xff" * 8
        refused += _refuses(bytes(damaged))
    assert refused > 20


def _refuses(data: bytes) -> bool:
    try:
        inspect_stage.kernels_of(data)
    except inspect_stage.BadElf:
        return True
    return False


def test_inspect_follows_no_link_and_reads_no_fifo(zygote: Zygote, scratch: Path, tmp_path: Path) -> None:
    compile_source(zygote, scratch, ADD, spec(tensor(64), tensor(64)))
    cubin = next((scratch / "cache").glob("*/*.cubin"))
    cache = tmp_path / "other"
    folder = cache / "folder"
    folder.mkdir(parents=True)
    (folder / "add_kernel.cubin").symlink_to(cubin)
    (cache / "link").symlink_to(cubin.parent)
    os.mkfifo(folder / "fifo.cubin")
    (folder / "large.cubin").touch()
    os.truncate(folder / "large.cubin", inspect_stage.CUBIN_MAX + 1)
    assert inspect_stage.inspect(str(cache), 90, frozenset({"add_kernel"})) == []


def test_other_targets_are_told_apart(zygote: Zygote, scratch: Path) -> None:
    report = compile_source(zygote, scratch, ADD, spec(tensor(64), tensor(64)), target="cuda:80").report
    assert report is not None
    assert report["outcome"] == "pass", report
    cache = str(scratch / "cache")
    assert inspect_stage.inspect(cache, 80, frozenset({"add_kernel"}))
    assert inspect_stage.inspect(cache, 90, frozenset({"add_kernel"})) == []


def test_a_launcher_is_begun_beside_its_kernel_and_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fork, which the real one waits for; what fails there is tried once more, and told."""
    import triton.backends.nvidia.driver as driver
    from live import compile_stage

    log = tmp_path / "log"

    class Source:
        def __init__(self, signature: dict[int, str]) -> None:
            self.signature = signature

    def launcher(source: Source, metadata: Any) -> None:
        time.sleep(0.1 if metadata.num_warps is None else 0)  # the one in the fork knows nothing yet
        with log.open("a") as file:
            file.write(f"{os.getpid() == ours} {source.signature[0]}\n")
        if source.signature[0] == "i64":
            raise RuntimeError("no compiler")

    ours = os.getpid()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(driver, "CudaLauncher", launcher)
    monkeypatch.setattr(fake_cuda.Launcher, "ahead", None)
    monkeypatch.setattr(fake_cuda.Launcher, "build", None)
    record = compile_stage.Record()
    compile_stage.build_launchers(record)

    class Metadata:
        num_warps = 4

    for types in ("*fp32", "*fp32", "i64"):
        fake_cuda.Launcher.ahead(Source({0: types}))
        fake_cuda.Launcher.build(Source({0: types}), Metadata())
    begun = ["False *fp32", "True *fp32", "True *fp32", "False i64", "True i64"]
    assert log.read_text().splitlines() == begun
    assert record.flags == {"launcher_not_built"}


@pytest.mark.parametrize("where", ["__init__", "forward"])
def test_the_time_of_the_other_sizes_is_that_of_all_together(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from live import compile_stage
    from tracer import trace

    begun: list[str] = []

    def last(case: Any) -> None:
        begun.append(case)
        time.sleep(2)

    monkeypatch.setattr(compile_stage, "OTHER_CASES_S", 0.2)
    monkeypatch.setattr(trace, "inputs_of", lambda case: [case])
    monkeypatch.setattr(trace, "build", lambda module, entry, case: last(case) if where == "__init__" else last)
    compile_stage.compile_ahead(os, "Model", ["first", "second"])  # type: ignore[list-item]
    assert begun == ["first"]


def test_the_other_sizes_are_compiled_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from live import compile_stage

    def run() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))

    for workers, is_forked in ((1, False), (2, True)):
        monkeypatch.setattr(compile_stage, "autotune_workers", lambda workers=workers: workers)
        with compile_stage._side_by_side(run):
            pass
        assert (tmp_path / "pid").exists() is is_forked
    assert (tmp_path / "pid").read_text() != str(os.getpid())

    def signal_parent() -> None:
        for others in (os.getppid(), 0):
            with pytest.raises(PermissionError):
                os.kill(others, signal.SIGWINCH)
        (tmp_path / "nobody").touch()

    with compile_stage._side_by_side(signal_parent):
        pass
    assert (tmp_path / "nobody").exists()
    with compile_stage._side_by_side(run):
        os.wait()  # a candidate may

    forks: list[int] = []
    fork = os.fork

    def fork_and_note() -> int:
        forks.append(fork())
        return forks[-1]

    monkeypatch.setattr(os, "fork", fork_and_note)
    with pytest.raises(ZeroDivisionError), compile_stage._side_by_side(lambda: time.sleep(60)):
        raise ZeroDivisionError  # a failure is told at once
    os.kill(forks[0], signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(forks[0], 0)[1]) == signal.SIGKILL
