"""make bench-round: a whole Best-of-N round against a scripted model: how long it takes, and where the time goes.

100 tasks of `trainer fuse`, ten answers each (round_answers.py: right, wrong, cheating, broken, none), the trainer
as a user calls it, and the real daemon. On a GPU the tasks' sizes are such that the references can be timed. After
--limit-s, the daemon's start included, the round is interrupted, and what was done by then is reported; the daemon
ends after that. --enlarge tries `trainer prepare --enlarge` in its place. A raw JSON line, and a short table last;
logs, the journal and the line go to $OUT, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "e2e")]

import round_answers  # noqa: E402
from answering import Call, Reply, answering, document  # noqa: E402
from daemon import Daemon, DaemonError, running_daemon  # noqa: E402
from gpu_check import reachable_bundle  # noqa: E402

Json = dict[str, Any]
STAGES = ("ast", "compile", "tiny", "full", "timing")
# Rows and batch: on a GPU so many that an element-wise pass takes tens of microseconds, for the interpreter few.
SIZES = {True: {"ROWS": 16384, "BATCH": 256}, False: {"ROWS": 4, "BATCH": 1, "SIDE": 8, "CHANNELS": 4}}
END_S = 30.0


class BenchError(Exception):
    """Something that ends the run; the text is for people."""


@dataclass
class Running:
    """A program that was run: its status, wall time in s, processor time in s, peak resident set in MiB."""

    status: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    was_interrupted: bool = False


def run(limit_s: float, log: Path, *command: str) -> Running:
    """Run it, with its output in log; SIGINT after limit_s, SIGKILL if that does not end it."""
    out = Running()
    started = time.monotonic()
    with log.open("wb") as to:
        process = subprocess.Popen(command, stdout=to, stderr=to)
        status = Path(f"/proc/{process.pid}/status")
        done = 0
        try:
            while True:
                done, code, used = os.wait4(process.pid, os.WNOHANG)
                if done:
                    break
                if found := re.search(r"^VmHWM:\s+(\d+)", status.read_text(), re.MULTILINE):
                    out.peak_mb = max(out.peak_mb, int(found[1]) / 1024)
                seconds = time.monotonic() - started
                if seconds > limit_s and not out.was_interrupted:
                    process.send_signal(signal.SIGINT)
                    out.was_interrupted = True
                if seconds > limit_s + END_S:
                    process.kill()
                time.sleep(0.02)
        finally:
            if not done:
                process.kill()
    process.returncode = os.waitstatus_to_exitcode(code)
    out.status, out.seconds = process.returncode, time.monotonic() - started
    out.cpu_s = used.ru_utime + used.ru_stime
    return out


@dataclass(frozen=True)
class Place:
    """Where the round works, where its logs go, and until when."""

    workdir: Path
    logs: Path
    deadline: float

    def left_s(self) -> float:
        return self.deadline - time.monotonic()


# --- the tasks and the model ---


def tasks_of(programs: Path, workdir: Path, n: int, sizes: dict[str, int]) -> dict[str, str]:
    """References by name, from the grammar of `trainer fuse`, of these sizes; also written as its row file."""
    # Not all of them have answers here: enough are made for n that have.
    command = [str(programs / "trainer"), "fuse", "--static", f"--number={min(1000, 2 * n + 20)}", "--seed=1"]
    done = subprocess.run([*command, f"--workdir={workdir}"], capture_output=True, text=True, check=False)
    file = workdir / "data" / "processed" / "fused.jsonl"
    if not file.exists():
        raise BenchError(f"trainer fuse: {done.stderr[-1000:]}")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [row for row in rows if round_answers.parts(row["name"]) is not None][:n]
    if len(rows) < n:
        raise BenchError(f"the grammar gave {len(rows)} tasks that there are answers to, not {n}")
    for row in rows:
        for name, size in sizes.items():
            row["pytorch_code"] = re.sub(
                rf"^{name} = \d+$", f"{name} = {size}", row["pytorch_code"], flags=re.MULTILINE
            )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {row["name"]: row["pytorch_code"] for row in rows}


@dataclass
class Model:
    """Answers by task and sample, drawn once."""

    references: dict[str, str]
    samples: int
    answer_s: float
    kinds: dict[str, list[str]] = field(default_factory=dict)
    answers: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, (task, reference) in enumerate(self.references.items()):
            draw = random.Random(number)
            self.kinds[task] = round_answers.kinds(self.samples, draw)
            self.answers[task] = [round_answers.answer(kind, task, reference, draw) for kind in self.kinds[task]]

    def reply(self, call: Call) -> Reply:
        if call.method != "POST":
            return 404, {}, b"{}"
        body = call.body
        prompt = body["messages"][0]["content"]
        task = next(name for name, reference in self.references.items() if reference.strip() in prompt)
        time.sleep(self.answer_s)
        choices = [
            {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            for i, text in enumerate(self.answers[task][: body["n"]])
        ]
        return document(200, {"choices": choices})


# --- what came of it ---


def lines(path: Path) -> Iterator[Json]:
    """Of a journal: the last line may be half there."""
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except ValueError:
            return


def stamp(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def stages_of(verdicts: Sequence[Json]) -> Json:
    """By stage, over all verdicts: how many, and seconds of waiting for it and of running."""
    out: Json = {}
    for stage in STAGES:
        found = [one for verdict in verdicts for one in verdict.get("stages") or [] if one["stage"] == stage]
        ran = [one for one in found if (one.get("run_ms") or 0) > 0]
        out[stage] = {
            "n": len(ran),
            "wait_s": sum(one.get("wait_ms") or 0 for one in found) / 1000,
            "run_s": sum(one.get("run_ms") or 0 for one in found) / 1000,
        }
    return out


def tell(model: Model, journal: Path) -> Json:
    """The round by its journal, which has what was done also when it was interrupted."""
    events = list(lines(journal))
    judged = {event["task"]: event["verdicts"] for event in events if event["event"] == "judged"}
    verdicts = [one for group in judged.values() for one in group if "duplicate_of" not in one]
    unexpected = [
        {"task": task, "sample": i, "kind": kind, "class": verdict["class"], "id": verdict["id"]}
        for task, group in judged.items()
        for i, (kind, verdict) in enumerate(zip(model.kinds[task], group, strict=False))
        if verdict["class"] not in round_answers.MIX[kind][1]
    ]
    groups = [[one for one in group if one.get("finished")] for group in judged.values()]
    spans = [max(stamp(o["finished"]) for o in g) - min(stamp(o["created"]) for o in g) for g in groups if g]
    return {
        "tasks_done": len(judged),
        "answers_sampled": sum(len(event["answers"]) for event in events if event["event"] == "sampled"),
        "verdicts": len(verdicts),
        "classes": dict(Counter(str(one["class"]) for one in verdicts)),
        "timing": dict(Counter(str((one.get("timing") or {}).get("outcome")) for one in verdicts)),
        "unexpected": unexpected,
        "stages": stages_of(verdicts),
        "groups_s": sum(spans),
    }


def round_of(setting: argparse.Namespace, daemon: Daemon, programs: Path, place: Place, has_gpu: bool) -> Json:
    workdir = place.workdir
    model = Model(tasks_of(programs, workdir, setting.tasks, SIZES[has_gpu]), setting.samples, setting.answer_s)
    tasks = workdir / "data" / "processed" / "fused.jsonl"
    out = workdir / "outputs" / "bestofn_run"
    with answering(model.reply) as url:
        ran = run(
            place.left_s(), place.logs / "trainer.log", str(programs / "trainer"), "bestofn", f"--url={daemon.url}",
            f"--endpoint={url}/v1", "--model=scripted", f"--workdir={workdir}", f"--tasks={tasks}", "--max-tasks=0",
            f"--samples={setting.samples}", f"--concurrency={setting.concurrency}",
        )  # fmt: skip
    told = tell(model, out / "journal.jsonl")
    if ran.status != 0 and not ran.was_interrupted:
        print((place.logs / "trainer.log").read_text(errors="replace")[-2000:], file=sys.stderr)
    if (out / "journal.jsonl").exists():
        shutil.copy(out / "journal.jsonl", place.logs / "journal.jsonl")
    report = json.loads((out / "report.json").read_text()) if (out / "report.json").exists() else {}
    rows = sum(1 for _ in lines(out / "kept.jsonl")) if report else None
    told |= {
        "bench": "round", "tasks": setting.tasks, "samples": setting.samples, "concurrency": setting.concurrency,
        "answer_s": setting.answer_s, "status": ran.status, "was_interrupted": ran.was_interrupted,
        "wall_s": ran.seconds, "trainer_cpu_s": ran.cpu_s, "trainer_peak_mb": ran.peak_mb, "kept": rows,
        "sampling_s": report.get("sampling_s"), "judging_s": report.get("judging_s"),
        "journal_mb": (out / "journal.jsonl").stat().st_size / 1e6 if (out / "journal.jsonl").exists() else 0,
        "writing_s": ran.seconds - report["seconds"] if report else None,
    }  # fmt: skip
    return told


def show_round(told: Json) -> None:
    """What is summed over tasks or candidates is so many seconds of as many as were in flight at a time."""
    done, wall = told["tasks_done"], told["wall_s"]
    rows: list[tuple[str, str]] = [
        ("tasks x answers", f"{told['tasks']} x {told['samples']}, {told['concurrency']} tasks in flight"),
        ("done", f"{done} tasks, {told['verdicts']} verdicts" + (", interrupted" if told["was_interrupted"] else "")),
        ("wall time", f"{wall:.1f} s" + (f", {60 * told['verdicts'] / wall:.0f} verdicts a minute" if wall else "")),
    ]
    if told["sampling_s"] is not None:
        before = max(0.0, told["judging_s"] - told["groups_s"])
        rows += [
            ("sampling, over tasks", f"{told['sampling_s']:.1f} s"),
            ("registering, posting and polling, over tasks", f"{before:.1f} s"),
            ("writing the files at the end", f"{told['writing_s']:.2f} s"),
        ]
    rows.append(("from accepted to judged, over groups", f"{told['groups_s']:.1f} s"))
    for stage, one in told["stages"].items():
        each = 1000 * one["run_s"] / one["n"] if one["n"] else 0
        rows.append(
            (f"{stage}: queue + run", f"{one['wait_s']:.1f} + {one['run_s']:.1f} s; {one['n']} of {each:.0f} ms")
        )
    good = told["verdicts"] - len(told["unexpected"])
    rows += [
        ("classes", ", ".join(f"{name} {n}" for name, n in sorted(told["classes"].items(), key=lambda x: -x[1]))),
        ("as the script meant them", f"{good} of {told['verdicts']}"),
        ("timing", ", ".join(f"{name} {n}" for name, n in told["timing"].items())),
        ("kept", "the files were not written" if told["kept"] is None else str(told["kept"])),
        ("trainer", f"{told['trainer_peak_mb']:.1f} MiB at most, {told['trainer_cpu_s']:.2f} s of CPU"),
        ("its journal", f"{told['journal_mb']:.1f} MB"),
    ]
    print("\n| what | |\n| --- | --- |")
    for name, value in rows:
        print(f"| {name} | {value} |")


# --- prepare --enlarge ---

SMALL = """import torch
import torch.nn as nn


class {name}(nn.Module):
    def __init__(self{arguments}):
        super().__init__()
        {init}

    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.rand([4, {channels}, 4, 4])]


def get_init_inputs():
    return [[], {{{sizes}}}]
"""
# As KernelBook's rows are: four by four by four by four.
SHAPES = (
    ("Pointwise", "", "pass", "torch.tanh(x) * torch.sigmoid(x)", "", 4),
    ("Norm", "", "self.norm = nn.LayerNorm(4)", "self.norm(x)", "", 4),
    ("Linear", ", size", "self.layer = nn.Linear(size, size)", "torch.relu(self.layer(x))", "'size': 4", 4),
    ("Conv", ", channels", "self.conv = nn.Conv2d(channels, channels, 3)", "self.conv(x)", "'channels': 4", 4),
    ("Softmax", "", "pass", "torch.softmax(x.flatten(1), 1)", "", 4),
    ("Mean", "", "pass", "x.mean((2, 3), keepdim=True) - x.max()", "", 3),
)


def enlarge_of(setting: argparse.Namespace, url: str, programs: Path, place: Place) -> Json:
    workdir = place.workdir
    file = workdir / "small.jsonl"
    with file.open("w") as to:
        for i, (name, arguments, init, body, sizes, channels) in enumerate(SHAPES):
            source = SMALL.format(name=name, arguments=arguments, init=init, body=body, sizes=sizes, channels=channels)
            row = {"python_code": source, "entry_point": name, "name": name, "uuid": i, "licenses": ["MIT"]}
            to.write(json.dumps(row) + "\n")
    ran = run(
        place.left_s(), place.logs / "trainer.log", str(programs / "trainer"), "prepare", f"--url={url}",
        f"--file={file}", f"--workdir={workdir}", f"--python={setting.python}", "--enlarge", "--max-samples=0",
    )  # fmt: skip
    print((place.logs / "trainer.log").read_text(errors="replace")[-3000:], flush=True)
    processed = workdir / "data" / "processed"
    told = ("name", "timing", "reference_ms", "enlarged")
    tasks = [{key: task.get(key) for key in told} for task in lines(processed / "tasks.jsonl")]
    for task in tasks:
        (task["enlarged"] or {}).pop("source", None)
    return {
        "bench": "enlarge", "rows": len(SHAPES), "status": ran.status, "was_interrupted": ran.was_interrupted,
        "wall_s": ran.seconds, "trainer_peak_mb": ran.peak_mb, "tasks": tasks,
        "dropped": list(lines(processed / "dropped.jsonl")),
    }  # fmt: skip


def show_enlarge(told: Json) -> None:
    print("\n| row | grown | its reference then, ms |\n| --- | --- | --- |")
    for task in told["tasks"]:
        grown = task.get("enlarged")
        how = f"{grown['how']} x {grown['factor']}" if grown else "no"
        print(f"| {task['name']} | {how} | {task['reference_ms'] or task['timing']} |")
    for one in told["dropped"]:
        print(f"| {one.get('name') or one.get('row')} | dropped | {one.get('reason')}: {one.get('detail') or ''} |")
    print(f"\n{told['rows']} rows, {told['wall_s']:.1f} s, status {told['status']}")


# --- all of it ---


@contextmanager
def the_daemon(setting: argparse.Namespace, stack: ExitStack, logs: Path) -> Iterator[tuple[Path, Daemon]]:
    bundle = stack.enter_context(reachable_bundle(setting.bundle.resolve()))
    with running_daemon(bundle / "bin", setting.python, log=logs / "daemon.log") as daemon:
        daemon.wait_until_ready(120)
        yield bundle / "bin", daemon


def measure(setting: argparse.Namespace, stack: ExitStack, place: Place) -> Json:
    if setting.enlarge and setting.url:
        return enlarge_of(setting, setting.url, setting.bundle.resolve() / "bin", place)
    programs, daemon = stack.enter_context(the_daemon(setting, stack, place.logs))
    ready_s = setting.limit_s - place.left_s()
    gpus = daemon.get("/v1/status").get("gpus") or []
    # Nothing outlives the limit.
    watchdog = threading.Timer(max(0.0, place.left_s()) + 2 * END_S, daemon.process.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        told = (
            enlarge_of(setting, daemon.url, programs, place)
            if setting.enlarge
            else round_of(setting, daemon, programs, place, bool(gpus))
        )
    finally:
        watchdog.cancel()
    return told | {"gpus": [gpu.get("name") for gpu in gpus], "ready_s": ready_s, "cores": os.cpu_count()}


def bench(setting: argparse.Namespace) -> Json:
    """Measure, and say what came of it before the daemon is ended: that takes as long as it takes."""
    deadline = time.monotonic() + setting.limit_s
    logs = Path(os.environ.get("OUT") or tempfile.mkdtemp(prefix="bench-round-"))
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        workdir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-round-")))
        told = measure(setting, stack, Place(workdir, logs, deadline))
        (logs / f"{told['bench']}.json").write_text(json.dumps(told) + "\n")
        print(json.dumps(told), flush=True)
        (show_enlarge if setting.enlarge else show_round)(told)
        sys.stdout.flush()
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("VERIFIERD_BUILD", str(ROOT / "build")))
    parser.add_argument("--bundle", type=Path, default=default, help="of make bundle, or a build")
    parser.add_argument("--python", default=os.environ.get("PYTHON", sys.executable), help="with torch and triton")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--concurrency", type=int, default=8, help="tasks in flight")
    parser.add_argument("--answer-s", type=float, default=0.0, help="how long the model takes for one request")
    parser.add_argument(
        "--limit-s", type=float, default=240.0, help="all of it but the daemon's end; what is done by then is reported"
    )
    parser.add_argument("--enlarge", action="store_true", help="trainer prepare --enlarge on six small modules instead")
    parser.add_argument("--url", help="with --enlarge: ask this daemon, and start none")
    setting = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell has what it runs in the background ignore it, and so would the trainer, which is ended by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        told = bench(setting)
    except (Exception, KeyboardInterrupt) as error:
        why = str(error) if isinstance(error, BenchError | DaemonError) else f"{type(error).__name__}: {error}"
        print(json.dumps({"bench": "enlarge" if setting.enlarge else "round", "failure": why}))
        print(f"bench-round: {why}", file=sys.stderr)
        return 1
    is_well = told["status"] == 0 or told["was_interrupted"]
    return 0 if is_well and not told.get("unexpected") else 1


if __name__ == "__main__":
    sys.exit(main())
