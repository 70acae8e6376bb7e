"""make selftest-compare: the corpus judged by the daemon and by the usual evaluation, in one run, side by side.

Three columns: this daemon; this daemon under the policy `kernelbench`, which is KernelBench's rule in our processes;
and KernelBench's way inside one process (tests/bench/in_process.py). Prints a table by kind, the cheats that each
accepts and the honest kernels that it refuses, and writes every row to --out. The status is that of
`verifier selftest`. --part daemon, --part process and --part table do one of the three alone, in the same --out,
where no one call has time for all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import corpus  # noqa: E402
from daemon import running_daemon  # noqa: E402

READY_LIMIT_S = 300.0
Json = dict[str, Any]


@dataclass
class Row:
    """One candidate; None: not judged that way."""

    label: str
    kind: str
    ours: str | None = None
    is_right: bool = False
    kernelbench: str | None = None
    in_process: bool | None = None
    speedup: float | None = None
    """What the process said."""

    @property
    def is_compared(self) -> bool:
        return self.ours is not None and self.in_process is not None


def read_lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def merge(selftest: Iterable[Json], in_process: Iterable[Json]) -> dict[str, Row]:
    """By label, from the lines of both programs."""
    rows: dict[str, Row] = {}
    for line in selftest:
        label = line.get("row") or line.get("other_policy")
        if label is None:
            continue
        row = rows.setdefault(label, Row(label, line["kind"]))
        if "row" in line:
            row.ours, row.is_right = line["class"], bool(line["right"])
        else:
            row.kernelbench = line["class"]
    for line in in_process:
        row = rows.setdefault(line["row"], Row(line["row"], line["kind"]))
        row.in_process, row.speedup = line["accepted"], line["speedup"]
    return rows


def table(rows: Iterable[Row], machine: str) -> str:
    """Of the rows that were judged here and in one process; under `kernelbench`, of those that were tried so."""
    compared = [row for row in rows if row.is_compared]
    lines = [
        f"Machine: {machine}",
        "",
        "| kind | rows | accepted here | under `kernelbench` here | in one process | ... with a speed-up |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    tests: tuple[Callable[[Row], bool], ...] = (
        lambda row: row.ours == "ok",
        lambda row: row.kernelbench == "ok",
        lambda row: bool(row.in_process),
        lambda row: bool(row.in_process) and (row.speedup or 0) > 1,
    )
    for kind in corpus.KINDS:
        of = [row for row in compared if row.kind == kind]
        counts = [str(sum(test(row) for row in of)) for test in tests]
        tried = sum(row.kernelbench is not None for row in of)
        if tried < len(of):
            counts[1] += f" of {tried}"
        lines.append(f"| {kind} | {len(of)} | {' | '.join(counts)} |")
    for name, test in zip(("here", "under `kernelbench` here", "in one process"), tests, strict=False):
        tried_rows = [row for row in compared if row.kernelbench is not None or "kernelbench" not in name]
        cheats = [row.label for row in tried_rows if row.kind == "cheat" and test(row)]
        refused = [row.label for row in tried_rows if row.kind in ("honest", "suspicious") and not test(row)]
        lines += ["", f"Cheats accepted {name}: {', '.join(cheats) or 'none'}"]
        lines += ["", f"Honest kernels refused {name}: {', '.join(refused) or 'none'}"]
    return "\n".join(lines)


def machine_of(status: Json) -> str:
    gpus = ", ".join(str(gpu.get("name")) for gpu in status.get("gpus") or []) or "no GPU (interpreter)"
    env = status.get("env") or {}
    return f"{gpus}; torch {env.get('torch')}, triton {env.get('triton')}; {os.cpu_count()} cores"


def parse_arguments() -> argparse.Namespace:
    build = Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build")))
    parser = argparse.ArgumentParser(description="The corpus, judged by the daemon and in one process.")
    parser.add_argument("--build", type=Path, default=build, help="where bin/ and lib/verifierd are; a bundle does")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build/selftest"))
    parser.add_argument("--only", action="append", default=[], help="candidates whose TASK/NAME match (again for more)")
    parser.add_argument("--side-by-side", type=int, default=0, metavar="N", help="of in_process.py")
    parser.add_argument("--part", choices=("daemon", "process", "table"), help="this one alone")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="all of it")
    return parser.parse_args()


def judge(options: argparse.Namespace, deadline: float, only: list[str]) -> int:
    """The daemon's part, into selftest.jsonl and status.json; the status of `verifier selftest`."""
    python = os.environ.get("PYTHON", sys.executable)
    with running_daemon(options.build / "bin", python, log=options.out / "daemon.log") as daemon:
        daemon.wait_until_ready(READY_LIMIT_S)
        (options.out / "status.json").write_text(json.dumps(daemon.get("/v1/status")))
        command = [str(options.build / "bin/verifier"), "selftest", "--json", "--policy", "kernelbench"]
        with (options.out / "selftest.jsonl").open("wb") as file:
            left_s = deadline - time.monotonic()
            done = subprocess.run([*command, *only, "--url", daemon.url], stdout=file, timeout=left_s, check=False)
    return done.returncode


def judge_in_process(options: argparse.Namespace, deadline: float, only: list[str], device: str) -> None:
    """The usual evaluation's, into in_process.jsonl. No daemon of ours runs while the process times itself."""
    python = os.environ.get("PYTHON", sys.executable)
    command = [python, str(ROOT / "tests/bench/in_process.py"), "--out", str(options.out / "in_process.jsonl")]
    command += ["--device", device, "--harness", str(options.build / "lib/verifierd/harness"), *only]
    command.append(f"--side-by-side={options.side_by_side}")
    left_s = max(1.0, deadline - time.monotonic() - 30)
    subprocess.run([*command, "--limit-s", f"{left_s:.0f}"], stdout=subprocess.DEVNULL, check=True)


def main() -> int:
    options = parse_arguments()
    deadline = time.monotonic() + options.limit_s
    options.out.mkdir(parents=True, exist_ok=True)
    only = [f"--only={pattern}" for pattern in options.only]
    status = 0
    selftest, machine = options.out / "selftest.jsonl", options.out / "status.json"
    if options.part in (None, "daemon"):
        status = judge(options, deadline, only)
        if status > 1:
            return status
    found = json.loads(machine.read_text())
    if options.part in (None, "process"):
        judge_in_process(options, deadline, only, "cuda:0" if found.get("gpus") else "cpu")
    if options.part in ("daemon", "process"):
        return status
    rows = merge(read_lines(selftest), read_lines(options.out / "in_process.jsonl"))
    text = table(rows.values(), machine_of(found))
    (options.out / "compare.md").write_text(text + "\n")
    print(text)
    print(selftest.read_text().splitlines()[-1])
    return status


if __name__ == "__main__":
    sys.exit(main())
