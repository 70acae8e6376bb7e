"""make bench-cpu_stages: how long the stages without a GPU take, by the answer to whoever fails in them.

    PYTHON tests/bench/cpu_stages.py [--than BUILD] [--rounds 20] [--limit-s 120] [--out FILE]

Daemons of this build run side by side, one as it is and one without children that wait for work (stage_pool 0), and,
with --than, one of another build. Each round asks each of them the same, in turn, so that a disturbed machine disturbs
all; the others are idle. Every answer is a line of JSON in --out. There is nothing that needs a GPU.
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

from daemon import running_daemon  # noqa: E402
from speed_load import Caller  # noqa: E402
from speed_mix import AST, BENCHES, COMPILE, EXPECTED, RIGHT, Mix  # noqa: E402

ASKED = ((AST, "ast"), (COMPILE, "compile"), (RIGHT, "compile"))
"""What is posted, and the last stage that it may reach."""


@dataclass
class Side:
    """One of the daemons that are compared."""

    name: str
    caller: Caller
    task: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """From POST to verdict."""
    run_ms: dict[str, list[float]] = field(default_factory=dict)
    """Of that, in the stage itself, as the verdict has it."""

    def ask(self, mix: Mix, fails_at: str, until: str) -> dict[str, Any]:
        answer = mix.answer(fails_at)
        body = {"task": self.task, "candidate": answer.source, "policy": mix.policy, "cache": False, "until": until}
        seconds, verdict = self.caller.judge(body)
        expected = ("ok",) if fails_at == RIGHT else EXPECTED[fails_at]
        if verdict["class"] not in expected:
            raise SystemExit(f"{self.name}: to fail in {fails_at}: {verdict['class']}: {verdict['feedback']['text']}")
        run_ms = next(stage["run_ms"] for stage in verdict["stages"] if stage["stage"] == until)
        self.seconds.setdefault(fails_at, []).append(seconds)
        self.run_ms.setdefault(fails_at, []).append(run_ms)
        return {"side": self.name, "fails_at": fails_at, "until": until, "seconds": seconds, "run_ms": run_ms}


def start(stack: ExitStack, name: str, build: Path, python: str, *flags: str) -> Side:
    daemon = stack.enter_context(running_daemon(build / "bin", python, "--device", "cpu", *flags))
    daemon.wait_until_ready()
    caller = Caller(daemon.url)
    stack.callback(caller.close)
    registration = Mix(BENCHES[0], "", on_gpu=False).registration
    return Side(name, caller, str(caller.call("POST", "/v1/tasks", registration)["id"]))


def show(sides: list[Side]) -> None:
    base = sides[-1]
    print(f"{'':26}{'answer, ms: median':>20}{'least':>8}{'stage, ms':>11}{f'of {base.name!r}':>22}")
    for fails_at, until in ASKED:
        what = f"passes {until}" if fails_at == RIGHT else f"fails in {fails_at}"
        for side in sides:
            times, base_times = side.seconds[fails_at], base.seconds[fails_at]
            ratio = statistics.median(mine / other for mine, other in zip(times, base_times, strict=True))
            print(
                f"{what:17}{side.name:13}{1e3 * statistics.median(times):16.1f}{1e3 * min(times):8.1f}"
                f"{statistics.median(side.run_ms[fails_at]):11.1f}{ratio:22.2f}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description="the time to the answer of who fails in ast or compile")
    parser.add_argument("--than", type=Path, help="another build's directory, to be compared with")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "cpu_stages.jsonl")
    options = parser.parse_args()
    build = Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build"))
    python = os.environ.get("PYTHON", sys.executable)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.limit_s
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with ExitStack() as stack:
        out = stack.enter_context(options.out.open("w"))
        sides = [start(stack, "as it is", build, python), start(stack, "none wait", build, python, "--stage-pool", "0")]
        if options.than is not None:
            sides.append(start(stack, options.than.name, options.than, python))
        for side in sides:
            side.caller.close()  # it connects again: the daemon has closed what was idle while others started
        mix = Mix(BENCHES[0], f"{time.time_ns()}", on_gpu=False)
        for at in range(-1, options.rounds):
            if at > 0 and time.monotonic() > deadline:
                break
            for fails_at, until in ASKED:
                for side in sides if at % 2 == 0 else reversed(sides):
                    found = side.ask(mix, fails_at, until)
                    out.write(json.dumps({"round": at, **found}) + "\n")
            if at < 0:  # the first of each kind is not counted
                for side in sides:
                    side.seconds.clear()
                    side.run_ms.clear()
        print(f"{len(sides[0].seconds[AST])} rounds")
        show(sides)
    return 0


if __name__ == "__main__":
    sys.exit(main())
