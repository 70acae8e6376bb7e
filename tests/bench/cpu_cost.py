"""What a verdict costs the processor before its GPU part: `ast` and `compile` of honest candidates of small tasks.

    PYTHON tests/bench/cpu_cost.py [--than BUILD] [--rounds 5] [--out FILE]

Daemons without a GPU, of this build and, with --than, of another, are asked for the same in turn, each candidate under
another comment. What their processes and all children of these took of the processor is read from /proc before and
after each round, so that a disturbed machine disturbs both. Each round of each side is a line of JSON in --out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).resolve().parent)]

import corpus  # noqa: E402
from daemon import Daemon, running_daemon  # noqa: E402
from ways import SMALL, register  # noqa: E402

LIMIT_S = 120.0
KINDS = ("daemon", "static", "compile")


@dataclass
class Side:
    """One of the builds that are compared."""

    name: str
    daemon: Daemon
    tasks: dict[str, str]
    rows: list[dict[str, float]] = field(default_factory=list)
    """Of each round, milliseconds for a verdict: of the processor by kind of process, and of the stage `compile`."""

    def spent_ms(self) -> dict[str, float]:
        """Of the daemon, and of each of its zygotes with all that it has reaped."""
        pid = self.daemon.process.pid
        found = {"daemon": _ticks(pid)[0]}
        for child in _children(pid):
            words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            kind = words[words.index("--kind") + 1] if "--kind" in words else ""
            if kind in KINDS:
                found[kind] = _ticks_of_all(child)
        return {kind: 1e3 * ticks / os.sysconf("SC_CLK_TCK") for kind, ticks in found.items()}

    def round(self, candidates: list[corpus.Candidate], turn: str) -> None:
        before, stages = self.spent_ms(), []
        for candidate in candidates:
            body = {**candidate.body(self.tasks[candidate.task]), "until": "compile"}
            body["candidate"] = f"{body['candidate']}\n# {turn}\n"
            verdict = self.daemon.judge(body, LIMIT_S)
            if verdict["class"] != "ok":
                raise SystemExit(f"{self.name}: {candidate.label}: {verdict['class']}")
            stages += [stage["run_ms"] for stage in verdict["stages"] if stage["stage"] == "compile"]
        after = self.spent_ms()
        row = {kind: (after[kind] - before[kind]) / len(candidates) for kind in KINDS}
        self.rows.append({**row, "all": sum(row.values()), "compile stage, wall": statistics.median(stages)})


def _ticks(pid: int) -> tuple[int, int]:
    """Of a process, and of the children that it has reaped with theirs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, children_user, children_system = map(int, fields[11:15])
    return user + system, children_user + children_system


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _ticks_of_all(pid: int) -> int:
    """Of a process, of what it has reaped, and of what lives below it. What ends meanwhile is its parent's."""
    try:
        return sum(_ticks(pid)) + sum(map(_ticks_of_all, _children(pid)))
    except OSError:
        return 0


def start(stack: ExitStack, name: str, build: Path, tasks: set[str]) -> Side:
    python = os.environ.get("PYTHON", sys.executable)
    daemon = stack.enter_context(running_daemon(build / "bin", python, "--device", "cpu"))
    daemon.wait_until_ready()
    return Side(name, daemon, register(daemon, tasks))


def show(sides: list[Side]) -> None:
    print(f"{'ms for each verdict':24}" + "".join(f"{side.name:>18}" for side in sides) + f"{'ratio':>10}")
    for kind in sides[0].rows[0]:
        columns = [[row[kind] for row in side.rows] for side in sides]
        ratio = statistics.median(a / b if b else 1.0 for a, b in zip(columns[0], columns[-1], strict=True))
        print(f"{kind:24}" + "".join(f"{statistics.median(one):18.1f}" for one in columns) + f"{ratio:10.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description="what ast and compile of one verdict cost the processor")
    parser.add_argument("--than", type=Path, help="another build's directory, to be compared with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "cpu_cost.jsonl")
    options = parser.parse_args()
    chosen = [candidate for candidate in corpus.load_candidates() if candidate.label in SMALL]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    builds: dict[str, Path] = {"this build": Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build"))}
    if options.than is not None:
        builds["the other"] = options.than
    with ExitStack() as stack:
        out = stack.enter_context(options.out.open("w"))
        tasks = {candidate.task for candidate in chosen}
        sides = [start(stack, name, build, tasks) for name, build in builds.items()]
        for at in range(-1, options.rounds):  # the first is not counted
            for side in sides if at % 2 == 0 else reversed(sides):
                side.round(chosen, f"{time.time_ns()}")
                row: dict[str, Any] = {"round": at, "side": side.name, **side.rows[-1]}
                out.write(json.dumps(row) + "\n")
                if at < 0:
                    side.rows.clear()
        show(sides)
    return 0


if __name__ == "__main__":
    sys.exit(main())
