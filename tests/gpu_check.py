"""make gpu-check: everything that needs a GPU, on a machine where nothing can be built or installed.

Starts the bundle's daemon, has it judge the whole corpus (what only a GPU can decide included), runs the
benches, and prints a short table last. Logs go to $OUT, or build/gpu-check/. Every part has a time limit;
together they stay under --limit-s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpus import Candidate, Task, load_candidates, load_tasks
from daemon import Daemon, DaemonError, running_daemon

ROOT = Path(__file__).resolve().parents[1]
SIDE_BY_SIDE = 8
SKIPPED = 77
VERDICT_LIMIT_S = 120.0
READY_LIMIT_S = 90.0


@dataclass(frozen=True)
class Part:
    """One row of the table."""

    name: str
    outcome: str
    """`pass`, `fail` or `skip`"""
    seconds: float
    note: str


@dataclass(frozen=True)
class Setting:
    """What every part is given."""

    bundle: Path
    python: str
    logs: Path
    deadline: float
    wants_gpu: bool

    def left_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def environment(self) -> dict[str, str]:
        """For the scripts that are run: where the programs and the harness are."""
        found = dict(os.environ)
        found["PYTHON"] = self.python
        found["VERIFIERD_BUILD"] = str(self.bundle)
        found["VERIFIERD_LIBHARNESS"] = str(self.bundle / "lib/verifierd/libharness.so")
        found["PYTHONPATH"] = os.pathsep.join(
            [str(self.bundle / "lib/verifierd/harness"), str(ROOT / "tests"), found.get("PYTHONPATH", "")]
        ).rstrip(os.pathsep)
        return found


def is_reachable(path: Path) -> bool:
    """Can another uid come to this path?"""
    return all(p.stat().st_mode & stat.S_IXOTH for p in (path, *path.parents))


@contextmanager
def reachable_bundle(bundle: Path) -> Iterator[Path]:
    """The bundle, or a copy of it where candidates, which run under uids of their own, can read it."""
    if os.geteuid() != 0 or is_reachable(bundle):
        yield bundle
        return
    with tempfile.TemporaryDirectory(prefix="verifierd-bundle-") as name:
        Path(name).chmod(0o755)
        yield Path(shutil.copytree(bundle, Path(name) / "bundle"))


def check_candidate(daemon: Daemon, candidate: Candidate, task_id: str) -> dict[str, Any]:
    """The verdict, with what was wrong about it under `surprise`."""
    limit_s = VERDICT_LIMIT_S
    try:
        verdict = daemon.judge(candidate.body(task_id), limit_s)
    except DaemonError as error:
        return {"surprise": str(error)}
    surprise = ""
    if verdict.get("class") not in candidate.classes:
        surprise = f"class {verdict.get('class')}, expected {'|'.join(sorted(candidate.classes))}"
    elif candidate.stages and verdict.get("stage") not in candidate.stages:
        surprise = f"stage {verdict.get('stage')}, expected {'|'.join(sorted(candidate.stages))}"
    return {**verdict, "surprise": surprise}


def register_all(daemon: Daemon, tasks: dict[str, Task]) -> tuple[dict[str, str], list[str]]:
    """Ids by name, and what was refused."""
    ids: dict[str, str] = {}
    refused: list[str] = []
    for task in tasks.values():
        try:
            ids[task.name] = str(daemon.post("/v1/tasks", task.registration(), 120.0)["id"])
        except DaemonError as error:
            refused.append(f"task {task.name}: {error}")
    return ids, refused


def speed_of(verdict: dict[str, Any]) -> str:
    timing = verdict.get("timing") or {}
    if timing.get("outcome") != "measured":
        return str(timing.get("outcome") or "-")
    return f"{float((verdict.get('components') or {}).get('speedup') or 0):.2f}x"


def corpus_line(candidate: Candidate, verdict: dict[str, Any]) -> str:
    run_ms = sum(float(s.get("run_ms") or 0) for s in verdict.get("stages") or [])
    reward = verdict.get("reward")
    shown = "-" if reward is None else f"{reward:.3f}"
    line = f"{candidate.label:<44} {verdict.get('class')!s:<15} {verdict.get('stage')!s:<8} {shown:>7}"
    line += f" {speed_of(verdict):>12} {run_ms:>8.0f}"
    return f"{line}   <-- {verdict['surprise']}" if verdict["surprise"] else line


def corpus_part(setting: Setting) -> Part:
    """Every task and every candidate, those that need a GPU included."""
    started = time.monotonic()
    candidates = load_candidates()
    log = setting.logs / "daemon.log"
    with running_daemon(setting.bundle / "bin", setting.python, log=log) as daemon:
        daemon.wait_until_ready(READY_LIMIT_S)
        ready_s = time.monotonic() - started
        status = daemon.get("/v1/status")
        (setting.logs / "status.json").write_text(json.dumps(status, indent=1))
        has_gpu = bool(status.get("gpus"))
        if setting.wants_gpu and not has_gpu:
            return Part("corpus", "skip", ready_s, "the daemon sees no GPU here")
        print(f"daemon ready after {ready_s:.1f} s: {json.dumps(status['gpus'])[:300]}", flush=True)
        ids, surprises = register_all(daemon, {n: t for n, t in load_tasks().items() if has_gpu or not t.needs_gpu})
        judged = [c for c in candidates if c.task in ids and (has_gpu or not c.needs_gpu)]
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            verdicts = list(pool.map(lambda c: check_candidate(daemon, c, ids[c.task]), judged))
    lines = [corpus_line(c, v) for c, v in zip(judged, verdicts, strict=True)]
    header = f"{'candidate':<44} {'class':<15} {'stage':<8} {'reward':>7} {'speed':>12} {'ms':>8}"
    (setting.logs / "corpus.txt").write_text("\n".join([header, *lines, *surprises]) + "\n")
    (setting.logs / "verdicts.json").write_text(
        json.dumps([{"candidate": c.label, **v} for c, v in zip(judged, verdicts, strict=True)])
    )
    print("\n".join([header, *lines]), flush=True)
    surprises += [f"{c.label}: {v['surprise']}" for c, v in zip(judged, verdicts, strict=True) if v["surprise"]]
    for text in surprises:
        print(f"  ! {text}", flush=True)
    counts = Counter(str(v.get("class")) for v in verdicts)
    note = f"{len(judged)} candidates, {len(surprises)} surprises; "
    note += ", ".join(f"{name} {n}" for name, n in counts.most_common())
    return Part("corpus", "fail" if surprises else "pass", time.monotonic() - started, note)


def script_part(name: str, command: list[str], limit_s: float, setting: Setting) -> Part:
    """Run a program, keep what it says; its last line is its summary."""
    started = time.monotonic()
    limit_s = min(limit_s, setting.left_s())
    if limit_s < 5:
        return Part(name, "skip", 0.0, "no time was left for it")
    log = setting.logs / f"{name}.txt"
    print(f"\n== {name}: {' '.join(command)} (at most {limit_s:.0f} s)", flush=True)
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                [setting.python, *command],
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                env=setting.environment(),
                cwd=ROOT,
                check=False,
            )
            outcome = {0: "pass", SKIPPED: "skip"}.get(done.returncode, "fail")
            what = f"status {done.returncode}: " if outcome == "fail" else ""
        except subprocess.TimeoutExpired:
            outcome, what = "fail", f"ended after {limit_s:.0f} s: "
    text = log.read_text(errors="replace").strip()
    print(text[-6000:], flush=True)
    lines = text.splitlines() or [""]
    return Part(name, outcome, time.monotonic() - started, what + lines[-1][:120])


def units_part(setting: Setting) -> Part:
    """The unit tests that only a GPU can run."""
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", str(ROOT / "tests/unit")]
    part = script_part("units", pytest, 60.0, setting)
    ran = part.outcome != "pass" or "passed" in part.note
    return part if ran else replace(part, outcome="skip")


def speed_part(setting: Setting) -> Part:
    return script_part("speed", [str(ROOT / "tests/bench/speed.py")], 240.0, setting)


def sandbox_part(setting: Setting) -> Part:
    harness = ["--harness", str(setting.bundle / "lib/verifierd/harness")]
    return script_part("sandbox", [str(ROOT / "tests/bench/sandbox.py"), *harness, "--torch"], 60.0, setting)


PARTS: dict[str, Callable[[Setting], Part]] = {
    "units": units_part,
    "corpus": corpus_part,
    "speed": speed_part,
    "sandbox": sandbox_part,
}


def run_part(name: str, setting: Setting) -> Part:
    started = time.monotonic()
    try:
        return PARTS[name](setting)
    except Exception as error:  # one broken part must not hide the others' results
        print(f"{name}: {type(error).__name__}: {error}", flush=True)
        return Part(name, "fail", time.monotonic() - started, f"{type(error).__name__}: {error}".splitlines()[0])


def machine_line(python: str) -> str:
    code = "import torch, triton; print('torch', torch.__version__, 'triton', triton.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    versions = done.stdout.strip() or done.stderr.strip().splitlines()[-1]
    return f"{platform.platform()}, python {platform.python_version()}, {versions}, {os.cpu_count()} cores"


def table(parts: list[Part], machine: str) -> str:
    rows = ["", f"Machine: {machine}", "", "| part | outcome | seconds | what |", "| --- | --- | --- | --- |"]
    rows += [f"| {p.name} | {p.outcome} | {p.seconds:.1f} | {p.note} |" for p in parts]
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check verifierd on a machine with a GPU.")
    parser.add_argument("--bundle", type=Path, default=ROOT / "build/bundle", help="made by make bundle")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--limit-s", type=float, default=520.0, help="all parts together")
    parser.add_argument("--without-gpu", action="store_true", help="try the corpus part on a machine that has none")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := sorted(set(names) - set(PARTS)):
        parser.error(f"--only: unknown part {', '.join(unknown)}")
    bundle = arguments.bundle.resolve()
    if not (bundle / "bin/verifierd").exists():
        parser.error(f"{bundle}: no bin/verifierd there; make bundle makes it")
    logs = Path(os.environ.get("OUT") or ROOT / "build/gpu-check")
    logs.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + arguments.limit_s
    with reachable_bundle(bundle) as readable:
        setting = Setting(readable, sys.executable, logs, deadline, not arguments.without_gpu)
        machine = machine_line(sys.executable)
        print(machine, flush=True)
        parts = [run_part(name, setting) for name in names]
    text = table(parts, machine)
    (logs / "summary.md").write_text(text.lstrip() + "\n")
    print(text)
    return 1 if any(part.outcome != "pass" for part in parts) else 0


if __name__ == "__main__":
    sys.exit(main())
