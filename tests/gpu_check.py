"""make gpu-check: everything that needs a GPU, on a machine where nothing can be built or installed.

Starts the bundle's daemon, has `verifier selftest` run against it (what only a GPU can decide included), runs the
benches, and prints a short table last. Logs go to $OUT, or build/gpu-check/. Every part has a time limit;
together they stay under --limit-s.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from daemon import Daemon, running_daemon

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = 77
SELFTEST_LIMIT_S = 570.0
SPEED_LIMIT_S = 260.0
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


def selftest(setting: Setting, daemon: Daemon, name: str, *flags: str) -> tuple[int, str]:
    """`verifier selftest` against this daemon: its status, or -1 where no time was left for it, and what it printed."""
    command = [str(setting.bundle / "bin/verifier"), "selftest", "--url", daemon.url, *flags]
    log = setting.logs / f"{name}.txt"
    limit_s = min(SELFTEST_LIMIT_S, setting.left_s())
    with log.open("wb") as out:
        try:
            status = subprocess.run(command, stdout=out, timeout=limit_s, check=False).returncode
        except subprocess.TimeoutExpired:
            status = -1
    return status, log.read_text(errors="replace")


def speed_of(line: dict[str, Any]) -> str:
    if line.get("timing") != "measured":
        return str(line.get("timing") or "-")
    return f"{float(line.get('speedup') or 0):.2f}x"


def corpus_line(line: dict[str, Any]) -> str:
    """One verdict, and what is wrong about it."""
    kind = next(key for key in ("row", "baseline", "probe", "other_policy") if key in line)
    reward = line.get("reward")
    shown = "-" if reward is None else f"{reward:.3f}"
    text = f"{line[kind]:<44} {kind:<9} {line.get('class')!s:<15} {line.get('failed_at') or '-':<8} {shown:>7}"
    text += f" {speed_of(line):>12}"
    return text if line["right"] else f"{text}   <-- {line['why']}"


def keep_surprises(setting: Setting, daemon: Daemon, lines: list[dict[str, Any]]) -> None:
    """The whole verdict of what was not as it must be, and the first words of its feedback."""
    kept = []
    for line in lines:
        if line.get("right") is not False or not line.get("id"):
            continue
        verdict = daemon.get(f"/v1/submissions/{line['id']}")
        kept.append({**line, "verdict": verdict})
        print(f"  ! {corpus_line(line)}\n    {str((verdict.get('feedback') or {}).get('text'))[:300]}", flush=True)
    (setting.logs / "surprises.json").write_text(json.dumps(kept))


def corpus_part(setting: Setting) -> Part:
    """verifier selftest, quick and whole: every task and every candidate, those that need a GPU included."""
    started = time.monotonic()
    with running_daemon(setting.bundle / "bin", setting.python, log=setting.logs / "daemon.log") as daemon:
        daemon.wait_until_ready(READY_LIMIT_S)
        ready_s = time.monotonic() - started
        status = daemon.get("/v1/status")
        (setting.logs / "status.json").write_text(json.dumps(status, indent=1))
        if setting.wants_gpu and not status.get("gpus"):
            return Part("corpus", "skip", ready_s, "the daemon sees no GPU here")
        print(f"daemon ready after {ready_s:.1f} s: {json.dumps(status['gpus'])[:300]}", flush=True)
        quick, said = selftest(setting, daemon, "quick", "--quick")
        print(said, flush=True)
        whole, said = selftest(setting, daemon, "selftest", "--json")
        lines = [json.loads(line) for line in said.splitlines() if line.endswith("}")]
        rows = [line for line in lines if "right" in line]
        print("\n".join(corpus_line(line) for line in rows), flush=True)
        keep_surprises(setting, daemon, rows)
    (setting.logs / "corpus.txt").write_text("\n".join(corpus_line(line) for line in rows) + "\n")
    last = lines[-1] if lines else {}
    is_right = quick == 0 and whole == 0
    figures = ("ran", "killed", "kill_rate", "false_rejects", "probes", "contaminated", "times_compared", "surprises")
    note = f"quick {quick}, whole {whole}; "
    note += ", ".join(f"{name} {last.get(name)}" for name in figures)
    return Part("corpus", "pass" if is_right else "fail", time.monotonic() - started, note)


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
    if importlib.util.find_spec("trl") is None:
        pytest.append(f"--ignore-glob={ROOT / 'tests/unit/test_finetune*'}")
    part = script_part("units", pytest, 180.0, setting)
    ran = part.outcome != "pass" or "passed" in part.note
    return part if ran else replace(part, outcome="skip")


def speed_part(setting: Setting) -> Part:
    """Honest candidates beside the usual way; `make bench` has the load, and the targets in seconds."""
    command = [str(ROOT / "tests/bench/speed.py"), "--parts", "latency,usual", "--judge", "ratios"]
    limit_s = min(SPEED_LIMIT_S, setting.left_s())
    return script_part("speed", [*command, f"--limit-s={limit_s - 10:.0f}"], limit_s, setting)


def sandbox_part(setting: Setting) -> Part:
    flags = ["--harness", str(setting.bundle / "lib/verifierd/harness"), "--torch", "--kernels=5"]
    return script_part("sandbox", [str(ROOT / "tests/bench/sandbox.py"), *flags], 120.0, setting)


def timing_part(setting: Setting) -> Part:
    """What docs/measurements/timing.md is made from; alone, since it takes the time of all the others."""
    command = [str(ROOT / "tests/bench/timing.py"), "--out", str(setting.logs / "timing")]
    return script_part("timing", [*command, f"--limit-s={min(290.0, setting.left_s() - 40):.0f}"], 330.0, setting)


PARTS: dict[str, Callable[[Setting], Part]] = {
    "units": units_part,
    "corpus": corpus_part,
    "speed": speed_part,
    "sandbox": sandbox_part,
    "timing": timing_part,
}
USUAL = [name for name in PARTS if name != "timing"]


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
    parser.add_argument("--only", default=",".join(USUAL), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--limit-s", type=float, default=1050.0, help="all parts together (default 1050)")
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
