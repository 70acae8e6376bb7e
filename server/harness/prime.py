"""Initialisation that a zygote does once for all its children: environment, imports, caches (docs/compile.md).

`set_environment` comes before anything that imports torch or triton: both read the environment at import.
Nothing here may start a thread or initialise CUDA: a child forked afterwards would inherit a broken half.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Final

THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
CUDA_NOT_INITIALIZED: Final = 3
DEVICE_ORDER: Final = "PCI_BUS_ID"
"""A device's number is nvidia-smi's, for the referee and its children, whatever the daemon's environment has."""
HUGE_PAGE: Final = 2 << 20
MADV_COLLAPSE: Final = 25
COPY_QUEUES: Final = "1"
"""Of a context, for copies, of which judged code makes few: the driver takes some 7 ms for each queue, and blocks other
processes meanwhile. The number of queues for kernels is the usual one."""
USER: Final = "verifierd"
# Kept of the variables that the daemon passes (server/workers/process.c); the zygote sets all others of a child.
KEPT_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_HOME", "CC", "VIRTUAL_ENV")


class UnsafeFork(Exception):
    """The process has a thread or a CUDA context, so that a fork of it would be broken."""


def set_environment(kind: str, device: str, base: Path) -> None:
    """Replace the environment by what torch and triton need; base: a directory of the zygote's own."""
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environment.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    environment["CUDA_DEVICE_ORDER"] = DEVICE_ORDER
    environment["CUDA_VISIBLE_DEVICES"] = device.partition(":")[2] if kind == "run" and not _is_cpu(device) else ""
    environment["CUDA_MODULE_LOADING"] = "LAZY"
    environment["CUDA_DEVICE_MAX_COPY_CONNECTIONS"] = COPY_QUEUES
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["TRITON_CACHE_DIR"] = str(base / "triton")
    environment["HOME"] = environment["TMPDIR"] = str(base)
    environment["USER"] = environment["LOGNAME"] = USER  # a child's uid has no name, and Inductor asks for one
    if kind == "run" and _is_cpu(device):
        environment["TRITON_INTERPRET"] = "1"
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it was asked for when base was made


def own_directories(scratch: Path) -> None:
    """Point everything that writes files at the child's own directory."""
    os.environ["HOME"] = os.environ["TMPDIR"] = str(scratch)
    for name, folder in (
        ("TRITON_CACHE_DIR", "triton"),
        ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
        ("CUDA_CACHE_PATH", "cuda"),
    ):
        os.environ[name] = str(scratch / folder)
    tempfile.tempdir = None


def child_environment(scratch: Path, base: Path) -> None:
    """The same, Triton's cache among them; base: what set_environment was given."""
    own_directories(scratch)
    from shared import kernel_cache

    kernel_cache.install(scratch / "triton", (base / "triton",))


def versions(kind: str) -> dict[str, str]:
    """Of what the zygote imported."""
    python = {"python": platform.python_version()}
    if kind == "static":
        return python
    import torch
    import triton

    return {
        **python,
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
    }


def prime(kind: str, device: str, target: str) -> None:
    """Import what children need, and fill the caches that are the same for all of them."""
    if kind == "static":
        _prime_static()
        return
    import torch

    importlib.import_module("numpy.random")
    torch.set_num_threads(1)
    import triton.experimental.gluon
    import triton.language
    import triton.runtime.build
    import triton.runtime.cache

    triton.runtime.cache.triton_key()
    triton.runtime.build.platform_key()

    if kind == "compile":
        _prime_compile(target)
    else:
        _prime_run(device, target)


def _prime_static() -> None:
    """Neither torch nor triton: what a process holds is paid for again by each fork of it, and by each child's end."""
    gc.disable()  # a child lives for one request, and trees have no cycles
    from static import ast_stage

    importlib.import_module("static.inspect_stage")
    ast_stage.prime()


def _prime_compile(target: str) -> None:
    import compiler
    from live import compile_stage
    from tracer import trace

    importlib.import_module("compiler.stage")
    compiler.prime(target, Path(tempfile.gettempdir()))
    compile_stage.prime(target)
    trace.prime()


def _is_cpu(device: str) -> bool:
    return device.partition(":")[0] == "cpu"


def _prime_run(device: str, target: str) -> None:
    importlib.import_module("live.child")
    for name in ("runner", "interpreter" if _is_cpu(device) else "gpu"):
        importlib.import_module(f"executor.{name}")
    if _is_cpu(device):
        importlib.import_module("live.cpu_device")
        _prime_fake_tensors()
        return
    _prime_modes()
    _prime_cuda(int(target.removeprefix("cuda:")))


def _prime_modes() -> None:
    """The first operator under a mode of torch's imports as many: each new reference paid three seconds for that."""
    import torch
    from live.rounding import Rounding

    with Rounding(0):
        torch.ones(2, dtype=torch.float64).exp()


def _prime_fake_tensors() -> None:
    """The first use of fake tensors imports some 800 modules: else each reference that is registered pays for them."""
    import unittest.mock

    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    # A build with CUDA that sees no GPU asks the driver for one, and a thread of the driver's stays.
    sees_gpu = unittest.mock.patch.object(torch.cuda, "is_available", lambda: True)
    with sees_gpu, FakeTensorMode(allow_non_fake_inputs=True):
        torch.nn.Linear(2, 2)(torch.rand(2, 2))


def _prime_cuda(capability: int) -> None:
    """Triton's driver for a real GPU: its native helper is built here once, and found by every child.

    So is the assembler's version, which is part of each key in Triton's cache.

    Making the driver loads libcuda and does not initialise it (guard() makes sure). Without a compiler each child
    tries for itself, and reports the failure.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.backends.nvidia.driver import CudaDriver

    try:
        triton.runtime.driver.set_active(CudaDriver())
        CUDABackend(GPUTarget("cuda", capability, 32)).hash()
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        print(f"the helper of triton's driver cannot be built: {error}", file=sys.stderr)


def freeze() -> None:
    """Make forks cheap: keep the collector from touching, and so copying, the parent's pages in every child."""
    gc.collect()
    gc.freeze()
    _collapse()


def _collapse() -> None:
    """Move this process's memory into huge pages: a fork then copies one entry of the page tables in place of 512.

    What is written afterwards is still copied by small pages. Before Linux 6.1 this does nothing.
    """
    advise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, inode, *_ = line.split()
        if rights != "rw-p" or inode != "0":
            continue
        first, end = (int(address, 16) for address in place.split("-"))
        for address in range(-(-first // HUGE_PAGE) * HUGE_PAGE, end - HUGE_PAGE + 1, HUGE_PAGE):
            advise(ctypes.c_void_p(address), ctypes.c_size_t(HUGE_PAGE), MADV_COLLAPSE)


def guard(libcuda: ctypes.CDLL | None) -> None:
    """UnsafeFork unless this process has one thread and no CUDA."""
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise UnsafeFork(f"the zygote has {threads} threads")
    if libcuda is not None:
        count = ctypes.c_int()
        if libcuda.cuDeviceGetCount(ctypes.byref(count)) != CUDA_NOT_INITIALIZED:
            raise UnsafeFork("the zygote has initialised CUDA")


def load_libcuda() -> ctypes.CDLL | None:
    """The driver's library where there is one; loading does not initialise it."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def reseed() -> None:
    """Every generator that a fork leaves equal in all children."""
    import random

    import numpy
    import torch

    seed = int.from_bytes(os.urandom(8), "little")
    random.seed(seed)
    numpy.random.seed(seed & 0xFFFFFFFF)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed >> 1)
