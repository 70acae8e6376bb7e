"""The place that maps cuda to cpu, in a process of its own since it patches torch for good."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HARNESS = Path(__file__).resolve().parents[2] / "server" / "harness"
PRELUDE = """
import torch, triton
from live import cpu_device
import triton.language as tl
import numpy as np
cpu_device.install()
mode = cpu_device.torch_function_mode()
with mode:
"""


def run(body: str, tmp_path: Path) -> str:
    script = tmp_path / "script.py"
    script.write_text(PRELUDE + textwrap.indent(textwrap.dedent(body), "    "))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(HARNESS), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_candidates_say_of_devices(tmp_path: Path) -> None:
    body = """
    x = torch.randn(4, device="cuda")
    assert x.is_cuda and x.device.type == "cuda" and x.device == torch.device("cuda:0") and x.get_device() == 0
    assert torch.zeros(2).cuda().is_cuda and torch.zeros(2).to("cuda", torch.float16).dtype == torch.float16
    assert torch.zeros(2).to(0).is_cuda and torch.zeros(2).to(device="cuda:0").is_cuda
    assert torch.empty(3, device=x.device).shape == (3,) and x.new_zeros(2, device="cuda").is_cuda
    assert torch.as_tensor(np.ones(3), device="cuda").sum().item() == 3
    with torch.device("cuda"):
        assert torch.zeros(3).is_cuda
    generator = torch.Generator(device="cuda").manual_seed(7)
    torch.rand(3, device="cuda", generator=generator)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).cuda().to("cuda:0")
    assert next(model.parameters()).is_cuda and model(torch.randn(2, 4, device="cuda")).shape == (2, 4)
    torch.cuda.synchronize()
    torch.cuda.current_stream().synchronize()
    assert torch.cuda.get_device_properties(x.device).multi_processor_count > 0 and torch.cuda.is_available()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(), end.record()
    assert start.elapsed_time(end) >= 0
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        x = x + torch.zeros(4, pin_memory=True)
    print("inside", x.device)
    """
    assert run(body, tmp_path).split() == ["inside", "cuda:0"]


def test_outside_the_mode_torch_tells_the_truth(tmp_path: Path) -> None:
    body = """
    x = torch.zeros(3, device="cuda")
    mode.__exit__(None, None, None)
    print(x.device, x.is_cuda)
    mode.__enter__()
    """
    assert run(body, tmp_path).split() == ["cpu", "False"]


KERNEL = """
{decorators}
@triton.jit
def scale_kernel(x, o, n, factor, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)

x = torch.arange(100, device="cuda", dtype=torch.float32)
o = torch.full_like(x, -1)
scale_kernel[{grid}](x, o, x.numel(), 2.0{more})
assert torch.equal(o, x * 2), o
print("right")
"""
TUNED = """@triton.autotune(
    configs=[triton.Config({"B": b}, num_warps=w) for b in (32, 64) for w in (1, 2)], key=["n"]
)"""
LAUNCHES = {
    "plain": ("", "(2,)", ", B=64"),
    "a list for a grid": ("", "[2]", ", B=64"),
    "a function for a grid": ("", "lambda meta: (triton.cdiv(100, meta['B']),)", ", B=64, num_warps=2"),
    "autotuned": (TUNED, "lambda meta: (triton.cdiv(100, meta['B']),)", ""),
    "heuristics": ("@triton.heuristics({'B': lambda args: 128})", "(1,)", ""),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_kernels_run(tmp_path: Path, name: str) -> None:
    decorators, grid, more = LAUNCHES[name]
    assert run(KERNEL.format(decorators=decorators, grid=grid, more=more), tmp_path).strip() == "right"


def test_the_driver_is_asked_and_answers(tmp_path: Path) -> None:
    body = """
    active = triton.runtime.driver.active
    print(active.get_current_target().arch, active.utils.get_device_properties(0)["multiprocessor_count"])
    print(triton.testing.do_bench(lambda: 1 / 0))
    """
    assert run(body, tmp_path).split() == ["90", "132", "1.0"]


INDUCTOR = """\
import torch
from torch._inductor.runtime.triton_heuristics import grid
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
found = empty_strided_cuda((2, 3), (3, 1), torch.float32)
"""


def test_the_output_of_inductor_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "inductor.py").write_text(INDUCTOR)
    body = f"""
    from pathlib import Path
    from shared import loading
    source = Path({str(tmp_path / "inductor.py")!r}).read_bytes()
    module = loading.load_candidate(source, Path({str(tmp_path)!r}))
    print(module.grid(2048)({{"XBLOCK": 256}}), module.found.is_cuda)
    """
    assert run(body, tmp_path).strip() == "(8, 1, 1) True"


GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

@gluon.jit
def copy_kernel(x, o):
    gl.store(o, gl.load(x))

try:
    copy_kernel[(1,)](torch.ones(1, device="cuda"), torch.zeros(1, device="cuda"))
except NotImplementedError as error:
    print(error)
"""


def test_a_kernel_that_the_interpreter_cannot_run_says_so(tmp_path: Path) -> None:
    """Its output would be what lay in memory, and count as wrong."""
    assert "cannot run copy_kernel" in run(GLUON, tmp_path)
