"""make bench-speed: from POST to verdict, beside the same evaluation done the usual way, in one run.

The usual way is tests/bench/baseline.py: a process of its own for each candidate. The daemon is warm
(started, the task registered, one other candidate judged), its compile cache cold: each candidate's kernel
has a comment that no other has. Needs a GPU; without one it says so and its status is 77.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import corpus  # noqa: E402
from daemon import Daemon, DaemonError, running_daemon  # noqa: E402

SKIPPED = 77
BASELINE_LIMIT_S = 300.0
VERDICT_LIMIT_S = 180.0


@dataclass(frozen=True)
class Case:
    """A candidate, and how many times faster the daemon has to be."""

    label: str
    wanted: float


CASES = (
    Case("gemm_scale_leaky_relu/honest", 4.0),
    Case("relu_4096x393216/honest", 20.0),
    Case("rms_norm_4096x393216/honest", 20.0),
)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    label: str
    baseline_s: float
    daemon_s: list[float]
    wanted: float
    baseline_speedup: float
    outcome: str
    speedup: float | None

    @property
    def ratio(self) -> float:
        return self.baseline_s / statistics.median(self.daemon_s)

    @property
    def is_enough(self) -> bool:
        return self.ratio >= self.wanted and self.outcome == "measured"


def fresh(source: str, number: int) -> str:
    """The same program with other bytes, inside its first kernel, so that no cache of any kind knows it."""
    found = re.search(r"@triton\.jit\ndef .*?\):\n", source, re.DOTALL)
    if found is None:
        raise SystemExit("speed: no @triton.jit function in the candidate")
    return f"{source[: found.end()]}    # run {os.getpid()}.{number}\n{source[found.end() :]}"


def run_baseline(task: corpus.Task, candidate: corpus.Candidate, python: str) -> tuple[float, float]:
    """Seconds of the whole process, and the speedup that it found."""
    command = [python, str(ROOT / "tests/bench/baseline.py"), str(task.path), str(candidate.path)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=BASELINE_LIMIT_S, check=False)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(f"speed: {candidate.label}: the baseline failed: {done.stderr.strip()[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    if not result["correct"]:
        raise SystemExit(f"speed: {candidate.label}: the baseline finds it wrong")
    print(f"  usual way  {candidate.label:<36} {seconds:7.2f} s  {json.dumps(result['phases_s'])}", flush=True)
    return seconds, float(result["speedup"])


def run_daemon(
    daemon: Daemon, task: corpus.Task, candidate: corpus.Candidate, rounds: int
) -> tuple[list[float], dict[str, object]]:
    """Seconds from POST to verdict of each round after one that warms up, and the last verdict's timing."""
    task_id = str(daemon.post("/v1/tasks", task.registration(), VERDICT_LIMIT_S)["id"])
    times = []
    timing: dict[str, object] = {}
    for number in range(rounds + 1):
        body = candidate.body(task_id) | {"candidate": fresh(candidate.text, number), "cache": False}
        started = time.monotonic()
        verdict = daemon.judge(body, VERDICT_LIMIT_S)
        seconds = time.monotonic() - started
        stages = " ".join(f"{s['stage']} {s['wait_ms']:.0f}+{s['run_ms']:.0f}" for s in verdict["stages"])
        print(
            f"  daemon     {candidate.label:<36} {seconds:7.2f} s  {verdict['class']}, ms: {stages}",
            flush=True,
        )
        if verdict["class"] != "ok":
            raise SystemExit(f"speed: {candidate.label}: {verdict['class']}: {verdict['feedback']['text']}")
        timing = {**(verdict.get("timing") or {}), "speedup": verdict["components"].get("speedup")}
        if number:
            times.append(seconds)
    return times, timing


def measure(daemon: Daemon, case: Case, baseline: tuple[float, float], rounds: int) -> Row:
    task, candidate = _find(case)
    times, timing = run_daemon(daemon, task, candidate, rounds)
    speedup = timing.get("speedup")
    return Row(
        case.label, baseline[0], times, case.wanted, baseline[1],
        str(timing.get("outcome")), float(str(speedup)) if speedup is not None else None,
    )  # fmt: skip


def _find(case: Case) -> tuple[corpus.Task, corpus.Candidate]:
    task, _, name = case.label.partition("/")
    return (
        corpus.load_task(corpus.HERE / "tasks" / f"{task}.py"),
        corpus.load_candidate(corpus.HERE / "candidates" / task / f"{name}.py"),
    )


def table(rows: list[Row], machine: str) -> str:
    lines = [f"Machine: {machine}", ""]
    lines += [
        "| candidate | usual way, s | daemon, s (median; all) | times faster | wanted | speedup: usual way | daemon |",
        "|" + " --- |" * 7,
    ]
    for r in rows:
        median, every = statistics.median(r.daemon_s), ", ".join(f"{t:.2f}" for t in r.daemon_s)
        speedup = "-" if r.speedup is None else f"{r.speedup:.2f}"
        lines.append(
            f"| {r.label} | {r.baseline_s:.1f} | {median:.2f} ({every}) | {r.ratio:.1f} |"
            f" {r.wanted:.0f} | {r.baseline_speedup:.2f} | {speedup} ({r.outcome}) |"
        )
    return "\n".join(lines)


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the daemon with an ordinary evaluation.")
    parser.add_argument("--only", default="", help="candidates, separated by commas")
    parser.add_argument("--rounds", type=int, default=3, help="verdicts of the daemon for each candidate")
    parser.add_argument("--out", type=Path, help="write the table there as well")
    return parser.parse_args()


def main() -> int:
    arguments = arguments_of()
    python = os.environ.get("PYTHON", sys.executable)
    programs = Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build")) / "bin"
    seen = subprocess.run(
        [python, "-c", "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 77)"], check=False
    )
    if seen.returncode == SKIPPED:
        print("SKIP speed: no GPU here; nothing was measured")
        return SKIPPED
    cases = [c for c in CASES if not arguments.only or c.label in arguments.only.split(",")]
    # Before the daemon starts: neither may disturb the other's clock.
    baselines = [run_baseline(*_find(case), python) for case in cases]
    with running_daemon(programs, python) as daemon:
        daemon.wait_until_ready()
        gpus = daemon.get("/v1/status").get("gpus") or []
        try:
            rows = [measure(daemon, c, b, arguments.rounds) for c, b in zip(cases, baselines, strict=True)]
        except DaemonError as error:
            print(f"speed: {error}\n{daemon.log_tail()}")
            return 1
    text = table(rows, ", ".join(str(g.get("name")) for g in gpus) or "the daemon sees no GPU")
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    print(f"\n{text}\n")
    slow = [r.label for r in rows if not r.is_enough]
    print(
        ", ".join(f"{r.label.partition('/')[0]} {r.ratio:.1f}x" for r in rows) + (f"; too slow: {slow}" if slow else "")
    )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
