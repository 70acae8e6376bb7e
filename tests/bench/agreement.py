"""How far times of plans can be believed, on one GPU: the bench of live timing (tests/bench/timing.py) for plans.

  aa       what a task's reference calls against itself, over twenty tasks from 10 us to 20 ms: the speed-up is 1. Both
           double a few numbers besides, in 2 us, the candidate by a kernel, since a plan has to have one
  kernel   a kernel's time beside what CUPTI records of it with a cold L2 cache (tests/bench/plain.py)
  repeat   a kernel judged again and again, each time in a fresh executor, by two daemons one after the other

Some tasks' references are held against CUPTI, too, and count for nothing: between their kernels eager mode has other
gaps than a graph.
Each measurement is a line of JSON in OUT/agreement.jsonl. Prints tables and a line for each target; status 1 where one
is missed. Needs a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).resolve().parent)]

import timing  # noqa: E402
from daemon import DaemonError, first_gpu, running_daemon  # noqa: E402
from target import Target  # noqa: E402
from timing import KERNELS, SIDE_BY_SIDE, Bench, Program, kernel, machine_line  # noqa: E402

Json = dict[str, Any]
SAME = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr):
    # run {mark}
    at = tl.arange(0, 256)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * 2.0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        y = {forward}
        z = torch.empty(256, device=x.device)
        double_kernel[(1,)](x, z)
        return y, z
"""
PRINTS = "\n    if n < 0:\n        tl.device_print('n', n)"
"""For a kernel after which its executor is ended; it never prints."""
MORE = (
    kernel("decay_4096x3072", 25, "4096, 3072", 4),
    kernel("decay_8192x4096", 65, "8192, 4096", 4),
    kernel("decay_2048x2048_250", 35, "2048, 2048", 250),
    kernel("decay_4096x4096_1000", 500, "4096, 4096", 1000),
)
TASKS = tuple(replace(task, forward=f"({task.forward}, x.flatten()[:256] * 2.0)") for task in timing.TASKS)
REPEATED = ("decay_4096x3072", "decay_8192x6144", "decay_16384x8192", "decay_4096x4096_1000", "decay_32768x16384",
            "decay_16384x4096_1000")  # fmt: skip
SPREAD = (("20 us to 1 ms", 0.02, 1.0, 1.0), ("above 1 ms", 1.0, 1e9, 0.3))
"""Name, milliseconds from and to, and the coefficient of variation that is wanted, in percent."""
BIAS = (("below 100 us", 0.0, 0.1, 1.0), ("above 100 us", 0.1, 1e9, 0.3))
AGREEMENT = 0.01
AGREEMENT_FROM_MS = 0.02


def measure(options: argparse.Namespace, python: str, lines: Path) -> None:
    programs = (*KERNELS, *MORE)
    repeated = [program for program in programs if program.name in REPEATED]
    deadline = time.monotonic() + options.limit_s
    for turn in range(options.daemons):
        log = options.out / f"daemon{turn}.log"
        with running_daemon(options.programs, python, "--device", first_gpu(), log=log) as daemon:
            daemon.wait_until_ready()
            bench = Bench(daemon, options, python)
            bench.out, bench.deadline = lines, deadline
            ids = {program.name: bench.register(program) for program in (repeated if turn else programs)}
            if turn == 0:
                bench.write(machine_line(daemon))
            if turn == 0 and options.rounds:
                once(bench, programs, ids, options.rounds)
            judge_kernels(bench, "repeat", repeated, ids, options.repeats // options.daemons, PRINTS)


def judge_kernels(
    bench: Bench, kind: str, programs: Sequence[Program], ids: Mapping[str, str], rounds: int, more: str = ""
) -> None:
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        list(pool.map(lambda one: bench.judge_kernel(kind, one, ids[one.name], more), [*programs] * rounds))


def once(bench: Bench, programs: Sequence[Program], ids: Mapping[str, str], rounds: int) -> None:
    """What one daemon is asked, and CUPTI beside it."""
    judge_kernels(bench, "kernel", programs, ids, rounds)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        list(pool.map(lambda program: judge_same(bench, program, rounds), range(len(TASKS))))
    jobs = [bench.job("kernel-profile", "profile", program) for program in programs]
    bench.plain(jobs + [bench.job("aa-profile", "profile", program) for program in TASKS[1:12:2]])


def judge_same(bench: Bench, index: int, rounds: int) -> None:
    """What the reference of a task calls, as a candidate."""
    task = bench.register(TASKS[index])
    policy = {"name": "hybrid", "foreign": "any", "precision": "ieee", "variations": {"count": 1}}
    for _ in range(rounds):
        same = timing.TASKS[index]
        source = SAME.format(init=same.init, forward=same.forward, mark=bench.mark())
        bench.judge("aa", TASKS[index], bench.body(task, source, policy=policy))


# --- what is printed ---


def of(lines: Sequence[Json], kind: str) -> dict[str, list[Json]]:
    """The measured lines of a kind, by program, the shortest first."""
    found: dict[str, list[Json]] = {}
    for line in sorted(lines, key=lambda line: float(line.get("about_us") or 0)):
        if line["kind"] == kind and line.get("outcome") == "measured":
            found.setdefault(line["name"], []).append(line)
    return found


def median(lines: Iterable[Json], key: str) -> float:
    return statistics.median(line[key] for line in lines)


def variation(values: Sequence[float]) -> float:
    """In percent."""
    return 100 * statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


def agreement(lines: Sequence[Json]) -> Iterable[str | Target]:
    profiles = {(line["kind"], line["name"]): line for line in lines if line.get("kernel_ms")}
    within = among = 0
    yield f"{'':24}{'ours, us':>10}{'CUPTI':>10}{'span':>10}{'off, us':>9}{'off, %':>8}"
    for kind, key in (("kernel", "candidate_ms"), ("aa", "reference_ms"), ("aa", "candidate_ms")):
        for name, judged in of(lines, kind).items():
            profile = profiles.get((f"{kind}-profile", name))
            if profile is None:
                continue
            ours, kernels, span = median(judged, key), profile["kernel_ms"], profile["span_ms"]
            off = ours / kernels - 1
            if ours >= AGREEMENT_FROM_MS and len(profile["kernels"]) == 1:
                among, within = among + 1, within + (abs(off) <= AGREEMENT)
            who = name if kind == "kernel" else f"{name}, {key[:3]}"
            figures = f"{1e3 * ours:10.2f}{1e3 * kernels:10.2f}{1e3 * span:10.2f}{1e3 * (ours - kernels):9.2f}"
            yield f"{who:24}{figures}{100 * off:8.2f}"
    yield Target(
        "within 1 % of CUPTI, of kernels above 20 us", 100 * within / max(1, among), 100, f"% of {among}", True
    )


def repeatability(lines: Sequence[Json]) -> Iterable[str | Target]:
    repeats = of(lines, "repeat")
    yield f"{'':24}{'us':>10}{'n':>5}{'cv of speed-up, %':>19}{'of time, %':>12}{'overlap':>9}"
    spreads: list[tuple[float, float]] = []
    overlapping = pairs = 0
    for name, judged in repeats.items():
        ms, cv = median(judged, "candidate_ms"), variation([line["speedup"] for line in judged])
        spreads.append((ms, cv))
        intervals = [(line["speedup_lo"], line["speedup_hi"]) for line in judged]
        both = [a[0] <= b[1] and b[0] <= a[1] for a, b in itertools.combinations(intervals, 2)]
        overlapping, pairs = overlapping + sum(both), pairs + len(both)
        of_time = variation([line["candidate_ms"] for line in judged])
        yield f"{name:24}{1e3 * ms:10.2f}{len(judged):5}{cv:19.2f}{of_time:12.2f}{sum(both):5}/{len(both)}"
    for what, lo, hi, wanted in SPREAD:
        here = [cv for ms, cv in spreads if lo <= ms < hi]
        yield Target(f"coefficient of variation, {what}, worst", max(here, default=float("inf")), wanted, "%", False)
    yield Target("intervals of two judgements overlap", 100 * overlapping / max(1, pairs), 95, f"% of {pairs}", True)


def bias(lines: Sequence[Json]) -> Iterable[str | Target]:
    yield f"{'':24}{'us':>10}{'speed-ups':>11}"
    found: list[tuple[float, float]] = []
    for name, judged in of(lines, "aa").items():
        ms = median(judged, "reference_ms")
        found += [(ms, 100 * abs(line["speedup"] - 1)) for line in judged]
        yield f"{name:24}{1e3 * ms:10.2f}   " + " ".join(f"{line['speedup']:.4f}" for line in judged)
    for what, lo, hi, wanted in BIAS:
        here = [off for ms, off in found if lo <= ms < hi]
        mean, worst = (statistics.fmean(here), max(here)) if here else (float("inf"), float("inf"))
        yield f"{what}, worst: {worst:.2f} % off"
        yield Target(f"A/A, {what}, mean distance from 1", mean, wanted, "%", False)


def report(lines: Sequence[Json]) -> bool:
    """Print all of it; whether every target is met."""
    said = [part for make in (agreement, repeatability, bias) for part in ["", *make(lines)]]
    targets = [part for part in said if isinstance(part, Target)]
    print("\n".join(part for part in said if isinstance(part, str)))
    unjudged = [line for line in lines if line.get("error") or line.get("outcome", "measured") != "measured"]
    for line in unjudged:
        print(f"not measured: {line['kind']} {line['name']}: {line.get('error') or line.get('why') or line['outcome']}")
    print("\n".join(target.line() for target in targets))
    return all(target.is_met() for target in targets) and not unjudged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build/agreement"))
    parser.add_argument("--limit-s", type=float, default=290.0, help="all of it; what is left then is told, not run")
    parser.add_argument("--repeats", type=int, default=20, help="judgements of a kernel in fresh executors")
    parser.add_argument("--daemons", type=int, default=2, help="by which these are judged, one after another")
    parser.add_argument("--rounds", type=int, default=2, help="of tasks and profiled kernels; 0: neither")
    parser.add_argument("--report", type=Path, help="only print what these lines come to")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lines = options.report or options.out / "agreement.jsonl"
    if options.report is None:
        lines.unlink(missing_ok=True)
        try:
            measure(options, os.environ.get("PYTHON", sys.executable), lines)
        except DaemonError as error:
            print(f"agreement: {error}")
    return 0 if report([json.loads(line) for line in lines.read_text().splitlines()]) else 1


if __name__ == "__main__":
    sys.exit(main())
