"""make kernelbench DIR=checkout: is every problem of KernelBench accepted as it is?

Registers each problem of levels 1 to 3 from its unchanged file, then judges its reference as its own
candidate under the `kernelbench` policy; with --copied behind a kernel that copies its answer, under `strict` with
`foreign: any`. Prints what was refused and why, and a table by level. Each result is kept on disk as it comes, and
--go-on leaves out what is there. The checkout is only read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from daemon import Daemon, DaemonError, running_daemon  # noqa: E402

ACCEPTED, REFUSED, FAILED, NOT_RUN = "accepted", "refused", "failed", "not run"
COPIED = """

import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


class ModelNew(Model):
    def forward(self, *inputs):
        x = super().forward(*inputs).contiguous()
        y = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
"""Stands after a problem's source."""


class BenchError(Exception):
    """Something that ends the run; the text is for people."""


@dataclass(frozen=True)
class Problem:
    """One file of the checkout."""

    level: int
    number: int
    path: Path

    @property
    def label(self) -> str:
        return f"L{self.level}/{self.number} {self.path.stem.partition('_')[2]}"


@dataclass(frozen=True)
class Result:
    """What became of one problem."""

    level: int
    number: int
    name: str
    outcome: str
    passed_stage: str | None
    reason: str
    register_s: float
    judge_s: float
    detail: Any = None
    """Of one that failed: what the verdict says of the comparison."""


def find_problems(checkout: Path, levels: Iterable[int]) -> list[Problem]:
    """The problems of these levels; the checkout may be the repository or its KernelBench folder."""
    base = next((d for d in (checkout / "KernelBench", checkout) if (d / "level1").is_dir()), None)
    if base is None:
        raise BenchError(f"{checkout}: no KernelBench/level1 there")
    found = []
    for level in levels:
        for path in (base / f"level{level}").glob("*.py"):
            number = path.name.partition("_")[0]
            if number.isdigit():
                found.append(Problem(level, int(number), path))
    if not found:
        raise BenchError(f"{base}: no problems of levels {', '.join(map(str, levels))}")
    return sorted(found, key=lambda p: (p.level, p.number))


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def why_refused(error: DaemonError) -> str:
    """The last line of the reference's own traceback, where the daemon sent one."""
    text = str(error)
    try:
        problem = json.loads(text[text.index("{") :])
    except ValueError:
        return last_line(text)[:300]
    said = problem.get("traceback") or problem.get("detail") or problem.get("title") or text
    return last_line(str(said))[:300]


class Run:
    """Judges problems side by side, and keeps the results on disk as they come."""

    def __init__(self, daemon: Daemon, arguments: argparse.Namespace) -> None:
        self.daemon = daemon
        self.until = str(arguments.until)
        self.copied = bool(arguments.copied)
        self.limit_s = float(arguments.task_limit_s)
        self.deadline = time.monotonic() + float(arguments.limit_s)
        self.out = arguments.out / "kernelbench.jsonl"
        self._lock = threading.Lock()

    def judge(self, problem: Problem) -> Result:
        left_s = self.deadline - time.monotonic()
        if left_s < 10:
            result = self._result(problem, NOT_RUN, None, "no time was left for it", 0.0, 0.0)
        else:
            result = self._judge(problem, min(self.limit_s, left_s))
        with self._lock:
            with self.out.open("a") as out:
                out.write(json.dumps(asdict(result)) + "\n")
            mark = {ACCEPTED: "ok", NOT_RUN: "--"}.get(result.outcome, result.outcome.upper())
            times = f"{result.register_s:6.1f} s {result.judge_s:6.1f} s"
            print(f"{mark:<8} {problem.label:<60} {times}  {result.reason}", flush=True)
        return result

    def _judge(self, problem: Problem, limit_s: float) -> Result:
        source = problem.path.read_text()
        started = time.monotonic()
        body = {
            "name": f"kernelbench_{problem.level}_{problem.path.stem}",
            "reference": source,
            "level": problem.level,
        }
        try:
            task = self.daemon.post("/v1/tasks", body, limit_s)["id"]
        except DaemonError as error:
            return self._result(problem, REFUSED, None, why_refused(error), time.monotonic() - started, 0.0)
        registered = time.monotonic()
        submission = {"task": task, "candidate": source, "entry_point": "Model", "policy": "kernelbench"}
        if self.copied:
            submission |= {"candidate": source + COPIED, "entry_point": "ModelNew"}
            submission["policy"] = {"name": "strict", "foreign": "any"}
        submission["cache"] = False
        if self.until != "timing":
            submission["until"] = self.until
        try:
            verdict = self.daemon.judge(submission, limit_s)
        except DaemonError as error:
            verdict = {"class": "infra", "feedback": {"text": str(error)}}
        times = registered - started, time.monotonic() - registered
        passed = verdict.get("passed_stage")
        if verdict.get("class") == "ok":
            return self._result(problem, ACCEPTED, passed, self._note(verdict), *times)
        text = str((verdict.get("feedback") or {}).get("text", ""))
        reason = f"{verdict.get('class')} at {verdict.get('failed_at')}: {' '.join(text.split())[:300]}"
        return self._result(problem, FAILED, passed, reason, *times, verdict.get("correctness"))

    @staticmethod
    def _note(verdict: dict[str, Any]) -> str:
        note = f"passed {verdict.get('passed_stage')}"
        if (verdict.get("timing") or {}).get("outcome") == "measured":
            note += f", against itself {float(verdict['components']['speedup']):.3f}"
        return note

    @staticmethod
    def _result(
        problem: Problem, outcome: str, passed: str | None, reason: str, register_s: float, judge_s: float,
        detail: Any = None,
    ) -> Result:  # fmt: skip
        return Result(
            problem.level, problem.number, problem.path.stem, outcome, passed, reason,
            round(register_s, 2), round(judge_s, 2), detail,
        )  # fmt: skip


def table(results: list[Result], machine: str) -> str:
    """By level, then each problem that was not accepted."""
    rows = [f"Machine: {machine}", ""]
    rows += [
        "| level | problems | accepted | share | refused | failed | not run | passed full |",
        "|" + " --- |" * 8,
    ]
    for level in sorted({r.level for r in results}):
        rows.append(_level_row(f"{level}", [r for r in results if r.level == level]))
    rows.append(_level_row("all", results))
    rest = [r for r in results if r.outcome != ACCEPTED]
    if rest:
        rows += ["", "| problem | outcome | why |", "| --- | --- | --- |"]
        rows += [f"| {r.level}/{r.name} | {r.outcome} | {r.reason.replace('|', '/')} |" for r in rest]
    return "\n".join(rows)


def _level_row(name: str, results: list[Result]) -> str:
    count = {o: sum(r.outcome == o for r in results) for o in (ACCEPTED, REFUSED, FAILED, NOT_RUN)}
    full = sum(r.outcome == ACCEPTED and r.passed_stage in ("full", "timing") for r in results)
    share = f"{100 * count[ACCEPTED] / len(results):.1f}%"
    return (
        f"| {name} | {len(results)} | {count[ACCEPTED]} | {share} | {count[REFUSED]} | {count[FAILED]} |"
        f" {count[NOT_RUN]} | {full} |"
    )


def machine_of(daemon: Daemon) -> str:
    status = daemon.get("/v1/status")
    gpus = ", ".join(str(g.get("name")) for g in status.get("gpus") or []) or "no GPU (interpreter)"
    env = status.get("env") or {}
    return f"{gpus}; torch {env.get('torch')}, triton {env.get('triton')}; {os.cpu_count()} cores"


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Judge KernelBench's references as their own candidates.")
    parser.add_argument("checkout", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--only", default="", help="problems such as 1/19,2/3, in this order")
    parser.add_argument("--go-on", action="store_true", help="keep what lies in --out, and judge the others")
    parser.add_argument("--until", default="full", choices=("tiny", "full", "timing"))
    parser.add_argument("--copied", action="store_true", help="under strict, behind a kernel that copies the answer")
    parser.add_argument("--side-by-side", type=int, default=4, help="problems in flight")
    parser.add_argument("--task-limit-s", type=float, default=300.0, help="for registration, and again for judging")
    parser.add_argument("--limit-s", type=float, default=86400.0, help="all of it; what is left then is not run")
    parser.add_argument("--minimum", type=float, default=0.0, help="fail below this share accepted of levels 1 and 2")
    parser.add_argument("--out", type=Path, default=ROOT / "build/kernelbench", help="results go here")
    parser.add_argument("--flag", action="append", default=[], help="for verifierd, such as --flag=--device=cpu")
    arguments = parser.parse_args()
    if not all(level.isdigit() for level in arguments.levels.split(",")):
        parser.error(f"--levels: {arguments.levels!r} is no list of numbers")
    return arguments


def kept_results(path: Path, go_on: bool) -> list[Result]:
    """What an earlier run left there, less what it had no time for; the file has these alone afterwards."""
    results = [Result(**json.loads(line)) for line in path.read_text().splitlines()] if go_on and path.exists() else []
    results = [r for r in results if r.outcome != NOT_RUN]
    path.write_text("".join(json.dumps(asdict(r)) + "\n" for r in results))
    return results


def share_of_first_levels(results: list[Result]) -> float:
    first = [r for r in results if r.level in (1, 2)]
    return sum(r.outcome == ACCEPTED for r in first) / len(first) if first else 1.0


def main() -> int:
    arguments = arguments_of()
    try:
        problems = find_problems(arguments.checkout, [int(level) for level in arguments.levels.split(",")])
    except BenchError as error:
        print(f"kernelbench: {error}", file=sys.stderr)
        return 2
    if arguments.only:
        known = {f"{p.level}/{p.number}": p for p in problems}
        problems = [known[name] for name in arguments.only.split(",")]
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = kept_results(arguments.out / "kernelbench.jsonl", arguments.go_on)
    done = {(r.level, r.number) for r in kept}
    problems = [p for p in problems if (p.level, p.number) not in done]
    programs = Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build")) / "bin"
    python = os.environ.get("PYTHON", sys.executable)
    with running_daemon(programs, python, *arguments.flag, log=arguments.out / "verifierd.log") as daemon:
        daemon.wait_until_ready()
        machine = machine_of(daemon)
        run = Run(daemon, arguments)
        with ThreadPoolExecutor(arguments.side_by_side) as pool:
            results = [*kept, *pool.map(run.judge, problems)]
    results.sort(key=lambda r: (r.level, r.number))
    text = table(results, machine)
    (arguments.out / "kernelbench.md").write_text(text + "\n")
    print(f"\n{text}")
    share = share_of_first_levels(results)
    print(f"\nlevels 1 and 2: {100 * share:.1f}% accepted")
    return 1 if share < arguments.minimum else 0


if __name__ == "__main__":
    sys.exit(main())
