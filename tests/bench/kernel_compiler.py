"""make bench-kernel_compiler: what the kernel compiler takes, from a plan and a source to images.

    PYTHON tests/bench/kernel_compiler.py [--rounds 20] [--workers 2] [--out FILE]

This process is primed as a zygote is. Each sample is a fork of it. Beside the time to the answer stands that of the
processor, of the fork and of all that it starts: what a machine with nothing else to do would take. Every sample is a
line of JSON in --out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HARNESS = Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build")) / "lib" / "verifierd" / "harness"
sys.path.insert(0, str(HARNESS))

import compiler  # noqa: E402
from shared.plan import Function, Kernel, Launch, ModuleRef, Plan, Trace  # noqa: E402

TARGET = "cuda:90"
SOURCE = textwrap.dedent("""\
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, o, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        v = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
        tl.store(o + i, v, mask=i < n)

    @triton.jit
    def softmax(x, o, n, B: tl.constexpr):
        row, i = tl.program_id(0), tl.arange(0, B)
        v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(o + row * n + i, e / tl.sum(e, axis=0), mask=i < n)

    @triton.jit
    def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        r, s = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
        acc = tl.zeros((M, N), dtype=tl.float32)
        for t in range(0, k, K):
            q = t + tl.arange(0, K)
            acc += tl.dot(tl.load(a + r[:, None] * k + q[None, :]), tl.load(b + q[:, None] * n + s[None, :]))
        tl.store(c + r[:, None] * n + s[None, :], acc.to(tl.float16))
""").encode()
NAMES = ("add", "softmax", "matmul")


def kernel(name: str, types: str, constants: dict[str, int], **options: int) -> Kernel:
    pairs = [tuple(item.split(":")) for item in types.split()]
    signature = (*((one, kind) for one, kind in pairs), *((one, "constexpr") for one in constants))
    paths = tuple(((len(pairs) + at,), value) for at, value in enumerate(constants.values()))
    aligned = tuple(((at,), (("tt.divisibility", 16),)) for at in range(len(pairs)))
    return Kernel(NAMES.index(name), signature, paths, aligned, tuple(options.items()))


ADD = kernel("add", "x:*fp32 y:*fp32 o:*fp32 n:i32", {"B": 1024})
SOFTMAX = kernel("softmax", "x:*fp32 o:*fp32 n:i32", {"B": 1024})
MATMULS = [
    kernel("matmul", "a:*fp16 b:*fp16 c:*fp16 m:i32 n:i32 k:i32", {"M": m, "N": n, "K": 32}, num_warps=warps)
    for m, n, warps in ((64, 64, 4), (128, 64, 4), (64, 128, 4), (128, 128, 8))
]
PLANS: dict[str, Sequence[Kernel]] = {"elementwise": [ADD], "softmax": [SOFTMAX], "4 tiles of a matmul": MATMULS}


def plan_of(kernels: Sequence[Kernel]) -> Plan:
    lines = {
        name: at for at, line in enumerate(SOURCE.decode().split("\n"), 1) for name in NAMES if f"def {name}(" in line
    }
    functions = tuple(Function(name, lines[name], (("tl", ModuleRef("triton.language")),), (), False) for name in NAMES)
    steps = tuple(Launch(at, (1, 1, 1), (), 0) for at in range(len(kernels)))
    trace = Trace("own", (), (), (), (), steps, None)
    return Plan(TARGET, f"sha256:{hashlib.sha256(SOURCE).hexdigest()}", functions, tuple(kernels), (trace,))


def sample(plan: Plan, workers: int) -> dict[str, Any]:
    """One build in a fork: seconds to its end, and the processor's seconds."""
    reading, writing = os.pipe()
    begun = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            found = compiler.build(SOURCE, plan, workers)
            assert found.failure is None and all(found.images)
            uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            spent = sum(use.ru_utime + use.ru_stime for use in uses)
            os.write(writing, json.dumps({"processor": spent}).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as end:
        told = json.loads(end.read())
    seconds = time.perf_counter() - begun
    os.waitpid(pid, 0)
    return {"seconds": seconds, **told}


def main() -> int:
    parser = argparse.ArgumentParser(description="the time of the kernel compiler")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "kernel_compiler.jsonl")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.workers} workers")
    print(f"{'ms':22}{'median':>8}{'least':>8}{'processor':>11}")
    with options.out.open("w") as out, tempfile.TemporaryDirectory(prefix="verifierd-bench-") as folder:
        compiler.prime(TARGET, Path(folder))
        for name, kernels in PLANS.items():
            plan = plan_of(kernels)
            found = [sample(plan, options.workers) for _ in range(options.rounds)]
            for at, one in enumerate(found):
                out.write(json.dumps({"plan": name, "round": at, **one}) + "\n")
            took, spent = ([1e3 * one[kind] for one in found] for kind in ("seconds", "processor"))
            print(
                f"{name:22}{statistics.median(took):8.0f}{min(took):8.0f}{statistics.median(spent):11.0f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
