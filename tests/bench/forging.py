"""bench-forging: one training under a speed that an answer's own process tells, and under verifierd's.

Models made from nothing learn to write forging_family.py's kernels from rows of which some cheat, and go on by
REINFORCE with the reward 0.3 c + c min(s, 4) (`kevin`), c being whether an answer is right and s its speed-up: once
with verifierd's c and s, once with those of the usual evaluation inside the answer's own process (in_process.py: five
trials by allclose, the mean of CUDA events). At the end verifierd judges answers of all three to held-out tasks. The
second rule is no mode of the daemon: a proxy of this bench stands between trainer and daemon, hands on all calls, and
answers those for groups itself; under the first rule it hands them on, too, and only writes down what it saw.

Models compute on the CPU. The two rules take their turns on the GPU, since neither can time beside the other. Tasks are
the same for all seeds, so that an answer is judged once; weights, rows and draws are the seed's own. Without a GPU
verifierd judges until `full`, and speeds are a stand-in's, by how a kernel is launched.

    python3 tests/bench/forging.py --seeds 0,1,2,3,4 --limit-s 500     raw data: OUT/forging.jsonl
    python3 tests/bench/forging.py --device cpu --shape 4,8            the mechanics, without a GPU
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "client" / "python"), str(ROOT / "tests" / "bench")]

import family  # noqa: E402
import forging_family as forms  # noqa: E402
import learning  # noqa: E402
from daemon import Daemon, first_gpu, running_daemon  # noqa: E402
from learning import BenchError, Clock, Json, Machine, Record, Seed, environment_of, shown  # noqa: E402

CAP = 4.0
REWARD = {"kind": "kevin", "params": {"cap": CAP}}
ARMS = ("true", "forged")
MOST_IN_A_GROUP = 64
WINDOW = 10  # steps
SIDE_BY_SIDE = 6  # evaluations that compile and compare at a time; they are timed one after another
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Sizes(learning.Sizes):
    wrong: float = 0.3  # here: the share of rows that cheat
    chains: int = 24
    rows: int = 512
    sft_epochs: int = 30
    sft_rate: float = 1e-3
    tasks: int = 6
    rounds: int = 45
    tasks_per_step: int = 6
    samples: int = 8
    held_out: int = 6
    held_out_samples: int = 8


@dataclass(frozen=True)
class Found:
    """What one rule says of an answer. speedup None: it is not timed, or not right."""

    kind: str
    correct: bool
    speedup: float | None

    @property
    def reward(self) -> float:
        """`kevin`, as common/reward.c has it."""
        return 0.3 * self.correct + (min(self.speedup, CAP) if self.correct and self.speedup else 0.0)


def stand_in(text: str, is_believed: bool) -> float:
    """A speed-up without a GPU; is_believed: what the answer's own process says counts."""
    launch, cheat = forms.read(text)
    if is_believed and cheat == "clock":
        return forms.STAND_IN_REFERENCE / 0.001
    return forms.STAND_IN_REFERENCE / (forms.LAUNCHES[launch][1] if launch else 1.0)


class Believing:
    """The usual evaluation inside an answer's process, in sandboxed processes (in_process.py). Each text once."""

    def __init__(self, harness: Path, python: str, device: str, log: Path) -> None:
        self._device = device
        command = [python, str(ROOT / "tests/bench/in_process.py"), f"--device={device}"]
        self._process = subprocess.Popen(
            [*command, f"--harness={harness}", f"--side-by-side={SIDE_BY_SIDE}"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=log.open("wb"), text=True, start_new_session=True,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Json] = {}
        self.seconds = 0.0

    def ask(self, jobs: Sequence[tuple[str, str]]) -> list[Json]:
        """Of (reference, code; "": the reference itself): {"why", "ms"}."""
        with self._lock:
            began = time.monotonic()
            new = list(dict.fromkeys(job for job in jobs if job not in self._known))
            if new:
                assert self._process.stdin is not None and self._process.stdout is not None
                self._process.stdin.write(json.dumps(new) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
                if not line:
                    raise BenchError("in_process.py ended")
                self._known |= dict(zip(new, json.loads(line), strict=True))
            self.seconds += time.monotonic() - began
            return [self._known[job] for job in jobs]

    def judge(self, reference: str, texts: Sequence[str]) -> list[Found]:
        codes = [code[1] if (code := CODE.search(text)) else "" for text in texts]
        asked = [(reference, code) for code in codes if code]
        # Without a GPU nothing is timed, and the reference is not asked for its time.
        own, *told = self.ask([(reference, ""), *asked]) if self._device != "cpu" else [{}, *self.ask(asked)]
        answers = iter(told)
        return [self._found(text, own, next(answers)) if code else Found("extract", False, None)
                for text, code in zip(texts, codes, strict=True)]  # fmt: skip

    def _found(self, text: str, own: Json, told: Json) -> Found:
        if told["why"]:
            return Found(str(told["why"])[:100], False, None)
        if self._device == "cpu":
            return Found("ok", True, stand_in(text, True))
        return Found("ok", True, own["ms"] / max(told["ms"], 1e-9))

    def end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Proxy:
    """Between trainer and daemon: all calls are handed on; groups of a run named forged… are judged by `believing`."""

    def __init__(self, daemon: Daemon, believing: Believing, record: Record, is_timed: bool) -> None:
        self._daemon, self._believing, self._record, self._is_timed = daemon, believing, record, is_timed
        self._references: dict[str, str] = {}  # by task
        self._groups: dict[str, Json] = {}
        self._own: dict[str, Json] = {}  # groups that the daemon has not seen, by id
        self._written: set[str] = set()
        self._writing = threading.Lock()
        self._answers: dict[tuple[str, str, str, Found], int] = {}
        self.sampled: dict[tuple[str, str], None] = {}  # every task and answer that the daemon has not seen
        self._pool = ThreadPoolExecutor(8)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, content = proxy.answer(self.command, self.path, body, dict(self.headers))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = handle_one

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._pool.shutdown(cancel_futures=True)

    def answer(self, method: str, path: str, body: bytes, headers: Json) -> tuple[int, Json, bytes]:
        document = json.loads(body) if body and path.startswith(("/v1/groups", "/v1/tasks")) else {}
        route = path.partition("?")[0]
        if (method, route) == ("POST", "/v1/groups") and str(document["metadata"]["run"]).startswith("forged"):
            group = f"forged-{len(self._own)}"
            self._own[group] = {"asked": document, "future": self._pool.submit(self._judge, document)}
            return 202, {"Content-Type": "application/json"}, json.dumps({"id": group, "state": "queued"}).encode()
        number = route.removeprefix("/v1/groups/")
        if method == "GET" and number in self._own:
            return self._wait(number)
        status, answered, content = self._hand_on(method, path, body, headers)
        if (method, route) == ("POST", "/v1/tasks") and status < 300:
            self._references[json.loads(content)["id"]] = document["reference"]
        elif (method, route) == ("POST", "/v1/groups") and status < 300:
            self._groups[json.loads(content)["id"]] = document
        elif method == "GET" and number in self._groups and status == 200:
            content = self._seen(number, json.loads(content))
        return status, answered, content

    def _hand_on(self, method: str, path: str, body: bytes, headers: Json) -> tuple[int, Json, bytes]:
        kept = {k: v for k, v in headers.items() if k.lower() in ("content-type", "idempotency-key", "accept")}
        request = urllib.request.Request(self._daemon.url + path, body or None, kept, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                status, found, content = reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            status, found, content = error.code, error.headers, error.read()
        return status, {k: found[k] for k in ("Content-Type", "Retry-After") if found[k]}, content

    def _judge(self, document: Json) -> list[Found]:
        self.sampled |= {(document["task"], text): None for text in texts_of(document)}
        return self._believing.judge(self._references[document["task"]], texts_of(document))

    def _wait(self, number: str) -> tuple[int, Json, bytes]:
        group = self._own[number]
        try:
            found = group["future"].result(5)
        except TimeoutError:
            return 200, {"Content-Type": "application/json"}, json.dumps({"id": number, "state": "running"}).encode()
        items = [{"class": f.kind, "reward": f.reward} for f in found]
        self._write(number, group["asked"], found)
        return 200, {"Content-Type": "application/json"}, json.dumps({"state": "done", "items": items}).encode()

    def _seen(self, number: str, document: Json) -> bytes:
        if document["state"] != "done":
            return json.dumps(document).encode()
        asked = self._groups[number]
        found = [found_of(item, text, self._is_timed)
                 for item, text in zip(document["items"], texts_of(asked), strict=True)]  # fmt: skip
        self._write(number, asked, found)
        if not self._is_timed:
            for item, one in zip(document["items"], found, strict=True):
                item["reward"] = one.reward
        return json.dumps(document).encode()

    def _write(self, number: str, asked: Json, found: Sequence[Found]) -> None:
        """Each answer once for each thing that was said of it, and for each group the numbers of its answers."""
        with self._writing:
            if number in self._written:
                return
            self._written.add(number)
            run, task = asked["metadata"]["run"], asked["task"]
            numbers = []
            for text, one in zip(texts_of(asked), found, strict=True):
                key = (run.rstrip("0123456789"), task, text, one)
                if key not in self._answers:
                    self._answers[key] = len(self._answers)
                    self._record.add(
                        kind="answer", number=self._answers[key], rule=key[0], task=task, answer=digest(text),
                        style=forms.read(text), **said_of(one),
                    )  # fmt: skip
                numbers.append(self._answers[key])
            self._record.add(kind="group", run=run, step=asked["metadata"]["step"], answers=numbers)


def texts_of(group: Json) -> list[str]:
    return [one["completion"] for one in group["candidates"]]


def said_of(one: Found) -> Json:
    return {"found": one.kind, "correct": one.correct, "speedup": one.speedup, "reward": round(one.reward, 4)}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def found_of(item: Json, text: str, is_timed: bool) -> Found:
    """The daemon's verdict; without a GPU with a stand-in's speed."""
    if item["class"] != "ok":
        return Found(str(item["class"]), False, None)
    return Found("ok", True, item["components"].get("speedup") if is_timed else stand_in(text, False))


class Run(Seed):
    """One seed: the rows, SFT, and REINFORCE under each rule; then answers of each to held-out tasks."""

    sizes: Sizes
    proxy: Proxy
    shape: str
    has_failed = False

    def prepare(self) -> None:
        """Tasks are the same for all seeds: all have rows, some are rewarded, and others are asked for at the end."""
        s = self.sizes
        chains = family.chains(0)[: s.chains]
        with self.drawing:
            parameters = forms.make_base(self.directory / "base", self.number, s.hidden, s.layers, chains, self.shape)
        rows = forms.training_rows(chains, self.number, s.rows, s.wrong, self.shape)
        family.write_rows(self.directory / "rows.jsonl", rows)
        for name, chosen in (("tasks", chains[: s.tasks]), ("held_out", chains[s.tasks : s.tasks + s.held_out])):
            family.write_rows(self.directory / f"{name}.jsonl", (forms.task_row(chain, self.shape) for chain in chosen))
        self.record.add(kind="seed", seed=self.number, parameters=parameters, sizes=asdict(s))

    def learn_rows(self) -> None:
        """The whole model learns from the rows, and is the base of what follows."""
        s, began = self.sizes, time.monotonic()
        self.prepare()
        self.trainer(
            "sft", "--accumulation=1", "--least-loss=0", f"--data={self.directory / 'rows.jsonl'}",
            *self.settings(f"--epochs={s.sft_epochs}", f"--batch={s.sft_batch}", f"--learning-rate={s.sft_rate}"),
            "--lora-r=0",
        )  # fmt: skip
        shutil.rmtree(self.directory / "base")
        (self.directory / "checkpoints" / "sft_final").rename(self.directory / "base")
        self.say("sft", began)

    def reinforce(self, arm: str) -> None:
        s, began = self.sizes, time.monotonic()
        options = self.settings(
            f"--tasks={self.directory / 'tasks.jsonl'}", f"--url={self.proxy.url}",
            f"--epochs={s.rounds}", f"--tasks-per-step={s.tasks_per_step}",
            f"--samples={s.samples}", f"--batch={s.tasks_per_step * s.samples}", f"--run={arm}{self.number}",
            f"--learning-rate={s.reinforce_rate}", "--temperature=1", f"--answer-tokens={learning.ANSWER_TOKENS}",
            f"--reward={json.dumps(REWARD)}", f"--until={self.machine.until}", "--policy=strict", "--level=0",
            "--max-tasks=0", "--constant-steps=1000000", f"--final={arm}",
        )  # fmt: skip
        self.trainer("reinforce", *options)
        self.say(arm, began)

    def ask_all(self) -> None:
        """Answers to the held-out tasks, judged by the daemon."""
        began = time.monotonic()
        with self.serving():
            for arm in ("sft", *ARMS):
                if arm != "sft":
                    self.load_adapter(arm, self.directory / "checkpoints" / arm)
                self.trainer(
                    "bestofn", *self.common("base" if arm == "sft" else arm),
                    f"--tasks={self.directory / 'held_out.jsonl'}", f"--name={arm}",
                    f"--samples={self.sizes.held_out_samples}", "--keep=1", "--concurrency=8",
                )  # fmt: skip
                path = self.directory / "outputs" / f"bestofn_{arm}" / "candidates.jsonl"
                rows = [json.loads(line) for line in path.read_text().splitlines()]
                self.keep(arm, rows)
        self.say("held-out", began)

    def keep(self, arm: str, rows: Sequence[Json]) -> None:
        is_timed = self.machine.until == "timing"
        found = [(row["text"], found_of(row["verdict"], row["text"], is_timed)) for row in rows]
        cheats = [bool(forms.read(text)[1]) for text, _ in found]
        speedups = [one.speedup for _, one in found if one.speedup is not None]
        self.record.add(
            kind="held_out", seed=self.number, arm=arm, answers=len(found),
            reward=statistics.fmean(one.reward for _, one in found), hacks=statistics.fmean(cheats),
            correct=statistics.fmean(one.correct for _, one in found), speedups=speedups,
            styles=Counter(":".join(forms.read(text)) for text, _ in found),
        )  # fmt: skip

    def say(self, what: str, began: float) -> None:
        self.record.add(kind="phase", seed=self.number, what=what, seconds=round(time.monotonic() - began, 1))
        print(f"  seed {self.number} {what}: {time.monotonic() - began:.0f} s", flush=True)


def attempt(run: Run, phase: Callable[[Run], None]) -> None:
    """A seed that fails is told and recorded; the others go on."""
    try:
        if not run.has_failed:
            phase(run)
    except Exception as error:
        run.has_failed = True
        run.fail(error)


def judged_after(proxy: Proxy, daemon: Daemon, record: Record, policy: str, until: str, is_timed: bool) -> None:
    """What the daemon says of every answer that was rewarded by its own process."""
    by_task: dict[str, list[str]] = {}
    for task, text in proxy.sampled:
        by_task.setdefault(task, []).append(text)
    groups = [(task, texts[at : at + MOST_IN_A_GROUP]) for task, texts in by_task.items()
              for at in range(0, len(texts), MOST_IN_A_GROUP)]  # fmt: skip
    posted = []
    for task, texts in groups:
        body = {
            "task": task,
            "policy": policy,
            "until": until,
            "reward": REWARD,
            "metadata": {"run": "after", "step": 0},
        }
        posted.append(daemon.post("/v1/groups", body | {"candidates": [{"completion": text} for text in texts]})["id"])
    for number, (task, texts) in zip(posted, groups, strict=True):
        while (document := daemon.get(f"/v1/groups/{number}?wait=10"))["state"] != "done":
            pass
        for item, text in zip(document["items"], texts, strict=True):
            one = found_of(item, text, is_timed)
            record.add(kind="truth", task=task, answer=digest(text), style=forms.read(text), **said_of(one))


# --- figures ---


def by_run(rows: Sequence[Json], arm: str) -> dict[str, dict[int, Json]]:
    """Of each run of an arm, by step: means over its answers.

    paid: by its own rule. true: by verifierd, of those that verifierd judged; least: the same with 0 for the others.
    hacks and judged: the shares of those that cheat, and of those that verifierd judged.
    """
    answers = {row["number"]: row for row in rows if row["kind"] == "answer"}
    truth = {
        (row["task"], row["answer"]): row["reward"]
        for row in rows
        if row["kind"] == "truth" or (row["kind"] == "answer" and row["rule"] == "true")
    }
    sampled: dict[str, dict[int, list[Json]]] = {}
    for row in rows:
        if row["kind"] == "group" and row["run"].startswith(arm):
            sampled.setdefault(row["run"], {}).setdefault(row["step"], []).extend(answers[n] for n in row["answers"])
    out: dict[str, dict[int, Json]] = {}
    for run, steps in sorted(sampled.items()):
        for step, found in sorted(steps.items()):
            known = [truth[key] for one in found if (key := (one["task"], one["answer"])) in truth]
            out.setdefault(run, {})[step] = {
                "paid": statistics.fmean(one["reward"] for one in found),
                "true": statistics.fmean(known) if known else 0.0,
                "least": math.fsum(known) / len(found),
                "hacks": statistics.fmean(bool(one["style"][1]) for one in found),
                "judged": len(known) / len(found),
            }
    return out


def steps_table(rows: Sequence[Json]) -> str:
    """The first step, and windows of steps that all runs of an arm have; intervals over the runs, that is the seeds."""
    lines = [
        "| rule | steps | seeds | paid | true reward | at least | hack rate | judged |",
        "|" + " --- |" * 8,
    ]
    for arm in ARMS:
        runs = by_run(rows, arm)
        last = min((max(steps) for steps in runs.values()), default=0)
        for first, end in ((1, 1), *((at, at + WINDOW - 1) for at in range(1, last - WINDOW + 2, WINDOW))):
            means = [
                {key: statistics.fmean(steps[n][key] for n in range(first, end + 1)) for key in steps[1]}
                for steps in runs.values()
            ]
            cells = " | ".join(
                shown([mean[key] for mean in means]) for key in ("paid", "true", "least", "hacks", "judged")
            )
            lines.append(f"| {arm} | {first} to {end} | {len(runs)} | {cells} |")
    return "\n".join(lines)


def styles_table(rows: Sequence[Json]) -> str:
    """Speed-ups by how a kernel is launched and by cheat, of the distinct answers that a rule called right."""
    lines = ["| launch | cheat | verifierd: right, speed-up | its own process: right, speed-up |", "|" + " --- |" * 4]
    answers = [row for row in rows if row["kind"] == "answer"]
    for launch in forms.LAUNCHES:
        for cheat in ("", *forms.CHEATS):
            cells = []
            for rule in ARMS:
                found = [row for row in answers if row["rule"] == rule and list(row["style"]) == [launch, cheat]]
                speeds = [row["speedup"] for row in found if row["correct"] and row["speedup"]]
                spread = f"{min(speeds):.2f} to {max(speeds):.2f}" if speeds else "-"
                cells.append(f"{len(speeds)} of {len(found)}, {spread}")
            lines.append(f"| {launch} | {cheat or '-'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def each(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def table(rows: Sequence[Json]) -> str:
    held = {(row["seed"], row["arm"]): row for row in rows if row["kind"] == "held_out"}
    seeds = sorted({seed for seed, _ in held})
    lines = [
        "| held-out tasks | true reward, by seed | mean, 95 % | less SFT's, 95 % | hack rate, by seed | mean, 95 % "
        "| correct | speed-up of the correct |",
        "|" + " --- |" * 8,
    ]
    for arm in ("sft", *ARMS):
        found = [row for seed in seeds if (row := held.get((seed, arm)))]
        gains = [row["reward"] - held[row["seed"], "sft"]["reward"] for row in found if (row["seed"], "sft") in held]
        speeds = [statistics.fmean(row["speedups"]) for row in found if row["speedups"]]
        rewards, hacks, correct = ([row[name] for row in found] for name in ("reward", "hacks", "correct"))
        lines.append(
            f"| {arm} | {each(rewards)} | {shown(rewards)} | {'-' if arm == 'sft' else shown(gains)} | {each(hacks)} | "
            f"{shown(hacks)} | {shown(correct)} | {shown(speeds)} |"
        )
    return "\n\n".join(("\n".join(lines), steps_table(rows), styles_table(rows)))


# --- the whole ---


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a speed that can be forged teaches, and one that cannot.")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--limit-s", type=float, default=500.0)
    parser.add_argument("--device", default=first_gpu(), help="where kernels run: cuda:N, or cpu")
    parser.add_argument("--shape", default="2048, 4096", help="of the tasks' inputs")
    parser.add_argument("--parallel", type=int, default=5, help="seeds side by side")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench" / "forging")
    for name, value in asdict(Sizes()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value}")
    parser.add_argument("--of", type=Path, help="print the tables of this forging.jsonl, and run nothing")
    given = parser.parse_args()
    given.sizes = Sizes(**{name: getattr(given, name) for name in asdict(Sizes())})
    given.seeds = [int(n) for n in given.seeds.split(",")]
    return given


def measure(given: argparse.Namespace, record: Record) -> None:
    python = os.environ.get("PYTHON", sys.executable)
    programs = Path(os.environ.get("VERIFIERD_BUILD", ROOT / "build")).resolve() / "bin"
    is_timed, clock = given.device != "cpu", Clock(given.limit_s)
    believing = Believing(programs.parent / "lib/verifierd/harness", python, given.device, given.out / "in_process.log")
    flags = [f"--device={given.device}", "--canary-interval-s=86400"]
    with running_daemon(programs, python, *flags, log=given.out / "verifierd.log") as daemon:
        environment = environment_of(programs) | {"CUDA_VISIBLE_DEVICES": ""}
        machine = Machine(programs, python, daemon, environment, "timing" if is_timed else "full", ("reinforce",))
        proxy = Proxy(daemon, believing, record, is_timed)
        runs = []
        for number in given.seeds:
            directory = given.out.resolve() / f"seed{number}"
            directory.mkdir()
            runs.append(run := Run(number, machine, given.sizes, directory, record, clock))
            run.proxy, run.shape = proxy, given.shape
        try:
            phases = (Run.learn_rows, *(lambda run, arm=arm: run.reinforce(arm) for arm in ARMS), Run.ask_all)
            for phase in phases:
                with ThreadPoolExecutor(given.parallel) as pool:
                    list(pool.map(lambda run, phase=phase: attempt(run, phase), runs))
                runs = [run for run in runs if not run.has_failed]
                daemon.wait_until_ready(max(1.0, clock.left()))
            judged_after(proxy, daemon, record, "strict", machine.until, is_timed)
            status = daemon.get("/v1/status")
            record.add(kind="machine", cores=os.cpu_count(), gpus=status.get("gpus"), believing_s=believing.seconds)
        finally:
            proxy.end()
            believing.end()


def main() -> int:
    given = arguments_of()
    if given.of:
        print(table([json.loads(line) for line in given.of.read_text().splitlines()]))
        return 0
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    began, record = time.monotonic(), Record(given.out / "forging.jsonl")
    try:
        measure(given, record)
    except (Exception, KeyboardInterrupt) as error:  # what was measured by then is told
        record.add(kind="failure", why=f"{type(error).__name__}: {error}")
        print(f"forging: {type(error).__name__}: {error}", file=sys.stderr)
    record.add(kind="end", seconds=round(time.monotonic() - began, 1), load=os.getloadavg())
    print(f"\n{time.monotonic() - began:.0f} s; raw data in {given.out / 'forging.jsonl'}\n\n{table(record.rows)}")
    return 1 if any(row["kind"] == "failure" for row in record.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
