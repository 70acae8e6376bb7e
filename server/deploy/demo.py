"""make demo: start the daemon, have it judge real candidates, print what came out, keep the dashboard up.

DEMO_EXIT=1 stops after the table; the status is 0 only if every candidate got its expected class.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from corpus import Candidate, CorpusError, Task, load_candidate, load_task  # noqa: E402
from daemon import Daemon, DaemonError, running_daemon  # noqa: E402

SUBMIT_LIMIT_S = 300
SIDE_BY_SIDE = 4

# Candidates of tests/candidates, best first, the slowest last; what each is expected to get stands in its own header.
SHOWN = (
    "softmax/honest.py",
    "linear_relu/honest_autotuned.py",
    "softmax/padding_counts.py",
    "relu/last_block_missing.py",
    "relu/clobbers_input.py",
    "relu/remembers_the_answer.py",
    "copy/returns_its_input.py",
    "relu/torch_in_kernel.py",
    "relu/no_kernel.py",
    "relu/syntax_error.py",
    "relu/segfault.py",
    "relu/endless_kernel.py",
)


class DemoError(Exception):
    """Something that ends the demo; the text is for people."""


def verifier(programs: Path, daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(programs / "verifier"), "--url", daemon.url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SUBMIT_LIMIT_S + 30, check=False)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def task_arguments(task: Task, path: str) -> list[str]:
    arguments = ["task", "add", path, "--name", task.name]
    if task.entry_point != "Model":
        arguments += ["--entry-point", task.entry_point]
    if task.is_dynamic:
        arguments.append("--dynamic-shapes")
    return arguments


def register(programs: Path, daemon: Daemon, task: Task) -> None:
    done = verifier(programs, daemon, *task_arguments(task, str(task.path)))
    if done.returncode != 0:
        raise DemoError(f"verifier task add {relative(task.path)}: {done.stderr.strip() or done.stdout.strip()}")


def submit_arguments(candidate: Candidate, path: str) -> list[str]:
    arguments = ["submit", path, "--task", candidate.task, "--policy", candidate.policy]
    if candidate.entry_point is not None:
        arguments += ["--entry-point", candidate.entry_point]
    if candidate.is_completion:
        arguments.append("--completion")
    return [*arguments, f"--wait={SUBMIT_LIMIT_S}"]


def judge(programs: Path, daemon: Daemon, candidate: Candidate) -> dict[str, Any]:
    """Submit and wait. Status 1 only says that the candidate failed: the verdict is there all the same."""
    done = verifier(programs, daemon, *submit_arguments(candidate, str(candidate.path)), "--json")
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip() or done.stdout.strip()
        raise DemoError(f"verifier submit {relative(candidate.path)}: status {done.returncode}: {said}") from None
    if not isinstance(verdict, dict) or verdict.get("state") != "done":
        raise DemoError(f"{relative(candidate.path)}: no verdict within {SUBMIT_LIMIT_S} s: {verdict}")
    return verdict


def run_ms(verdict: dict[str, Any]) -> float:
    return sum(float(stage.get("run_ms") or 0) for stage in verdict.get("stages", []))


def print_row(candidate: Candidate, verdict: dict[str, Any], width: int) -> bool:
    """One candidate's line with what the daemon says of it below. True: it got the expected class."""
    got = str(verdict.get("class"))
    as_expected = got in candidate.classes
    reward = verdict.get("reward")
    shown = "-" if reward is None else f"{reward:.3f}"
    mark = "" if as_expected else f"   <-- expected {'|'.join(sorted(candidate.classes))}"
    row = f"{candidate.label:<34} {got:<16} {verdict.get('stage') or '-':<8} {shown:>6}"
    print(f"{row} {run_ms(verdict):>8.0f}{mark}")
    feedback = " ".join(str((verdict.get("feedback") or {}).get("text") or "").split())
    for line in textwrap.wrap(feedback, width - 4, max_lines=3, placeholder=" ...")[:3]:
        print(f"    {line}")
    sys.stdout.flush()
    return as_expected


def print_table(programs: Path, daemon: Daemon, candidates: list[Candidate]) -> int:
    """Judge all, print in order; returns how many did not get their class."""
    width = max(60, min(110, shutil.get_terminal_size().columns))
    print(f"\n{'candidate':<34} {'class':<16} {'stage':<8} {'reward':>6} {'ms':>8}")
    print("-" * min(width, 76))
    surprises = 0
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        verdicts = [pool.submit(judge, programs, daemon, candidate) for candidate in candidates]
        try:
            for candidate, verdict in zip(candidates, verdicts, strict=True):
                surprises += not print_row(candidate, verdict.result(), width)
        finally:  # an interrupt waits for none that has not begun
            pool.shutdown(wait=False, cancel_futures=True)
    return surprises


def demo(programs: Path, python: str) -> int:
    candidates = [load_candidate(ROOT / "tests" / "candidates" / name) for name in SHOWN]
    names = dict.fromkeys(candidate.task for candidate in candidates)
    tasks = [load_task(ROOT / "tests" / "tasks" / f"{name}.py") for name in names]
    started = time.monotonic()
    with running_daemon(programs, python) as daemon:
        print(f"verifierd listens on {daemon.url}; its workers import torch and triton ...", flush=True)
        daemon.wait_until_ready()
        status = daemon.get("/v1/status")
        gpus = [str(gpu.get("name")) for gpu in status.get("gpus", [])]
        where = ", ".join(gpus) or "no GPU: Triton's interpreter runs the kernels, timing is skipped"
        print(f"ready after {time.monotonic() - started:.1f} s ({where})\n")
        print("What follows is this, for each task and each candidate:")
        first = candidates[0]
        print("  $ verifier " + " ".join(task_arguments(tasks[0], relative(tasks[0].path))))
        print("  $ verifier " + " ".join(submit_arguments(first, relative(first.path))), flush=True)
        for task in tasks:
            register(programs, daemon, task)
        surprises = print_table(programs, daemon, candidates)
        print(f"\n{len(candidates)} candidates judged, {len(candidates) - surprises} as expected, ", end="")
        print(f"{time.monotonic() - started:.0f} s in all")
        if surprises:
            print(f"the daemon's log ends:\n{daemon.log_tail()}", file=sys.stderr)
        if not os.environ.get("DEMO_EXIT"):
            serve(daemon)
    return 1 if surprises else 0


def serve(daemon: Daemon) -> None:
    try:  # Ctrl-C may come as soon as this is printed
        print(f"\nThe dashboard: {daemon.url}/   (Ctrl-C ends it)", flush=True)
        daemon.process.wait()
    except KeyboardInterrupt:
        print()
    else:
        raise DemoError(f"verifierd ended by itself; its log:\n{daemon.log_tail()}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Have verifierd judge real candidates.")
    parser.add_argument("--programs", type=Path, required=True, help="directory of verifierd and verifier")
    parser.add_argument("--python", required=True, help="interpreter with torch and triton")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return demo(arguments.programs, arguments.python)
    except (DemoError, DaemonError, CorpusError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
