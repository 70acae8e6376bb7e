"""Launches on a GPU: kernels that Triton compiled give the same by the executor's launcher as by Triton's own."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "server" / "harness"))

from executor import launch  # noqa: E402
from executor.steps import Descriptor  # noqa: E402
from shared import native  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def context() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("gpu: no GPU on this machine")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    native.gpu_init(0)
    yield


@triton.jit
def _add(x, y, out, n, factor, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + factor * tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def _product(a, b, c, n, M: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, M)
    total = tl.zeros((M, M), tl.float32)
    for start in range(0, n, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        total += tl.dot(tl.load(a + rows[:, None] * n + inner[None, :]), tl.load(b + inner[:, None] * M + columns))
    tl.store(c + rows[:, None] * M + columns[None, :], total)


@triton.jit
def _described(source, target, M: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * M
    target.store([row, 0], source.load([row, 0]) * 2)


def _kernel(compiled: Any) -> launch.Kernel:
    """What Triton compiled, as the kernel compiler would hand it over."""
    meta = compiled.metadata
    found = launch.Compiled(
        image=compiled.asm["cubin"],
        entry=meta.name,
        num_warps=meta.num_warps,
        num_ctas=meta.num_ctas,
        shared_bytes=meta.shared,
        global_scratch_bytes=meta.global_scratch_size,
        profile_scratch_bytes=meta.profile_scratch_size,
        launch_cooperative_grid=meta.launch_cooperative_grid,
        launch_pdl=meta.launch_pdl,
        descriptors=tuple(getattr(meta, "tensordesc_meta", None) or ()),
    )
    return launch.Kernel(found, list(compiled.src.signature.items()))


def _scratch(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


@pytest.mark.parametrize("options", [{}, {"num_warps": 8}, {"num_ctas": 2}, {"launch_cooperative_grid": True}])
def test_a_kernel_gives_what_tritons_own_launch_gives(options: dict[str, Any]) -> None:
    n = 10_000
    x, y = torch.randn(2, n, device="cuda")
    wanted, got = torch.empty(2, n, device="cuda")
    compiled = _add[(triton.cdiv(n, 256),)](x, y, wanted, n, 0.5, BLOCK=256, **options)
    kernel = _kernel(compiled)
    kernel.launch((triton.cdiv(n, 256), 1, 1), [x, y, got, n, 0.5, 256], _scratch)
    assert torch.equal(got, wanted)
    kernel.close()


def test_a_kernel_may_ask_for_more_shared_memory_than_is_given_unasked() -> None:
    n, m = 1024, 128
    a, b = torch.randn(m, n, device="cuda").half(), torch.randn(n, m, device="cuda").half()
    wanted, got = torch.empty(2, m, m, device="cuda")
    compiled = _product[(1,)](a, b, wanted, n, M=m, BLOCK=64, num_stages=4, num_warps=8)
    kernel = _kernel(compiled)
    assert kernel.compiled.shared_bytes > 49152
    kernel.launch((1, 1, 1), [a, b, got, n, m, 64], _scratch)
    assert torch.equal(got, wanted)


def test_a_tensor_descriptor_made_on_the_host_is_given_to_the_hardware() -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    x = torch.randn(128, 64, device="cuda")
    wanted, got = torch.empty(2, 128, 64, device="cuda")
    block = [64, 64]
    compiled = _described[(2,)](
        TensorDescriptor.from_tensor(x, block), TensorDescriptor.from_tensor(wanted, block), M=64
    )
    kernel = _kernel(compiled)

    def described(tensor: torch.Tensor) -> Descriptor:
        return Descriptor(tensor, (128, 64), (64, 1), (64, 64), is_nan_padded=False)

    kernel.launch((2, 1, 1), [described(x), described(got), 64], _scratch)
    assert torch.equal(got, wanted)


def test_a_grid_with_a_zero_launches_nothing() -> None:
    x, y = torch.randn(2, 64, device="cuda")
    out = torch.full((64,), 7.0, device="cuda")
    kernel = _kernel(_add[(1,)](x, y, torch.empty_like(x), 64, 0.5, BLOCK=64))
    kernel.launch((0, 1, 1), [x, y, out, 64, 0.5, 64], _scratch)
    assert bool((out == 7.0).all())


def test_an_image_that_is_none_and_a_kernel_that_it_lacks_are_told() -> None:
    with pytest.raises(native.NativeError):
        native.image_load(b"no cubin" * 16, "kernel", 0)
    x, y = torch.randn(2, 64, device="cuda")
    image = _add[(1,)](x, y, torch.empty_like(x), 64, 0.5, BLOCK=64).asm["cubin"]
    with pytest.raises(native.NativeError, match="find a kernel"):
        native.image_load(image, "another", 0)


@pytest.mark.parametrize("is_opened", [True, False])
def test_what_stands_behind_a_gate_waits_for_it(is_opened: bool) -> None:
    native.gate_setup()
    for _ in range(2):
        native.gate(200_000_000)
        behind = torch.cuda.Event()
        behind.record()
        began = time.monotonic()
        time.sleep(0.05)
        assert not behind.query()
        if is_opened:
            native.gate_open()
        behind.synchronize()
        assert time.monotonic() - began < 0.15 if is_opened else 0.15 < time.monotonic() - began < 1.0
