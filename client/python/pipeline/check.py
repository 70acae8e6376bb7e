"""Checks before a run for failures that would end it later: files, programs, GPUs; with --check memory and shapes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import OK, PipelineError
from .serving import is_local

if TYPE_CHECKING:
    from .run import Run

CLOUDS = ("aws", "gcp", "azure")
CURRICULUM_WINDOW = 5  # of held-out evaluations that `stepped` looks at: client/trainer/curriculum.h
SHELL = set("|&;<>()`$\n")  # a command with one of these, variables expanded, is the shell's to judge


def devices(name: str, text: str) -> set[int]:
    """ "0,1,7"."""
    numbers = text.split(",") if text else []
    found = {int(number) for number in numbers if re.fullmatch(r"\d{1,3}", number)}
    if len(found) != len(numbers):
        raise PipelineError(f'{name} takes numbers of GPUs between commas, each once, not "{text}"')
    return found


def apart(a: str, of_a: set[int], b: str, of_b: set[int]) -> None:
    for both in sorted(of_a & of_b):
        raise PipelineError(f"GPU {both} is used twice: {a} and {b} both have it")


def parallel(words: Sequence[str], name: str) -> int:
    """The value of --NAME VALUE or --NAME=VALUE; 1 where it is not given."""
    for word, after in zip(words, [*words, ""][1:], strict=True):
        value = after if word == name else word.removeprefix(f"{name}=") if word.startswith(f"{name}=") else ""
        if value.isdecimal():
            return int(value)
    return 1


class Checks:
    """Of one run. Each check raises PipelineError at the first fault that it finds; say is for what may be meant."""

    def __init__(self, run: Run) -> None:
        self.run, self.conf, self.state = run, run.conf, run.state

    def ahead(self) -> bool:
        """Is all well? After a line for each fault."""
        faults = [*self.inputs(), *self.arguments(), *self.machine()]
        for fault in faults:
            self.run.complain(fault)
        self.say_if_stuck()
        return not faults

    def inputs(self) -> Iterator[str]:
        """Inputs that no step of the plan makes have to exist. Finished steps need none."""
        for step in self.run.steps:
            for path in [] if self.state.is_finished(step) else step.inputs:
                fault = "" if self.state.is_made(path) else self.state.fault(path)
                if fault:
                    yield f"{step.name}: what it needs is missing: {fault}"

    def arguments(self) -> Iterator[str]:
        """Arguments that a step's command refuses."""
        for step in self.run.steps:
            if not step.argv[0].startswith("@"):
                argv = [*self.run.arguments(step, "model"), "--check-arguments"]
                where = self.run.workdir if self.run.workdir.is_dir() else None  # what paths are relative to
                if self.run.wait(self.run.spawn(argv, cwd=where)) != OK:
                    yield f"{step.name}: its command refuses what {self.run.file} says"

    def machine(self) -> Iterator[str]:
        for check in (self.clouds, self.endpoint, self.gpus, self.adapters, self.eight_bits, self.teacher):
            try:
                check()
            except PipelineError as error:
                yield str(error)

    def wants(self, kind: str) -> bool:
        """Has the plan a step that "serves" or "trains", and is not finished?"""
        return any(
            (step.serve is not None if kind == "serves" else step.is_training) and not self.state.is_finished(step)
            for step in self.run.steps
        )

    def clouds(self) -> None:
        wanted = self.conf["watch"]["clouds"]
        for name in wanted.split(",") if wanted else ():
            if name not in CLOUDS:
                raise PipelineError(f'watch.clouds takes some of {",".join(CLOUDS)}, not "{name}"')

    # --- the command that serves the model, and GPUs ---

    def words(self) -> list[str]:
        """Those of the endpoint's command where it is ours to start, wanted, and plain."""
        command = os.path.expandvars(self.run.serving.command)
        if not command or not self.wants("serves") or SHELL & set(command):
            return []
        try:
            return shlex.split(command)
        except ValueError:
            return []

    def endpoint(self) -> None:
        command = self.run.serving.command if self.wants("serves") else ""
        for found in re.finditer(r"\$(?:\{(\w+)\}|(\w+))", command):
            name = found[1] or found[2]
            if name not in os.environ:
                raise PipelineError(f"endpoint.start uses ${name}, which is not set in the environment")
        words = self.words()
        first = next((word for word in words if word != "env" and "=" not in word), "-")
        is_file = "/" in first and os.access(self.run.workdir / first, os.X_OK)
        if not first.startswith("-") and not is_file and not shutil.which(first):
            raise PipelineError(f'endpoint.start: there is no program "{first}" in PATH')
        wanted, gpus = (
            parallel(words, "--tensor-parallel-size") * parallel(words, "--data-parallel-size"),
            self.conf["gpus"],
        )
        if wanted > gpus:
            raise PipelineError(f"endpoint.start asks for {wanted} GPUs (tensor times data parallel); gpus = {gpus}")

    def gpus(self) -> None:
        gpus, is_known = self.conf["gpus"], self.conf["gpu_memory_gb"] > 0
        prefix = "CUDA_VISIBLE_DEVICES="
        named = next((word for word in self.words() if word.startswith(prefix)), prefix).removeprefix(prefix)
        training, verifierd = devices("devices", self.conf["devices"]), self.conf["verifier"]["devices"]
        judging, endpoint = devices("verifier.devices", verifierd), devices(f"endpoint.start: {prefix[:-1]}", named)
        if training and len(training) != gpus:
            raise PipelineError(f"devices names {len(training)} GPUs; gpus = {gpus}")
        if not training and is_known:
            training = set(range(gpus))
        if not judging and is_known and is_local(self.run.services.url):
            text = ("verifier.devices does not say which GPUs of this machine verifierd has: on one that the endpoint "
                    "or training uses, too, its timings are inconclusive")  # fmt: skip
            if gpus > 1:
                raise PipelineError(text)
            self.run.say(text)  # one GPU cannot be divided
        apart("verifier.devices", judging, "training", training)
        apart("verifier.devices", judging, "the endpoint", endpoint or training)
        if self.conf["endpoint"]["keep"] and self.run.serving.command:
            apart("an endpoint that is kept (endpoint.keep)", endpoint or training, "training", training)

    def adapters(self) -> None:
        for section in ("sft", "train"):
            if self.conf[section]["lora_r"] == 0:
                raise PipelineError(
                    f"{section}.lora_r = 0 leaves no adapter, and a run's steps hand adapters on: train the whole "
                    "model by `trainer sft --lora-r 0`, and give its result to the run as model"
                )

    def eight_bits(self) -> None:
        code = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('bitsandbytes') else 3)"
        for section in ("sft", "train") if self.wants("trains") else ():
            if self.conf[section]["base_bits"] == 8 and self.run.python("-c", code) != OK:
                python = self.run.services.python
                raise PipelineError(f"{section}.base_bits = 8 needs bitsandbytes, which {python} has not")

    def teacher(self) -> None:
        teacher = self.conf["teacher"]
        if teacher["url"] and not teacher["model"]:
            raise PipelineError("teacher.url is given: teacher.model, too, is needed")
        if teacher["url"] and self.conf["rl"]["fused"] == 0:
            raise PipelineError("teacher.url is given, and rl.fused = 0 leaves it no task to answer")

    def say_if_stuck(self) -> None:
        """A curriculum that cannot move in this run may be meant. A name that is none is its command's to refuse."""
        rl = self.conf["rl"]
        kind, rounds, tasks, has_held_out = rl["curriculum"], rl["rounds"], rl["max_tasks"], rl["held_out"] != ""
        if kind not in ("stepped", "seed", "fixed", "adarft", "frontier"):
            return
        if kind == "stepped":  # a held-out figure before each round; it wants a full window
            moves = rounds - (CURRICULUM_WINDOW - 1) if has_held_out else 0
        else:
            moves = rounds - 1 + (kind == "seed" and has_held_out)
        most = 10 + 5 * moves if moves < 8 else 50
        why = ""
        if rl["method"] not in ("bestofn", "weighted"):
            why = f": {rl['method']} has no rounds, and draws from rl.level"
        elif kind != "fixed" and moves <= 0:
            lacks = (
                ": it wants five held-out evaluations first" if has_held_out else ": it is moved by rl.held_out alone"
            )
            why = f" in {rounds} rounds" + (lacks if kind == "stepped" else "")
        elif kind in ("stepped", "seed") and tasks * most // 100 == tasks // 10:
            why = f": of {tasks} tasks a round {tasks // 10} are of level 2 at 10 % and at {most} %"
        if why:
            self.run.say(f"rl.curriculum = {kind} cannot move{why}")

    # --- memory and shapes ---

    def training(self, section: str, method: str) -> int:
        """By the Python that trains; nothing is run."""
        config, model = self.conf["model_config"], self.run.workdir / self.conf["model"]  # steps run in there
        request: dict[str, Any] = {
            "settings": self.conf[section] | {"model": str(model) if model.exists() else self.conf["model"]},
            "gpu_memory_gb": self.conf["gpu_memory_gb"],
        }
        if config:
            request["model_config"] = str(self.run.file.parent / config)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "request.json"
            path.write_text(json.dumps(request))
            status = self.run.python("-m", "finetune", "check", method, str(path))
            answered = json.loads(path.read_text())
        if status == OK and not answered.get("found", {}).get("total_gib"):
            raise PipelineError(f"{self.run.services.python} ended with status 0 and checked nothing: is it a Python "
                                "that has torch, transformers and peft?")  # fmt: skip
        return status
