"""make bench-learning: does a model learn to write kernels? Reward after SFT, and after each method behind it.

The tasks are tests/bench/family.py's, the model has random weights, the judge is the real daemon (until `full`, for
which the interpreter will do; with --timed the reward has the speed in it, and models compute on the CPU, since a GPU
cannot train and time at once), and every step is one of trainer(1)'s own commands. Best-of-N, weighted SFT,
REINFORCE and GRPO each begin at SFT's adapter, and have as many answers judged. Held-out tasks are in no training.
Each seed has its own weights, tasks and draws. Raw data are OUT/learning.jsonl, one object a line; OUT/report is a
working directory whose report (by `trainer report`) has every curve.

    ARGS="--tiny --out DIR"           the mechanics alone, on a CPU
    ARGS="--parallel 3 --limit-s 480" all three seeds side by side, on a machine with cores for it
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "client" / "python"), str(ROOT / "tests" / "bench")]

import family  # noqa: E402
from daemon import Daemon, running_daemon  # noqa: E402
from finetune import checkpoint  # noqa: E402

Json = dict[str, Any]
INTERRUPTED = 75  # trainer(1): ended with a checkpoint
UNEXTRACTED = 9  # trainer(1): an evaluation whose answers have no code, as those of random weights
# Student's t for two-sided 95 %, by degrees of freedom.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
PHASES = ("base", "sft", "bestofn", "weighted", "reinforce", "grpo")
ANSWER_TOKENS = 40  # a right answer has 23 at most


class BenchError(Exception):
    """Something that ends a seed; the text is for people."""


@dataclass(frozen=True)
class Sizes:
    """Of the model, the sets of tasks, and the training. Each method has rounds * tasks * samples answers judged."""

    hidden: int = 128
    layers: int = 2
    rank: int = 32
    rows: int = 256
    wrong: float = 0.2  # the chance that a step of a row's answer is drawn at random: what rewards have to mend
    sft_epochs: int = 100
    sft_batch: int = 64
    sft_rate: float = 1.5e-3
    tasks: int = 24
    samples: int = 8
    tasks_per_step: int = 4
    rounds: int = 2
    keep: int = 3
    bestofn_epochs: int = 3
    bestofn_batch: int = 16
    bestofn_rate: float = 5e-4
    reinforce_rate: float = 2e-4
    held_out: int = 24
    held_out_samples: int = 2


TINY = Sizes(
    hidden=32, layers=1, rank=8, rows=8, sft_epochs=2, sft_batch=4, tasks=2, samples=2, tasks_per_step=1,
    rounds=1, bestofn_epochs=1, bestofn_batch=2, held_out=2, held_out_samples=1,
)  # fmt: skip


class Clock:
    """How much of the time allowed is left."""

    def __init__(self, limit_s: float) -> None:
        self._end = time.monotonic() + limit_s
        self.evaluation_s = 5.0  # the longest yet: so much is kept for the last one

    def left(self) -> float:
        return self._end - time.monotonic()


class Record:
    """learning.jsonl."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.rows: list[Json] = []

    def add(self, **row: Any) -> None:
        with self._lock, self._path.open("a") as file:
            self.rows.append(row)
            file.write(json.dumps(row) + "\n")


@dataclass(frozen=True)
class Machine:
    """Where programs are, and who judges."""

    programs: Path
    python: str
    daemon: Daemon
    environment: dict[str, str]
    until: str
    methods: Sequence[str]


class Seed:
    """One seed's run, in a working directory of its own."""

    drawing = threading.Lock()  # weights are drawn by torch's one generator

    def __init__(self, number: int, machine: Machine, sizes: Sizes, directory: Path, record: Record, clock: Clock):
        self.number, self.machine, self.sizes, self.directory = number, machine, sizes, directory
        self.record, self.clock = record, clock
        self.endpoint = ""

    # --- programs ---

    def trainer(self, *arguments: str, soft_s: float | None = None) -> int:
        """The exit status: 0, 9 of an evaluation, 75 after soft_s. BenchError: any other, or no time is left."""
        command = [str(self.machine.programs / "trainer"), *arguments, f"--workdir={self.directory}"]
        with (self.directory / "programs.log").open("ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self.machine.environment)
            try:
                status = process.wait(max(1.0, self.clock.left() if soft_s is None else soft_s))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM if soft_s is not None else signal.SIGKILL)
                try:
                    status = process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    status = process.wait()
        is_well = status in (0, UNEXTRACTED) if arguments[0] == "evaluate" else status == 0
        if is_well or (status == INTERRUPTED and soft_s is not None):
            return status
        why = "ran out of time" if self.clock.left() <= 0 else f"ended with {status}"
        tail = (self.directory / "programs.log").read_text(errors="replace").splitlines()[-4:]
        raise BenchError(f"seed {self.number}: trainer {arguments[0]} {why}: " + " / ".join(tail))

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The base model behind an endpoint of the product's own."""
        command = [self.machine.python, "-m", "finetune", "serve", str(self.directory / "base")]
        command += ["--port=0", "--name=base"]
        with (self.directory / "endpoint.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=self.machine.environment
            )
        watchdog = threading.Timer(max(1.0, self.clock.left()), process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "http://" not in line:
                raise BenchError(
                    f"seed {self.number}: no endpoint: {(self.directory / 'endpoint.log').read_text()[-500:]}"
                )
            self.endpoint = "http://" + line.strip().split("http://")[1]
            yield
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()

    def load_adapter(self, name: str, path: Path) -> None:
        body = json.dumps({"lora_name": name, "lora_path": str(path)}).encode()
        request = urllib.request.Request(
            self.endpoint + "/load_lora_adapter", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=max(1.0, self.clock.left())) as reply:
            reply.read()

    # --- phases ---

    def common(self, model: str) -> list[str]:
        return [
            f"--url={self.machine.daemon.url}", f"--endpoint={self.endpoint}", f"--model={model}", "--temperature=1",
            f"--max-tokens={ANSWER_TOKENS}", "--policy=strict", f"--until={self.machine.until}", "--level=0",
            "--max-tasks=0", f"--seed={self.number + 1}",
        ]  # fmt: skip

    def evaluate(self, phase: str, model: str, **more: Any) -> None:
        began = time.monotonic()
        name = f"seed{self.number}_{phase}"
        self.trainer(
            "evaluate", *self.common(model), f"--tasks={self.directory / 'held_out.jsonl'}", f"--name={name}",
            f"--samples={self.sizes.held_out_samples}", "--concurrency=8",
        )  # fmt: skip
        seconds = time.monotonic() - began
        self.clock.evaluation_s = max(self.clock.evaluation_s, seconds)
        document = json.loads((self.directory / "outputs" / f"eval_{name}.json").read_text())
        rows = [r for r in document["detailed_results"] if r.get("reward") is not None]
        rewards = [float(r["reward"]) for r in rows]
        if not rewards:
            raise BenchError(f"seed {self.number}: {phase}: nothing was judged")
        correct = [float(r["components"].get("correct") or 0) for r in rows]
        speedups = [float(s) for r in rows if (s := r["components"].get("speedup")) is not None]
        self.record.add(
            kind="evaluation", seed=self.number, phase=phase, answers=len(rewards), reward=statistics.fmean(rewards),
            speedups=speedups, correct=statistics.fmean(correct), rewards=rewards, evaluation_s=round(seconds, 2),
            **more,
        )  # fmt: skip
        print(
            f"  seed {self.number} {phase:<10} mean reward {statistics.fmean(rewards):.3f}, "
            f"correct {100 * statistics.fmean(correct):.0f} % of {len(rewards)} answers ({seconds:.0f} s)",
            flush=True,
        )

    def prepare(self) -> None:
        s = self.sizes
        with self.drawing:
            parameters = family.make_base(self.directory / "base", self.number, s.hidden, s.layers)
        learn, tasks, held_out = family.split(self.number, [s.rows, s.tasks, s.held_out])
        family.write_rows(self.directory / "rows.jsonl", family.training_rows(learn, self.number, s.wrong))
        family.write_rows(self.directory / "tasks.jsonl", map(family.task_row, tasks))
        family.write_rows(self.directory / "held_out.jsonl", map(family.task_row, held_out))
        self.trainer(
            "prepare", "--static", f"--file={self.directory / 'rows.jsonl'}", "--max-samples=0",
            f"--python={self.machine.python}",
        )  # fmt: skip
        self.record.add(kind="seed", seed=self.number, parameters=parameters, sizes=asdict(s))

    def settings(self, *more: str) -> list[str]:
        s = self.sizes
        return [
            f"--python={self.machine.python}", f"--model={self.directory / 'base'}", f"--lora-r={s.rank}",
            f"--lora-alpha={s.rank}", "--lora-dropout=0", "--checkpointing=false", "--length=256",
            "--save-steps=1000000", f"--seed={self.number + 1}", *more,
        ]  # fmt: skip

    def sft(self) -> Path:
        s, began = self.sizes, time.monotonic()
        options = self.settings(f"--epochs={s.sft_epochs}", f"--batch={s.sft_batch}", f"--learning-rate={s.sft_rate}")
        options.append("--schedule=constant")
        self.trainer("sft", "--accumulation=1", "--least-loss=0", *options)
        path = self.directory / "checkpoints" / "sft_final"
        self.load_adapter("sft", path)
        self.evaluate("sft", "sft", training_s=round(time.monotonic() - began, 2))
        return path

    def in_rounds(self, method: str, adapter: Path) -> None:
        """Best-of-N learns from the best answers of a round, weighted from all by their reward."""
        s, began, kept, name = self.sizes, time.monotonic(), 0, "sft"
        command = ["sft", "--preset=bestofn"] if method == "bestofn" else [method]
        for number in range(1, s.rounds + 1):
            run = f"{method}{number}"
            self.trainer(
                "bestofn", *self.common(name), f"--tasks={self.directory / 'tasks.jsonl'}", f"--name={run}",
                f"--samples={s.samples}", f"--keep={s.keep}", "--concurrency=8",
            )  # fmt: skip
            data = (
                self.directory
                / "outputs"
                / f"bestofn_{run}"
                / ("kept.jsonl" if method == "bestofn" else "candidates.jsonl")
            )
            rows = [json.loads(line) for line in data.read_text().splitlines()]
            kept += len(rows)
            rewards = {row["reward"] if method == "bestofn" else row["verdict"].get("reward") for row in rows}
            # As `trainer run` does, nothing is learned from a round that kept nothing; nor from weights that are one.
            if not rows or (method == "weighted" and len(rewards - {None}) < 2):
                continue
            self.trainer(
                *command, "--accumulation=1", "--least-loss=0",
                *self.settings(
                    f"--adapter={adapter}", f"--data={data}", f"--run={run}_train", f"--final={run}",
                    f"--epochs={s.bestofn_epochs}", f"--batch={s.bestofn_batch}", f"--learning-rate={s.bestofn_rate}",
                ),
            )  # fmt: skip
            adapter, name = self.directory / "checkpoints" / run, run
            self.load_adapter(name, adapter)
        judged = s.rounds * s.tasks * s.samples
        self.evaluate(method, name, kept=kept, judged=judged, training_s=round(time.monotonic() - began, 2))

    def by_gradient(self, method: str, adapter: Path) -> None:
        """REINFORCE or GRPO, which sample by themselves."""
        s, began = self.sizes, time.monotonic()
        soft_s = max(1.0, self.clock.left() - self.clock.evaluation_s - 10)
        options = self.settings(
            f"--adapter={adapter}", f"--tasks={self.directory / 'tasks.jsonl'}", f"--url={self.machine.daemon.url}",
            f"--epochs={s.rounds}", f"--tasks-per-step={s.tasks_per_step}", f"--samples={s.samples}",
            f"--batch={s.tasks_per_step * s.samples}", f"--learning-rate={s.reinforce_rate}", "--temperature=1",
            f"--answer-tokens={ANSWER_TOKENS}", "--reward=staged", f"--until={self.machine.until}", "--policy=strict",
            "--level=0", "--max-tasks=0", "--constant-steps=1000000", f"--final={method}_final",
        )  # fmt: skip
        status = self.trainer(method, *options, soft_s=soft_s)
        steps = self.metrics(method)
        for row in steps:
            self.record.add(kind="step", seed=self.number, method=method, **row)
        path = self.directory / "checkpoints" / f"{method}_final"
        if status == INTERRUPTED:  # what it had by then
            found = checkpoint.newest(self.directory / "checkpoints" / method, print)
            path = found[0] if found else adapter
        self.load_adapter(method, path)
        waited = math.fsum(float(row.get("wait_s") or 0) for row in steps)
        self.evaluate(
            method, method, steps=len(steps), is_complete=status == 0,
            judged=sum(len(row.get("rewards", [])) for row in steps), waited_s=round(waited, 2),
            training_s=round(time.monotonic() - began, 2),
        )  # fmt: skip

    def metrics(self, run: str) -> list[Json]:
        path = self.directory / "outputs" / f"train_{run}" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def run(self) -> None:
        """All of it. What fails is told and recorded; what was measured before it stays."""
        try:
            self.prepare()
            with self.serving():
                self.evaluate("base", "base")
                adapter = self.sft()
                for method in self.machine.methods:
                    try:
                        (self.in_rounds if method in ("bestofn", "weighted") else self.by_gradient)(method, adapter)
                    except Exception as error:
                        self.fail(error)
        except Exception as error:  # the other seeds, and the table, are worth having
            self.fail(error)

    def fail(self, error: Exception) -> None:
        why = str(error) if isinstance(error, BenchError) else f"seed {self.number}: {type(error).__name__}: {error}"
        self.record.add(kind="failure", seed=self.number, why=why)
        print(f"  {why}", flush=True)


# --- figures ---


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and half the width of Student's 95 % interval; None where one value has none."""
    if len(values) < 2:
        return statistics.fmean(values), None
    return statistics.fmean(values), T95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))


def shown(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, half = interval(values)
    return f"{mean:.3f}" if half is None else f"{mean:.3f} ± {half:.3f}"


def table(rows: Sequence[Json], seeds: Sequence[int]) -> str:
    """Rewards and shares of correct answers by seed and phase, with the differences to SFT within each seed."""
    by = {(r["seed"], r["phase"]): r for r in rows if r["kind"] == "evaluation"}
    lines = [
        "| held-out tasks | " + " | ".join(f"seed {n}" for n in seeds) + " | mean, 95 % | less SFT's, 95 % | correct |",
        "|" + " --- |" * (len(seeds) + 4),
    ]
    for phase in PHASES:
        found = [by.get((n, phase)) for n in seeds]
        known = [r for r in found if r]
        gains = [
            by[n, phase]["reward"] - by[n, "sft"]["reward"]
            for n in seeds
            if phase in PHASES[2:] and (n, phase) in by and (n, "sft") in by
        ]
        each = " | ".join("-" if r is None else f"{r['reward']:.3f}" for r in found)
        correct = shown([r["correct"] for r in known])
        lines.append(f"| {phase} | {each} | {shown([r['reward'] for r in known])} | {shown(gains)} | {correct} |")
    short = [
        f"{r['phase']} of seed {r['seed']} after {r['steps']} steps"
        for r in by.values()
        if r.get("is_complete") is False
    ]
    return "\n".join(lines) + (f"\n\ncut short by the limit: {', '.join(sorted(short))}" if short else "")


def collect(directory: Path, seeds: Sequence[Seed], record: Record) -> Path:
    """A working directory of all seeds' curves and evaluations, for `trainer report`."""
    out = directory / "report" / "outputs"
    shutil.rmtree(out.parent, ignore_errors=True)
    out.mkdir(parents=True)
    for seed in seeds:
        for run in (seed.directory / "outputs").glob("train_*"):
            if (run / "metrics.jsonl").exists():
                to = out / f"train_seed{seed.number}_{run.name.removeprefix('train_')}"
                to.mkdir()
                shutil.copy(run / "metrics.jsonl", to)
        for run in (seed.directory / "outputs").glob("bestofn_*"):
            if (run / "candidates.jsonl").exists():
                shutil.copytree(run, out / f"bestofn_seed{seed.number}_{run.name.removeprefix('bestofn_')}")
        for path in (seed.directory / "outputs").glob("eval_*.json"):
            shutil.copy(path, out)
    mean_curve(out / "train_mean_reinforce" / "metrics.jsonl", record.rows)
    return out.parent


def mean_curve(path: Path, rows: Sequence[Json]) -> None:
    """REINFORCE's reward by step, over the seeds that came to it."""
    by_step: dict[int, list[float]] = {}
    for row in rows:
        if row["kind"] == "step" and row["method"] == "reinforce" and row.get("reward_mean") is not None:
            by_step.setdefault(row["step"], []).append(row["reward_mean"])
    if by_step:
        family.write_rows(
            path, ({"step": n, "reward_mean": statistics.fmean(r), "seeds": len(r)} for n, r in sorted(by_step.items()))
        )


# --- the whole ---


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What each method teaches a model made from nothing.")
    parser.add_argument("--seeds", default="", help="numbers, separated by commas (default 0,1,2; with --tiny 0)")
    parser.add_argument(
        "--limit-s", type=float, default=480.0, help="of all of it; REINFORCE and GRPO are cut short for it"
    )
    parser.add_argument("--parallel", type=int, default=1, help="seeds side by side")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, which learn nothing")
    parser.add_argument("--methods", default=",".join(PHASES[2:]))
    parser.add_argument("--timed", action="store_true", help="judge until `timing`; models compute on the CPU")
    parser.add_argument("--device", default="auto", help="of the daemon: where kernels run")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "learning")
    for name, value in asdict(Sizes()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), help=f"default {value}")
    given = parser.parse_args()
    given.sizes = replace(
        TINY if given.tiny else Sizes(),
        **{name: value for name in asdict(Sizes()) if (value := getattr(given, name)) is not None},
    )
    given.seeds = [int(n) for n in (given.seeds or ("0" if given.tiny else "0,1,2")).split(",")]
    given.methods = given.methods.split(",")
    if unknown := set(given.methods) - set(PHASES[2:]):
        parser.error(f"--methods: there is no {', '.join(sorted(unknown))}")
    if len(given.seeds) - 1 > max(T95):
        parser.error(f"--seeds: at most {max(T95) + 1}")
    return given


def environment_of(programs: Path) -> dict[str, str]:
    """Each process computes with one thread: the model is small, and the daemon needs the cores."""
    package = os.pathsep.join(filter(None, (str(programs.parent / "lib" / "verifierd"), os.environ.get("PYTHONPATH"))))
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": package, "TOKENIZERS_PARALLELISM": "false"}


def main() -> int:
    given = arguments_of()
    python = os.environ.get("PYTHON", sys.executable)
    programs = Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build")).resolve() / "bin"
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    began, record = time.monotonic(), Record(given.out / "learning.jsonl")
    seeds: list[Seed] = []
    try:
        measure(given, python, programs, seeds, record)
        report = collect(given.out, seeds, record)
        subprocess.run([str(programs / "trainer"), "report", f"--workdir={report}"], check=False, timeout=30)
    except (Exception, KeyboardInterrupt) as error:  # what was measured by then is told
        record.add(kind="failure", why=f"{type(error).__name__}: {error}")
        print(f"learning: {type(error).__name__}: {error}", file=sys.stderr)
    text = table(record.rows, given.seeds)
    record.add(kind="end", seconds=round(time.monotonic() - began, 1), load=os.getloadavg())
    print(f"\n{time.monotonic() - began:.0f} s; raw data in {given.out / 'learning.jsonl'}\n\n{text}")
    phases = {r["phase"] for r in record.rows if r["kind"] == "evaluation"}
    return 0 if phases == {*PHASES[:2], *given.methods} else 1


def measure(given: argparse.Namespace, python: str, programs: Path, seeds: list[Seed], record: Record) -> None:
    """All seeds; they are added to the list before they begin."""
    clock = Clock(given.limit_s)
    with running_daemon(programs, python, f"--device={given.device}", log=given.out / "verifierd.log") as daemon:
        daemon.wait_until_ready(given.limit_s / 3)
        own = {"CUDA_VISIBLE_DEVICES": ""} if given.timed else {}
        environment, until = environment_of(programs) | own, "timing" if given.timed else "full"
        machine = Machine(programs, python, daemon, environment, until, given.methods)
        for number in given.seeds:
            directory = given.out.resolve() / f"seed{number}"
            directory.mkdir()
            seeds.append(Seed(number, machine, given.sizes, directory, record, clock))
        env = daemon.get("/v1/status")
        record.add(
            kind="machine", cores=os.cpu_count(), load=os.getloadavg(), gpus=env.get("gpus"), daemon=given.device
        )
        with ThreadPoolExecutor(given.parallel) as pool:
            list(pool.map(Seed.run, seeds))


if __name__ == "__main__":
    sys.exit(main())
