"""What confinement costs: a fork and its child's first word, plain and in the sandbox, side by side in one run.

    PYTHON tests/bench/sandbox.py [--harness build/lib/verifierd/harness] [--rounds 200] [--torch] [--kernels 5]

Rounds of both kinds alternate, so that a disturbed machine disturbs both. --torch imports torch and triton first, as a
zygote does: the fork grows with the process, the sandbox does not. --kernels: so many children of each kind, one kind
after the other, time some of torch's kernels on the GPU, by CUDA events with a flushed cache; both kinds should agree
within their scatter.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

FLUSH_BYTES = 256 << 20
WARM_UP, CALLS = 10, 100


def percentile(samples: list[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))]


class Bench:
    def __init__(self, native: Any, scratch: Path, mode: int) -> None:
        self._native = native
        self._settings = native.SandboxSettings(
            scratch=scratch, uid=61234 if os.geteuid() == 0 else None, file_bytes=1 << 30, memory_bytes=1 << 34
        )
        self.plan = native.probe_sandbox(self._settings, mode)

    def _fork(self, *, is_confined: bool, keep: int) -> int:
        """0 in the child, which is confined by then; keep: a descriptor that it goes on to use."""
        pid: int = self._native.fork_child(self.plan) if is_confined else os.fork()
        if pid == 0 and is_confined:
            self._native.enter_sandbox(replace(self._settings, keep=(keep,)), self.plan)
        return pid

    def kernels_ms(self, rounds: int) -> list[dict[str, float]]:
        """What confined children measure of torch's kernels, by name."""
        return [told(lambda keep: self._fork(is_confined=True, keep=keep), time_kernels) for _ in range(rounds)]

    def once(self, *, is_confined: bool) -> tuple[float, float]:
        """Milliseconds from before the fork until the child says that it is ready, and until it is reaped."""
        read_end, write_end = os.pipe()
        start = time.perf_counter()
        pid = self._fork(is_confined=is_confined, keep=write_end)
        if pid == 0:
            os.write(write_end, b"x")
            signal.pause()
        os.close(write_end)
        if os.read(read_end, 1) != b"x":
            raise SystemExit("a child ended before it was ready")
        ready = time.perf_counter()
        os.close(read_end)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return (ready - start) * 1e3, (time.perf_counter() - ready) * 1e3


def load_torch() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    importlib.import_module("torch")
    importlib.import_module("triton")


def told(fork: Callable[[int], int], make: Callable[[], Any]) -> Any:
    """What make() gives in a child. fork: given the descriptor that the child has to keep."""
    read_end, write_end = os.pipe()
    pid = fork(write_end)
    if pid == 0:
        try:
            os.write(write_end, json.dumps(make()).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    if not text:
        raise SystemExit("a child ended before its kernels were timed")
    return json.loads(text)


def plain_kernels_ms(rounds: int) -> list[dict[str, float]]:
    """The same of plain children. Before the zygote isolates itself: CUDA starts in no plain child of a PID namespace
    that has no /proc of its own."""

    def measure() -> list[dict[str, float]]:
        load_torch()
        return [told(lambda _: os.fork(), time_kernels) for _ in range(rounds)]

    found: list[dict[str, float]] = told(lambda _: os.fork(), measure)
    return found


def time_kernels() -> dict[str, float]:
    """Milliseconds of a call, the median of CALLS, each with a flushed cache. Makes this process' CUDA context."""
    torch = importlib.import_module("torch")
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    small, large = (torch.rand(rows, 4096, device="cuda") for rows in (2048, 65536))
    calls: dict[str, Callable[[], object]] = {
        "relu 2048x4096": lambda: torch.relu(small),
        "relu 65536x4096": lambda: torch.relu(large),
        "softmax 65536x4096": lambda: torch.softmax(large, 1),
        "product 2048x4096x2048": lambda: small @ small.t(),
    }
    found = {}
    for name, call in calls.items():
        times = []
        for index in range(WARM_UP + CALLS):
            flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times += [begin.elapsed_time(end)] * (index >= WARM_UP)
        found[name] = statistics.median(times)
    return found


def print_kernels(plain_ms: list[dict[str, float]], confined_ms: list[dict[str, float]]) -> None:
    print(f"{'':26}{'plain, ms':>12}{'sandbox, ms':>14}{'ratio':>10}{'scatter of each':>22}")
    for name in plain_ms[0]:
        sides = [[found[name] for found in kind] for kind in (plain_ms, confined_ms)]
        plain, confined = map(statistics.median, sides)
        scatter = ", ".join(f"{100 * (max(side) / min(side) - 1):.2f} %" for side in sides)
        print(f"{name:26}{plain:12.4f}{confined:14.4f}{confined / plain:10.4f}{scatter:>22}")


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description="what the sandbox costs beside a plain fork")
    parser.add_argument("--harness", type=Path, default=Path("build/lib/verifierd/harness"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--kernels", type=int, default=0, metavar="ROUNDS")
    options = parser.parse_args()
    sys.path.insert(0, str(options.harness.resolve()))
    native = importlib.import_module("shared.native")
    has_kernels = options.kernels > 0 and Path("/dev/nvidiactl").exists()
    plain_ms = plain_kernels_ms(options.kernels) if has_kernels else []
    mode = native.isolate_zygote()
    if options.torch:
        load_torch()
    with tempfile.TemporaryDirectory(prefix="verifierd-bench-") as directory:
        Path(directory).chmod(0o755)
        scratch = Path(directory) / "scratch"
        scratch.mkdir()
        bench = Bench(native, scratch, mode)
        if has_kernels:
            print_kernels(plain_ms, bench.kernels_ms(options.kernels))
        elif options.kernels:
            print("no GPU on this machine: its kernels are not timed")
        samples: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for index in range(2 * options.rounds):
            is_confined = index % 2 == 1
            samples[is_confined].append(bench.once(is_confined=is_confined))
    absent = [f"{name} ({state})" for name, state in bench.plan.report.items() if state != "on"]
    print(f"resident {resident_mb():.0f} MB, {options.rounds} rounds of each; absent: {', '.join(absent) or 'nothing'}")
    print(f"{'':16}{'ready, ms: median':>20}{'99th':>8}{'gone, ms: median':>20}{'99th':>8}")
    for is_confined, name in ((False, "plain fork"), (True, "in the sandbox")):
        ready, gone = ([pair[i] for pair in samples[is_confined]] for i in (0, 1))
        print(
            f"{name:16}{statistics.median(ready):20.2f}{percentile(ready, 0.99):8.2f}"
            f"{statistics.median(gone):20.2f}{percentile(gone, 0.99):8.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
