"""make bench-steps: where the referee's time goes, stage by stage, for the three shipped tasks of the speed bench.

A referee of its own judges each honest candidate again and again, without a daemon, under a profile of its Python.
Told for each stage: milliseconds of one submission in each function, what it calls included, from the longest on, and
how often it was called. What a child was asked stands as `ask` with the operation; waiting for it is in that. Last, the
same of the first call that a candidate's child answers, in that child. The candidate was compiled before, as it is in
the daemon; everything is slower by the profile's own cost. OUT/steps.jsonl has every function. It judges nothing;
--device cpu tries the mechanics.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/unit"), str(ROOT / "tests")]

import corpus  # noqa: E402
from daemon import first_gpu  # noqa: E402
from rig import Rig, policy  # noqa: E402

import stages  # noqa: E402 isort: skip

TASKS = ("gemm_scale_leaky_relu", "relu_4096x393216", "rms_norm_4096x393216")
STAGES = ("tiny", "full", "timing")
FIRST_CALL = "first call, in the child"
SHOWN = 0.02
"""Of a stage: what takes less is left out of the table."""

PRELUDE = """
import cProfile, json, pathlib, pstats, referee
from oracle import peer
plain_timed, plain_ask, asks = referee.timed, peer.Peer.ask, {{}}
def ask(self, message, *args, **named):
    op = message["op"]
    if op not in asks:
        inner = lambda *args, **named: plain_ask(*args, **named)
        inner.__code__ = inner.__code__.replace(co_name="ask " + op, co_filename=ask.__code__.co_filename + op)
        asks[op] = inner
    return asks[op](self, message, *args, **named)
peer.Peer.ask = ask
def timed(run):
    profile = cProfile.Profile()
    profile.enable()
    try:
        report = plain_timed(run)
    finally:
        profile.disable()
    found = []
    for (file, line, name), (_, calls, own, whole, _) in pstats.Stats(profile).stats.items():
        found.append([pathlib.Path(file).name, line, name, calls, own, whole])
    with open({path!r}, "a") as lines:
        lines.write(json.dumps({{"stage": report.stage, "run_ms": report.run_ms, "functions": found}}) + "\\n")
    return report
referee.timed = timed
"""

CHILD_PRELUDE = """
def watch_first_call():
    import cProfile, json, pathlib, pstats, sys
    sys.path.insert(0, {harness!r})
    from live import child
    plain_answer = child.Child._answer
    def answer(self, *args):
        if self._filename != child.CANDIDATE_FILE:
            return plain_answer(self, *args)
        child.Child._answer = plain_answer
        profile = cProfile.Profile()
        try:
            return profile.runcall(plain_answer, self, *args)
        finally:
            stats = pstats.Stats(profile)
            found = []
            for (file, line, name), (_, calls, own, whole, _) in stats.stats.items():
                found.append([pathlib.Path(file).name, line, name, calls, own, whole])
            with open({path!r}, "a") as lines:
                told = {{"stage": {stage!r}, "run_ms": 1e3 * stats.total_tt, "functions": found}}
                lines.write(json.dumps(told) + chr(10))
    child.Child._answer = answer
watch_first_call()
"""


def compiled(place: Path, candidate: corpus.Candidate, spec: dict[str, Any], target: str) -> Path:
    """What the compile stage leaves."""
    scratch = place / "compile"
    scratch.mkdir()
    if stages.UID is not None:
        os.chown(scratch, stages.UID, stages.UID)
    zygote = stages.Zygote("compile", target=target)
    request = {"op": "compile", "target": target, "entry": "ModelNew", "cache": str(scratch / "cache")}
    given = {"source": candidate.text.encode(), "spec": json.dumps(spec).encode()}
    told = zygote.ask(request, given, scratch)
    zygote.close()
    if told.report is None or told.report["outcome"] != "pass":
        print(f"  {candidate.label} does not compile: {told}", flush=True)
    return scratch / "cache"


def judge(rig: Rig, name: str, rounds: int, end: float, place: Path, target: str | None) -> int:
    """Rounds that were judged whole; the first one, which warms up, is among them."""
    reference = (ROOT / f"tests/tasks/{name}.py").read_text()
    honest = corpus.load_candidate(ROOT / f"tests/candidates/{name}/honest.py")
    child = rig.child()
    spec = rig.register(child, reference)
    cache = None if target is None else compiled(place, honest, spec, target)
    done = 0
    while done < rounds and time.monotonic() < end:
        rules = policy(honest.policy)
        found = rig.judge(child, spec, reference, honest.text, stages=STAGES, rules=rules, cache=cache)
        if any(report["outcome"] == "fail" for report in found.values()):
            print(f"  {name}: {list(found.values())[-1].get('error')}", flush=True)
        done += 1
    return done


def table(task: str, stage: str, runs: list[dict[str, Any]]) -> str:
    """Means over these runs."""
    total_ms = sum(run["run_ms"] for run in runs) / len(runs)
    sums: dict[tuple[str, int, str], list[float]] = {}
    for run in runs:
        for file, line, name, calls, _, whole in run["functions"]:
            at = sums.setdefault((file, line, name), [0.0, 0.0])
            at[0] += calls / len(runs)
            at[1] += 1e3 * whole / len(runs)
    lines = [f"\n{task}, {stage}: {total_ms:.1f} ms, {len(runs)} runs"]
    for (file, line, name), (calls, ms) in sorted(sums.items(), key=lambda item: -item[1][1]):
        if ms < SHOWN * total_ms:
            break
        where = "" if file == "~" else f"{file}:{line}"
        lines.append(f"{ms:>10.1f} ms {calls:>8.1f} x  {name} {where}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Where the referee's time goes.")
    parser.add_argument("--device", default=first_gpu())
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--rounds", type=int, default=4, help="of each; the first warms up and is left out (default 4)")
    parser.add_argument("--limit-s", type=float, default=90.0, help="no submission is begun after")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build/steps"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + arguments.limit_s
    kept = (arguments.out / "steps.jsonl").open("w")
    for task in arguments.tasks.split(","):
        with tempfile.TemporaryDirectory(prefix="verifierd-steps-") as name:
            place, lines = Path(name), Path(name) / "lines"
            place.chmod(0o755)
            prelude = PRELUDE.format(path=str(lines))
            first = CHILD_PRELUDE.format(harness=str(stages.HARNESS), path=str(lines), stage=FIRST_CALL)
            with Rig(place, device=arguments.device, prelude=prelude, child_prelude=first) as rig:
                capability = str((rig.ready.get("gpu") or {}).get("capability", "")).replace(".", "")
                target = f"cuda:{capability}" if capability else None
                judge(rig, task, arguments.rounds, end, place, target)
            runs = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        for stage in ("open", *STAGES, FIRST_CALL):
            of = [run for run in runs if run["stage"] == stage]
            for run in of:
                kept.write(json.dumps({"task": task, **run}) + "\n")
            if len(of) > 1:
                print(table(task, stage, of[1:]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
