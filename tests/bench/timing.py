"""make bench-timing: how far the daemon's times can be believed, beside the usual way, in one run on one GPU.

  aa       a task's reference against itself, over twenty tasks from 10 us to 20 ms: the speed-up is 1
  repeat   the same candidate judged again and again, a fresh process each, while other cores compile
  kernel   a candidate's time beside a profiler's time of its kernels
  events   the mean of 100 CUDA-event times on the same programs, taken by tests/bench/plain.py

Each measurement is one line of JSON in OUT/timing.jsonl; tests/bench/timing_report.py makes the figures of
docs/measurements/timing.md from them. Needs a GPU; without one it says so and its status is 77.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from daemon import Daemon, DaemonError, running_daemon  # noqa: E402

SKIPPED = 77
VERDICT_LIMIT_S = 90.0
SIDE_BY_SIDE = 4

MODULE = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.rand({shape})]


def get_init_inputs():
    return []
"""

# Computes (1 - 0.99^STEPS) x, one multiply-add at a time: with few steps memory decides, with many the arithmetic.
KERNEL = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def decay_kernel(x_ptr, y_ptr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    # run {mark}{more}
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = x * 0.0
    for _ in range(STEPS):
        y = y * 0.99 + x * 0.01
    tl.store(y_ptr + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        decay_kernel[(triton.cdiv(n, 1024),)](x, y, n, STEPS={steps}, BLOCK=1024)
        return y
"""


@dataclass(frozen=True)
class Program:
    """A task, and for a kernel how many steps it takes; about `about_us` long on an H200."""

    name: str
    about_us: float
    shape: str
    forward: str
    init: str = "pass"
    steps: int = 0

    @property
    def reference(self) -> str:
        return MODULE.format(init=self.init, forward=self.forward, shape=self.shape)

    def candidate(self, mark: str, more: str = "") -> str:
        """The kernel, with bytes that no other submission has: no cache of any kind knows it. more: lines of it."""
        return KERNEL.format(steps=self.steps, mark=mark, more=more)


def kernel(name: str, about_us: float, shape: str, steps: int) -> Program:
    return Program(name, about_us, shape, f"x * (1.0 - 0.99**{steps})", steps=steps)


CONV = "nn.Conv2d(64, 64, 3, padding=1)"
TRANSPOSED = "nn.ConvTranspose2d(64, 32, 3, stride=2, padding=1)"
TASKS = (
    Program("relu_2048x2048", 12, "2048, 2048", "torch.relu(x)"),
    Program("relu_4096x2048", 20, "4096, 2048", "torch.relu(x)"),
    Program("sum_4096x4096", 25, "4096, 4096", "torch.sum(x, dim=1)"),
    Program("softmax_4096x4096", 40, "4096, 4096", "torch.softmax(x, dim=1)"),
    Program("gelu_8192x4096", 70, "8192, 4096", "F.gelu(x)"),
    Program("layer_norm_8192x4096", 80, "8192, 4096", "F.layer_norm(x, (4096,))"),
    Program("relu_16384x4096", 130, "16384, 4096", "torch.relu(x)"),
    Program("softmax_16384x4096", 150, "16384, 4096", "torch.softmax(x, dim=1)"),
    Program("gelu_16384x8192", 270, "16384, 8192", "F.gelu(x)"),
    Program("rms_norm_8192x4096", 300, "8192, 4096", "x / torch.sqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5)"),
    Program("matmul_2048", 400, "2048, 2048", "x @ x.t()"),
    Program("layer_norm_32768x8192", 550, "32768, 8192", "F.layer_norm(x, (8192,))"),
    Program("relu_32768x16384", 1050, "32768, 16384", "torch.relu(x)"),
    Program("matmul_3072", 1300, "3072, 3072", "x @ x.t()"),
    Program("conv_64x64x128x128", 2000, "64, 64, 128, 128", "self.layer(x)", f"self.layer = {CONV}"),
    Program("matmul_4096", 2800, "4096, 4096", "x @ x.t()"),
    Program("transposed_64x64x96x96", 3000, "64, 64, 96, 96", "self.layer(x)", f"self.layer = {TRANSPOSED}"),
    Program("matmul_5120", 5400, "5120, 5120", "x @ x.t()"),
    Program("matmul_6144", 9400, "6144, 6144", "x @ x.t()"),
    Program("matmul_8192", 21000, "8192, 8192", "x @ x.t()"),
)
KERNELS = (
    kernel("decay_2048x2048", 12, "2048, 2048", 4),
    kernel("decay_4096x4096", 40, "4096, 4096", 4),
    kernel("decay_8192x6144", 110, "8192, 6144", 4),
    kernel("decay_16384x8192", 270, "16384, 8192", 4),
    kernel("decay_32768x16384", 1050, "32768, 16384", 4),
    kernel("decay_16384x4096_1000", 2400, "16384, 4096", 1000),
    kernel("decay_16384x4096_4000", 9500, "16384, 4096", 4000),
)
REPEATED = ("decay_8192x6144", "decay_32768x16384")
QUICK_TASKS = 8


class Bench:
    """One run: where the time goes and the lines that it makes."""

    def __init__(self, daemon: Daemon, arguments: argparse.Namespace, python: str) -> None:
        self.daemon = daemon
        self.python = python
        self.repeats = int(arguments.repeats)
        self.deadline = time.monotonic() + float(arguments.limit_s)
        self.sources = arguments.out / "sources"
        self.sources.mkdir(parents=True, exist_ok=True)
        self.out = arguments.out / "timing.jsonl"
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def write(self, line: dict[str, Any]) -> None:
        with self._lock, self.out.open("a") as out:
            out.write(json.dumps(line) + "\n")

    def mark(self) -> str:
        return f"{os.getpid()}.{next(self._numbers)}"

    # --- the daemon's side ---

    def register(self, program: Program) -> str:
        body = {"name": f"bench_{program.name}", "reference": program.reference}
        return str(self.daemon.post("/v1/tasks", body, VERDICT_LIMIT_S)["id"])

    def judge(self, kind: str, program: Program, body: dict[str, Any]) -> dict[str, Any]:
        """One submission, its line written; what the daemon would not do is in the line, too."""
        line: dict[str, Any] = {"kind": kind, "name": program.name, "about_us": program.about_us}
        if self.left_s() < 5:
            line["error"] = "no time was left for it"
        else:
            try:
                verdict = self.daemon.judge(body, min(VERDICT_LIMIT_S, self.left_s()))
                line |= self.line_of(verdict)
            except DaemonError as error:
                line["error"] = str(error)[:500]
        self.write(line)
        shown = "-" if line.get("speedup") is None else f"{line['speedup']:.4f}"
        times = " ".join(f"{line.get(key) or 0:.4f}" for key in ("reference_ms", "candidate_ms"))
        told = f"{line.get('class')} {line.get('outcome')} {line.get('error') or line.get('why') or ''}"
        print(f"  {kind:<7} {program.name:<24} {times} ms  {shown}  {told}", flush=True)
        return line

    @staticmethod
    def line_of(verdict: dict[str, Any]) -> dict[str, Any]:
        timing = verdict.get("timing") or {}
        keys = (
            "outcome", "why", "stopped", "calls", "reference_ms", "candidate_ms", "speedup", "speedup_lo", "speedup_hi",
            "speedup_trimmed", "empty_ms", "events_reference_ms", "events_candidate_ms", "host_candidate_ms", "gpu",
            "reference_ns", "candidate_ns", "reference_slope_ms", "candidate_slope_ms", "host_reference_ms",
        )  # fmt: skip
        stages = {s["stage"]: float(s.get("run_ms") or 0) for s in verdict.get("stages") or []}
        said = None if verdict.get("class") == "ok" else (verdict.get("feedback") or {}).get("text")
        return {
            "class": verdict.get("class"), **{key: timing.get(key) for key in keys},
            "stage_ms": stages, **({"error": str(said)[:500]} if said else {}),
        }  # fmt: skip

    def judge_itself(self, program: Program) -> None:
        """The reference as its own candidate."""
        try:
            task = self.register(program)
        except DaemonError as error:
            self.write({"kind": "aa", "name": program.name, "about_us": program.about_us, "error": str(error)[:500]})
            print(f"  aa      {program.name:<24} refused: {str(error)[:200]}", flush=True)
            return
        source = f"{program.reference}# run {self.mark()}\n"
        self.judge("aa", program, self.body(task, source, entry_point="Model", policy={"name": "kernelbench"}))

    def judge_kernel(self, kind: str, program: Program, task: str, more: str = "") -> None:
        policy = {"name": "strict", "precision": "ieee", "variations": {"count": 1}}
        self.judge(kind, program, self.body(task, program.candidate(self.mark(), more), policy=policy))

    @staticmethod
    def body(task: str, source: str, **options: Any) -> dict[str, Any]:
        return {"task": task, "candidate": source, "client": "bench-timing", "cache": False, **options}

    @contextmanager
    def load(self, task: str, other_gpus: int) -> Iterator[None]:
        """Other candidates are compiled all the while, as many side by side as there are cores, and some are judged:
        two for each GPU beyond one, so that those have work."""
        stop = threading.Event()

        def one_after_another(until: str) -> int:
            done = 0
            while not stop.is_set() and self.left_s() > 0:
                body = self.body(task, KERNELS[0].candidate(self.mark()), until=until, priority="batch")
                try:
                    self.daemon.judge(body, VERDICT_LIMIT_S)
                    done += 1
                except DaemonError:
                    stop.wait(0.2)  # the queue is full: it is load that is wanted, not answers
            return done

        cores = os.cpu_count() or 4
        with ThreadPoolExecutor(cores + 2 * other_gpus) as pool:
            compiling = [pool.submit(one_after_another, "compile") for _ in range(cores)]
            judging = [pool.submit(one_after_another, "timing") for _ in range(2 * other_gpus)]
            started = time.monotonic()
            try:
                yield
            finally:
                stop.set()
                seconds = time.monotonic() - started
                compiled, judged = (sum(load.result() for load in loads) for loads in (compiling, judging))
        line = {"kind": "load", "compiled": compiled, "judged": judged, "other_gpus": other_gpus, "seconds": seconds}
        self.write(line)
        print(f"  load    {compiled} compiled, {judged} judged in {seconds:.1f} s beside it", flush=True)

    # --- the usual way ---

    def plain(self, jobs: Sequence[dict[str, Any]]) -> None:
        """Lines made by tests/bench/plain.py, each with the keys of its job under `job`."""
        limit_s = self.left_s()
        if limit_s < 5 or not jobs:
            for job in jobs:
                self.write({**job["line"], "error": "no time was left for it"})
            return
        asked = [{key: value for key, value in job.items() if key != "line"} for job in jobs]
        command = [self.python, str(ROOT / "tests/bench/plain.py")]
        try:
            done = subprocess.run(
                command, input=json.dumps(asked), capture_output=True, text=True, timeout=limit_s, check=False
            )
            text, errors = done.stdout, done.stderr
        except subprocess.TimeoutExpired as expired:
            text = (expired.stdout or b"").decode(errors="replace") if isinstance(expired.stdout, bytes) else ""
            errors = f"ended after {limit_s:.0f} s"
        answers = {answer["id"]: answer for answer in map(json.loads, filter(None, text.splitlines()))}
        for job in jobs:
            answer = answers.get(job["id"], {"error": errors.strip()[-300:] or "no answer"})
            self.write({**job["line"], **{key: value for key, value in answer.items() if key != "id"}})
            shown = json.dumps({key: value for key, value in answer.items() if key not in ("id", "kernels")})
            print(f"  {job['line']['kind']:<15} {job['line']['name']:<24} {shown}", flush=True)

    def job(self, kind: str, op: str, program: Program) -> dict[str, Any]:
        number = next(self._numbers)
        task = self.sources / f"task_{number}.py"
        task.write_text(program.reference)
        job = {"id": number, "op": op, "task": str(task), "entry": "Model"}
        if program.steps:
            candidate = self.sources / f"candidate_{number}.py"
            candidate.write_text(program.candidate(str(number)))
            job |= {"candidate": str(candidate), "entry": "ModelNew"}
        return {**job, "line": {"kind": kind, "name": program.name, "about_us": program.about_us}}

    # --- all of it ---

    def run(self, tasks: Sequence[Program], kernels: Sequence[Program], other_gpus: int) -> None:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            list(pool.map(self.judge_itself, tasks))
        ids = {program.name: self.register(program) for program in kernels}
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            list(pool.map(lambda program: self.judge_kernel("kernel", program, ids[program.name]), kernels))
        jobs = [self.job("kernel-profile", "profile", program) for program in kernels]
        jobs += [self.job("kernel-events", "events", program) for program in kernels]
        jobs += [self.job("aa-events", "events", program) for program in tasks]
        self.plain(jobs)
        repeated = [program for program in kernels if program.name in REPEATED]
        with self.load(ids[kernels[0].name], other_gpus):
            for program in [p for _ in range(self.repeats) for p in repeated]:
                self.judge_kernel("repeat", program, ids[program.name])
            self.plain([self.job("repeat-events", "events", p) for _ in range(self.repeats) for p in repeated])


def machine_line(daemon: Daemon) -> dict[str, Any]:
    status = daemon.get("/v1/status")
    gpus = [{key: gpu.get(key) for key in ("name", "driver")} for gpu in status.get("gpus") or []]
    date = time.strftime("%Y-%m-%d", time.gmtime())
    env = status.get("env") or {}
    return {"kind": "machine", "date": date, "gpus": gpus, "env": env, "cores": os.cpu_count()}


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how far the daemon's times can be believed.")
    parser.add_argument("--out", type=Path, default=ROOT / "build/timing", help="timing.jsonl goes there")
    parser.add_argument("--limit-s", type=float, default=290.0, help="all of it; what is left then is told, not run")
    parser.add_argument("--repeats", type=int, default=20, help="judgements of the same kernel")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TASKS} of the tasks and every other kernel")
    parser.add_argument("--flag", action="append", default=[], help="for verifierd")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> tuple[Sequence[Program], Sequence[Program]]:
    if not arguments.quick:
        return TASKS, KERNELS
    step = len(TASKS) / QUICK_TASKS
    return [TASKS[int(i * step)] for i in range(QUICK_TASKS)], KERNELS[::2]


def main() -> int:
    arguments = arguments_of()
    python = os.environ.get("PYTHON", sys.executable)
    programs = Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build")) / "bin"
    probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 77)"
    if subprocess.run([python, "-c", probe], check=False).returncode == SKIPPED:
        print("SKIP bench-timing: no GPU here; nothing was measured")
        return SKIPPED
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "timing.jsonl").unlink(missing_ok=True)
    with running_daemon(programs, python, *arguments.flag, log=arguments.out / "verifierd.log") as daemon:
        daemon.wait_until_ready()
        bench = Bench(daemon, arguments, python)
        machine = machine_line(daemon)
        bench.write(machine)
        started = time.monotonic()
        try:
            bench.run(*chosen(arguments), other_gpus=max(0, len(machine["gpus"]) - 1))
        except DaemonError as error:
            print(f"bench-timing: {error}\n{daemon.log_tail()}")
            return 1
        print(f"bench-timing: {time.monotonic() - started:.0f} s; lines in {bench.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
