"""make bench-clock_modes: what a part of the clock's protocol does to what it measures, mode by mode, on one GPU.

Each program is timed by a referee of its own, without a daemon: a reference against itself, or a kernel against its
reference, in every mode in turn, again and again until the time is over. Told for each program and mode, medians over
its runs: milliseconds of both sides, how far the candidate's are from a profiler's time of the same kernel
(tests/bench/plain.py), the speed-up and its spread from run to run, the scatter of a pair's ratio, c and its scatter,
and the speed-up that c of each block alone, not of all of them, would give. Every run is a line of JSON in
OUT/clock_modes.jsonl, raw samples included. It judges nothing. Needs a GPU; without one it says so, with status 77.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/unit"), str(ROOT / "tests"), str(ROOT / "tests/bench")]

import timing  # noqa: E402
from daemon import first_gpu  # noqa: E402
from rig import Rig, policy  # noqa: E402

SKIPPED = 77
MODES: dict[str, dict[str, bool]] = {
    "launch counted": {"hides_launch": False},
    "launch hidden": {"pauses_empty": False},
    "empty paused": {},
}
"""Changes of clock.Protocol."""

PRELUDE = """
import json, pathlib, referee
from oracle import clock
def timing(self, job):
    changes = json.loads(pathlib.Path({path!r}).read_text())
    timer = clock.Timer(job, self._gpu, clock.Protocol(**changes))
    report = timer.run()
    blocks = [(block.ours_ns, block.theirs_ns, block.empty_ns) for block in timer._blocks]
    if report.detail is not None:
        report.detail["raw"] = {{"blocks": blocks, "void": len(timer._void)}}
    return report
referee.Referee._timing = timing
"""


@dataclass(frozen=True)
class Pair:
    """A reference, and what is timed beside it."""

    name: str
    reference: str
    candidate: str
    is_copy: bool


def copy_of(program: timing.Program) -> Pair:
    return Pair(f"{program.name}, a copy", program.reference, program.reference.replace("Model(", "ModelNew("), True)


def kernel_of(program: timing.Program) -> Pair:
    return Pair(program.name, program.reference, program.candidate("0"), False)


def shipped(name: str) -> Pair:
    candidate = (ROOT / "tests/candidates" / name / "honest.py").read_text()
    return Pair(name, (ROOT / f"tests/tasks/{name}.py").read_text(), candidate, False)


COPIES = ("relu_2048x2048", "softmax_16384x4096", "relu_32768x16384", "matmul_4096")
KERNELS = ("decay_8192x6144", "decay_32768x16384", "decay_16384x4096_1000", "decay_16384x4096_4000")


def pairs() -> list[Pair]:
    tasks = {program.name: program for program in (*timing.TASKS, *timing.KERNELS)}
    large = [shipped("relu_4096x393216"), shipped("gemm_scale_leaky_relu")]
    return [*(kernel_of(tasks[name]) for name in KERNELS), *large, *(copy_of(tasks[name]) for name in COPIES)]


def kernel_ms(chosen: Sequence[Pair], place: Path) -> dict[str, float]:
    """A profiler's time of the candidate's kernels, by pair; copies left out."""
    jobs = []
    for index, pair in enumerate(chosen):
        task, candidate = place / f"task{index}.py", place / f"candidate{index}.py"
        task.write_text(pair.reference)
        candidate.write_text(pair.candidate)
        if not pair.is_copy:
            jobs.append({"id": pair.name, "op": "profile", "task": str(task), "candidate": str(candidate)})
    command = [sys.executable, str(ROOT / "tests/bench/plain.py")]
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, timeout=180, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["id"]: float(line["kernel_ms"]) for line in lines if "kernel_ms" in line}


class Bench:
    """One referee, whose protocol is changed by a file."""

    def __init__(self, rig: Rig, protocol: Path) -> None:
        self._rig = rig
        self._protocol = protocol
        self._tasks: dict[str, tuple[str, dict[str, Any]]] = {}

    def time(self, pair: Pair, mode: str) -> dict[str, Any]:
        """The detail of the timing stage, or {"error": …}."""
        if pair.reference not in self._tasks:
            child = self._rig.child()
            self._tasks[pair.reference] = child, self._rig.register(child, pair.reference)
        self._protocol.write_text(json.dumps(MODES[mode]))
        rules = policy("kernelbench", variations={"count": 1})
        child, spec = self._tasks[pair.reference]
        stages = ("tiny", "full", "timing")
        found = self._rig.judge(child, spec, pair.reference, pair.candidate, stages=stages, rules=rules)
        last = list(found.values())[-1]
        detail: dict[str, Any] = last.get("detail") or {}
        if detail.get("candidate_ns"):
            return detail
        del self._tasks[pair.reference]  # its child may have made room for another's
        return {"error": str(last.get("error") or detail.get("why"))[:300]}


def speed_by_block(detail: dict[str, Any]) -> float:
    """The paired speed-up where c is the median of each block's own empty bells."""
    ratios = []
    for ours, theirs, empty in detail["raw"]["blocks"]:
        c = statistics.median(empty)
        ratios += [math.log(max(1, a - c) / max(1, b - c)) for a, b in zip(ours, theirs, strict=True)]
    return math.exp(statistics.median(ratios))


def figures(runs: Sequence[dict[str, Any]], profiled_ms: float | None) -> str:
    def middle(values: Sequence[float]) -> float:
        return statistics.median(values)

    logs = [[math.log(a / b) for a, b in zip(run["reference_ns"], run["candidate_ns"], strict=True)] for run in runs]
    speeds = [math.exp(middle(log)) for log in logs]
    candidate = middle([middle(run["candidate_ns"]) for run in runs]) / 1e6
    empties = [[ns for _, _, empty in run["raw"]["blocks"] for ns in empty] for run in runs]
    off = "-" if profiled_ms is None else f"{100 * (candidate / profiled_ms - 1):+.2f} %"
    cells = (
        f"{middle([middle(run['reference_ns']) for run in runs]) / 1e6:.4f}",
        f"{candidate:.4f}",
        off,
        f"{middle(speeds):.4f}",
        f"{100 * statistics.pstdev(speeds) / middle(speeds):.2f} %",
        f"{100 * middle([statistics.pstdev(log) for log in logs]):.2f} %",
        f"{middle([middle(e) for e in empties]) / 1e3:.0f}",
        f"{middle([statistics.pstdev(e) for e in empties]) / 1e3:.0f}",
        f"{middle([speed_by_block(run) for run in runs]):.4f}",
        f"{sum(run['raw']['void'] for run in runs)}",
        f"{middle([len(run['candidate_ns']) for run in runs]):.0f} x {runs[0]['calls']}",
    )
    return "".join(f"{cell:>12}" for cell in cells)


HEADINGS = (
    "ref, ms", "cand, ms", "off kernel", "speed-up", "of runs", "of pairs", "c, us", "of c, us", "c by block",
    "void", "bells",
)  # fmt: skip


def run(chosen: Sequence[Pair], out: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    kept: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="verifierd-clock-") as name, (out / "clock_modes.jsonl").open("w") as lines:
        place = Path(name)
        profiled = kernel_ms(chosen, place)
        (place / "rig").mkdir()
        with Rig(place / "rig", device=first_gpu(), prelude=PRELUDE.format(path=str(place / "protocol"))) as rig:
            bench = Bench(rig, place / "protocol")
            turns = [(pair, mode) for _ in range(100) for pair in chosen for mode in MODES]
            for pair, mode in turns:
                if time.monotonic() > deadline:
                    break
                detail = bench.time(pair, mode)
                lines.write(json.dumps({"name": pair.name, "mode": mode, **detail}) + "\n")
                if "error" in detail:
                    print(f"  {pair.name} ({mode}): {detail['error']}", flush=True)
                else:
                    kept.setdefault((pair.name, mode), []).append(detail)
    print(f"{'':<39}runs" + "".join(f"{heading:>12}" for heading in HEADINGS))
    for pair in chosen:
        for mode in MODES:
            runs = kept.get((pair.name, mode))
            if runs:
                told = figures(runs, profiled.get(pair.name))
                print(f"{pair.name:<24}{mode:<15}{len(runs):>4}{told}")


def main() -> int:
    parser = argparse.ArgumentParser(description="What a part of the clock's protocol does to what it measures.")
    parser.add_argument("--limit-s", type=float, default=240.0, help="no run is begun after (default 240)")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build/clock_modes"))
    parser.add_argument("--only", default="", help="pairs whose names hold this")
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("clock_modes: no GPU on this machine: nothing was measured")
        return SKIPPED
    arguments.out.mkdir(parents=True, exist_ok=True)
    run([pair for pair in pairs() if arguments.only in pair.name], arguments.out, arguments.limit_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
