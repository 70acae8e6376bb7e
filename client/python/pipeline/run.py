"""trainer run: from data to a report, by one configuration file.

The file becomes a list of steps, each with its inputs and outputs (plan.py); a step is a command of trainer(1) in a
process of its own, and can itself be continued. run.json in the working directory has the finished steps and their
arguments (state.py): a run that was ended in any way is continued by the same command. Files that no step makes are
checked before the first one (check.py); a step whose inputs are missing or do not verify ends the run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prepare.command import believe

from . import conf, process
from .along import Along
from .check import Checks
from .common import CONFIG, FAILED, OK, RESUME, UNEXTRACTED, PipelineError, parser, read, whole
from .estimate import estimate
from .plan import STAGES, Plan, Services, Step
from .resume import unfinished
from .serving import Serving
from .state import State, now, round_of

# The limits of a dry run.
SMALL = {
    ("prepare", "max_samples"): 100,
    ("rl", "max_tasks"): 5,
    ("rl", "fused"): 5,
    ("rl", "rounds"): 1,
    ("rl", "held_out_tasks"): 5,
    ("evaluate", "max_tasks"): 5,
}
# Paths below the working directory that the user may name, and those that a run makes there itself.
NAMED = (("", "model"), ("prepare", "file"), ("prepare", "overlap"), ("rl", "tasks"), ("rl", "held_out"),
         ("rl", "policy"), ("evaluate", "tasks"), ("evaluate", "policy"))  # fmt: skip
MADE = ("data/", "outputs/", "checkpoints/", "evaluation/")


class Run:
    """One run: what its file says, where it works, its steps, and which of them are finished."""

    def __init__(self, given: Any) -> None:
        self.given, self.file, self.pid = given, given.file.resolve(), os.getpid()
        self.stop = process.Stop()
        self.conf = conf.read(self.file)
        self.is_looking = given.check or given.estimate  # nothing is run, and nothing written
        self.program = Path(os.environ["TRAINER_PROGRAM"])
        if given.dry_run:
            self._make_small()
        if given.max_samples:
            self.conf["prepare"]["max_samples"] = given.max_samples
        self._open_workdir()
        endpoint = self.conf["endpoint"]
        url = self.conf["verifier"]["url"] or given.url
        python = self.conf["python"] or os.environ.get("TRAINER_PYTHON") or "python3"
        self.services = Services(url, endpoint["url"] or given.endpoint, python)
        model = self.conf["model"]
        self.serving = Serving(self.services.endpoint, endpoint["start"], model, endpoint["model"] or model,
                               self.workdir / "outputs/endpoint.log", endpoint["wait_s"])  # fmt: skip
        self.steps = Plan(self.conf, self.services, given.max_samples).steps(given.stage)
        self.state = State(self.workdir, self.steps, self.conf["rl"]["rounds"], (model, self.serving.name))
        self.along: Along | None = None
        if self.conf["devices"]:  # for the endpoint and each step
            os.environ["CUDA_VISIBLE_DEVICES"] = self.conf["devices"]

    def _make_small(self) -> None:
        for (section, key), most in SMALL.items():
            n = self.conf[section][key]
            if n > most or (n == 0 and key != "fused"):  # 0 is all, and for fused none
                self.conf[section][key] = most

    def _open_workdir(self) -> None:
        wanted = Path(self.conf["workdir"] or self.given.workdir)
        self.workdir = (wanted / "dry_run" if self.given.dry_run else wanted).resolve()
        if self.given.dry_run:  # in a directory of its own: what the user named below the other one is still there
            for section, key in NAMED:
                where = self.conf[section] if section else self.conf
                path = wanted.resolve() / where[key]
                if where[key] and not where[key].startswith(MADE) and path.exists():  # a model may also be a hub's
                    where[key] = str(path)
        if not self.is_looking:
            (self.workdir / "outputs").mkdir(parents=True, exist_ok=True)
            os.chdir(self.workdir)  # paths in the file are relative to it, for this program and its children

    # --- used by the other files ---

    def complain(self, text: str) -> None:
        print(f"trainer: {text}", file=sys.stderr, flush=True)

    def log(self, text: str) -> None:
        if not self.is_looking:
            with (self.workdir / "training.log").open("a") as file:
                file.write(f"{now()} run: {text}\n")

    def say(self, text: str) -> None:
        """On stderr and, unless nothing is run, in training.log."""
        self.complain(text)
        self.log(text)

    def tend(self) -> None:
        if self.along:
            self.along.tend()

    def spawn(self, argv: Sequence[str | Path], **more: Any) -> subprocess.Popen[bytes] | None:
        return process.spawn(argv, **more)

    def wait(self, child: subprocess.Popen[bytes] | None) -> int:
        return process.wait(child, self.stop, self.tend)

    def python(self, *arguments: str) -> int:
        """The status of the Python that has the training's libraries."""
        return self.wait(self.spawn([self.services.python, *arguments]))

    def arguments(self, step: Step, served: str) -> list[str]:
        adapter = str(self.workdir / self.state.adapter(round_of(step)))
        return [
            str(self.program),
            *(word.replace("{served}", served).replace("{adapter}", adapter) for word in step.argv),
        ]

    # --- steps ---

    def command(self, step: Step, served: str) -> int:
        beside = self.program.parent
        match step.argv:
            case ["@selftest", *options]:
                return self.wait(self.spawn([beside / "verifier", "selftest", "--quick", *options]))
            case ["@extraction"]:
                return self.wait(self.spawn([self.program, "extraction", self.workdir / step.inputs[0]]))
            case ["@join"]:
                return self.join(step)
            case ["@publish", name]:
                adapter = self.workdir / self.state.adapter(0)
                return self.python("-m", "finetune", "publish", str(adapter), str(self.workdir / "checkpoints"), name)
        return self.wait(self.spawn(self.arguments(step, served)))

    def join(self, step: Step) -> int:
        """All inputs one after the other as the output."""
        out = self.workdir / step.outputs[0]
        beside = out.with_name(f".{out.name}.partial")
        with beside.open("wb") as file:
            for path in step.inputs:
                with (self.workdir / path).open("rb") as part:
                    shutil.copyfileobj(part, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(out)
        return OK

    def serve(self, step: Step) -> str:
        """A serving step has the model, and a training step the GPUs. Returns the model's name at the endpoint."""
        if step.serve is None:
            if step.is_training and not self.conf["endpoint"]["keep"]:
                self.serving.stop()
            return ""
        name = self.state.adapter(round_of(step)) if step.serve == "{adapter}" else f"checkpoints/{step.serve}"
        self.serving.start(self.stop, self.tend)
        return self.serving.adapt(self.workdir / name if step.serve else None)

    def step(self, step: Step) -> int:
        """From its inputs to its outputs."""
        began = time.monotonic()
        for path in step.inputs:
            fault = self.state.fault(path)
            if fault:
                raise PipelineError(f"{step.name}: what it needs is missing: {fault}")
        if step.is_learning and any((self.workdir / path).is_file() and not (self.workdir / path).stat().st_size
                                    for path in step.inputs):  # fmt: skip
            self.say(f"{step.name}: the round kept nothing, there is nothing to learn")
            self.state.set(step, "skipped")
            return OK
        is_other = self.state.is_other_work(step)
        self.say(step.name)
        self.state.set(step, "running")
        try:
            status = self.command(step, self.serve(step))
        except PipelineError:
            self.state.set(step, "interrupted" if self.stop else "failed", time.monotonic() - began)
            if self.stop:
                return RESUME
            raise
        seconds = time.monotonic() - began
        if status == UNEXTRACTED:  # its report is there and says so; all() looks at it at the end
            self.say(f"{step.name}: no code was found in any answer")
            status = OK
        if self.stop or status == RESUME:
            self.state.set(step, "interrupted", seconds)
            return RESUME
        if status != OK:
            self.state.set(step, "failed", seconds)
            self.say(f"{step.name} failed with status {status}")
            if is_other:
                self.say(f"{step.name} was done before, with other arguments or from other inputs: begin again in "
                         "another --workdir, or remove what that left")  # fmt: skip
            return status
        for path in step.outputs:
            fault = self.state.fault(path)
            if fault:
                self.state.set(step, "failed", seconds)
                raise PipelineError(f"{step.name}: what it should have left is not as it should be: {fault}", FAILED)
        self.state.set(step, "done", seconds)
        return OK

    def interrupted(self) -> int:
        self.say("interrupted: the same command goes on")
        return RESUME

    def all(self) -> int:
        for step in self.steps:
            if self.state.is_finished(step):
                self.say(f"{step.name} was done already")
                continue
            status = RESUME if self.stop else self.step(step)
            if status == RESUME:
                return self.interrupted()
            if status != OK:
                return status
        self.say(f"done: {self.workdir}/outputs/report.html")
        status = OK
        for final in ("sft_final", "rl_final"):  # one that never answers with code failed; a base may know no better
            path = f"outputs/eval_{final}.json"
            if self.state.is_made(path) and (read(self.workdir / path, dict) or {}).get("unextracted") is True:
                self.say(f"{self.workdir / path}: no code was found in any answer of {final}")
                status = UNEXTRACTED
        return status

    def go(self) -> int:
        with (self.workdir / "run.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PipelineError(f"another run works in {self.workdir}") from None
            remote = unfinished(self.workdir)
            if remote:
                text = f"a restore of {remote} was begun and not finished: trainer resume --remote={remote} goes on"
                raise PipelineError(text)
            self.state.open(self.conf, self.file)
            is_well = Checks(self).ahead()
            if self.stop:  # which ends what they start
                return self.interrupted()
            if not is_well:
                return CONFIG
            self.along = Along(self)
            try:
                self.along.start()
                return self.all()
            except PipelineError:
                if not self.stop:
                    raise
                return self.interrupted()
            finally:
                self.along.end()  # first: after a notice each second counts
                self.serving.stop()

    def check(self) -> int:
        checks = Checks(self)
        if not checks.ahead():
            return CONFIG
        statuses = [checks.training("sft", "sft"), checks.training("train", self.conf["rl"]["method"])]
        if any(statuses):
            return next(status for status in statuses if status)
        print(f"{self.file}: {len(self.steps)} steps, their files, memory and shapes are well")
        return OK


def main(arguments: list[str]) -> int:
    p = parser("run", "From data to a report: prepare, fine-tune, improve by reward, evaluate. Ended in any way, it "
               "goes on when it is given again.")  # fmt: skip
    a = p.add_argument
    a("file", type=Path, metavar="FILE")
    a("--stage", choices=(*STAGES, "all"), default="all", help="the steps of one stage (default all)")
    a("--max-samples", type=whole(1, 100000000), metavar="N", help="prepare and learn from so many rows at most")
    a(
        "--dry-run",
        action="store_true",
        help="the whole of it with 100 samples, 5 tasks and one round, in WORKDIR/dry_run",
    )
    a("--estimate", action="store_true", help="print GPU hours and price by step; run nothing")
    a("--check", action="store_true", help="check files, memory and shapes; run nothing")
    a("-u", "--url", default=os.environ.get("VERIFIERD_URL") or "http://127.0.0.1:8080", metavar="URL",
      help="of verifierd (or VERIFIERD_URL)")  # fmt: skip
    a("-e", "--endpoint", default=os.environ.get("TRAINER_ENDPOINT") or "http://127.0.0.1:8000/v1", metavar="URL",
      help="of the model, with its /v1 (or TRAINER_ENDPOINT)")  # fmt: skip
    a("--cacert", metavar="FILE", help="the certificates to believe, PEM (or CURL_CA_BUNDLE)")
    given: Any = p.parse_args(arguments)
    if given.cacert:
        believe(p, given.cacert)
    run = Run(given)
    if run.given.estimate:
        estimate(run.conf, run.steps)
        return OK
    return run.check() if run.given.check else run.go()
