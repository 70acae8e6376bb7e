"""The plan of a configuration: the steps in their order, each with its arguments, inputs and outputs.

A step's argv begins with a command of trainer(1), or with @ and an action of run.py; {served} and {adapter} are put
in when the step begins, because only then the last round that learned something is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from finetune.settings import ROWS as TRAINING

from .common import Json

STAGES = ("prepare", "sft", "rl", "evaluate")
PROCESSED = "data/processed"
TASKS, ROWS = f"{PROCESSED}/tasks.jsonl", f"{PROCESSED}/sft_train.jsonl"
FUSED, RL_TASKS, TAUGHT = f"{PROCESSED}/fused.jsonl", f"{PROCESSED}/rl_tasks.jsonl", f"{PROCESSED}/sft_taught.jsonl"
HUB_TASKS = f"evaluation/{TASKS}"
TEACHER_ROWS = "outputs/bestofn_teacher/sft_train.jsonl"
SFT, RL = "checkpoints/sft_final", "checkpoints/rl_final"
EVALUATIONS = (("base", "base", ""), ("sft", "sft_final", "sft_final"), ("rl", "rl_final", "rl_final"))


@dataclass
class Step:
    name: str
    stage: str
    argv: list[str]
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    serve: str | None = None  # the checkpoint that the endpoint has to have, "" for the base; None: no endpoint
    is_training: bool = False  # it wants the GPUs
    is_learning: bool = False  # of a round, which may have kept nothing to learn


@dataclass(frozen=True)
class Services:
    """Where verifierd and the endpoint are, and which Python has the training's libraries."""

    url: str
    endpoint: str
    python: str


def given(**options: object) -> list[str]:
    """--name=value of those that have one."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value != ""]


class Plan:
    def __init__(self, conf: Json, services: Services, max_samples: int | None = None) -> None:
        self.conf, self.services, self.max_samples = conf, services, max_samples
        self.is_fused = conf["rl"]["fused"] > 0
        self.has_teacher = self.is_fused and conf["teacher"]["url"] != ""
        self.rl_tasks = RL_TASKS if self.is_fused else conf["rl"]["tasks"]
        self.python = given(python=services.python)
        self.url = given(url=services.url)
        self.common = ["--workdir=.", *given(seed=conf["seed"])]
        self.evaluation_tasks = HUB_TASKS if conf["evaluate"]["source"] else conf["evaluate"]["tasks"]

    def steps(self, stage: str = "all") -> list[Step]:
        every = [*self.prepare(), self.fine_tune(), *self.reinforce(), *self.evaluate()]
        return [step for step in every if stage in ("all", step.stage)]

    def sampling(self, section: str, endpoint: str = "") -> list[str]:
        """The arguments of a command that requests answers from the endpoint."""
        of, rules = self.conf["endpoint"], self.conf[section]
        how = {key: of[key] for key in ("max_tokens", "concurrency")} | {"temperature": f"{of['temperature']:g}"}
        where = given(endpoint=endpoint or self.services.endpoint)
        return [*self.url, *where, *given(**how, policy=rules["policy"], until=rules["until"])]

    def prepare(self) -> Iterator[Step]:
        of, source = self.conf["prepare"], self.conf["evaluate"]["source"]
        if self.conf["verifier"]["selftest"]:
            yield Step("selftest", "prepare", ["@selftest", *self.url])
        if source:
            fixed = ["--static", "--max-samples=0", "--workdir=evaluation"]
            yield Step("evaluation_tasks", "prepare", ["prepare", *given(source=source), *fixed, *self.python],
                       outputs=[HUB_TASKS])  # fmt: skip
        overlap = of["overlap"] or (HUB_TASKS if source else "")
        options = given(file=of["file"], source=of["source"], overlap=overlap, licenses=of["licenses"])
        judged = ["--static"] if of["static"] else ["--verify"] if of["verify"] else []
        options += [*given(max_samples=of["max_samples"]), *judged, *self.url, *self.python, *self.common]
        inputs = [path for path in (of["file"], overlap) if path]
        yield Step("prepare", "prepare", ["prepare", *options], inputs, [TASKS, ROWS])
        yield Step("extraction", "prepare", ["@extraction"], [ROWS])
        if not self.is_fused:
            return
        tasks = self.conf["rl"]["tasks"]
        options = [*given(number=self.conf["rl"]["fused"]), "--mined", f"--with={tasks}"]
        yield Step("fuse", "prepare", ["fuse", *options, *self.url, *self.python, *self.common], [tasks],
                   [FUSED, RL_TASKS])  # fmt: skip
        if self.has_teacher:
            teacher = self.conf["teacher"]
            options = ["--as=sft", f"--tasks={FUSED}", "--level=0", "--max-tasks=0", "--keep=1", "--name=teacher"]
            options += [*given(samples=teacher["samples"]), *self.sampling("rl", teacher["url"])]
            options += [*given(model=teacher["model"]), *self.common]
            yield Step("teach", "prepare", ["bestofn", *options], [FUSED], [TEACHER_ROWS])
            yield Step("join", "prepare", ["@join"], [ROWS, TEACHER_ROWS], [TAUGHT])

    def training(self, name: str, stage: str, section: str, method: str, run: str, final: str) -> Step:
        """A training command with all its settings; run, final, data and adapter are the step's own."""
        argv = ["sft", "--preset=bestofn"] if method == "bestofn" else [method]
        for row in TRAINING:
            is_own = row["name"] in ("model", "adapter", "data", "run", "final", "seed")
            if not is_own and (row["methods"] == "all" or method in row["methods"].split()):
                value = self.conf[section][row["name"]]
                argv += given(**{row["name"]: str(value).lower() if isinstance(value, bool) else value})
        argv += [*given(model=self.conf["model"], run=run, final=final), *self.python]
        argv += given(gpus=self.conf["gpus"] if self.conf["gpus"] > 1 else "")
        return Step(name, stage, [*argv, *self.common], outputs=[f"checkpoints/{final}"], is_training=True)

    def fine_tune(self) -> Step:
        step = self.training("sft", "sft", "sft", "sft", "sft", "sft_final")
        rows = TAUGHT if self.has_teacher else ROWS
        step.argv += [*given(max_samples=self.max_samples or ""), f"--data={rows}"]
        step.inputs = [rows]
        return step

    def reinforce(self) -> Iterator[Step]:
        of, method = self.conf["rl"], self.conf["rl"]["method"]
        if method in ("reinforce", "grpo"):
            step = self.training(method, "rl", "train", method, method, "rl_final")
            step.argv += given(tasks=self.rl_tasks, level=of["level"], max_tasks=of["max_tasks"], policy=of["policy"])
            step.argv += [*self.url, "--adapter={adapter}"]
            step.inputs = [SFT, self.rl_tasks]
            yield step
            return
        for n in range(1, of["rounds"] + 1):
            yield from self.round(n, method)
        yield Step("publish", "rl", ["@publish", "rl_final"], [SFT], [RL])

    def round(self, n: int, method: str) -> Iterator[Step]:
        """Answers that are kept, and what learns from them."""
        of, name, options = self.conf["rl"], f"round{n}", []
        if of["curriculum"]:
            options = given(curriculum=of["curriculum"], mix=f"{of['mix']:g}")
        if of["curriculum"] and of["held_out"]:  # the curriculum moves by an evaluation before each round
            held = f"held_out_{n}"
            options += given(held_out=f"outputs/eval_{held}.json")
            asked = given(tasks=of["held_out"], level=0, max_tasks=of["held_out_tasks"], name=held)
            argv = ["evaluate", *asked, *self.sampling("rl"), *self.common, "--model={served}"]
            yield Step(held, "rl", argv, [SFT, of["held_out"]], [f"outputs/eval_{held}.json"], serve="{adapter}")
        asked = given(
            tasks=self.rl_tasks, **{key: of[key] for key in ("level", "max_tasks", "samples", "keep", "reward")}
        )
        place = ["--workdir=.", *given(seed=self.conf["seed"] + n - 1)]  # other tasks each round
        kept, everything = (f"outputs/bestofn_{name}/{which}.jsonl" for which in ("kept", "candidates"))
        named = given(name=name, step=n)
        argv = ["bestofn", *asked, *named, *options, *self.sampling("rl"), *place, "--model={served}"]
        yield Step(name, "rl", argv, [SFT, self.rl_tasks], [kept, everything], serve="{adapter}")
        step = self.training(f"rl_round{n}", "rl", "train", method, name, f"rl_round{n}")
        data = everything if method == "weighted" else kept
        step.argv += [f"--data={data}", "--adapter={adapter}"]
        step.inputs, step.is_learning = [SFT, data], True
        yield step

    def evaluate(self) -> Iterator[Step]:
        of, tasks = self.conf["evaluate"], self.evaluation_tasks
        compared = []
        if tasks:
            for name, final, adapter in EVALUATIONS:
                asked = given(
                    tasks=tasks, level=of["level"], max_tasks=of["max_tasks"], samples=of["samples"], name=final
                )
                argv = ["evaluate", *asked, *self.sampling("evaluate"), *self.common, "--model={served}"]
                inputs = [tasks] + [f"checkpoints/{adapter}"] * bool(adapter)
                yield Step(f"evaluate_{name}", "evaluate", argv, inputs, [f"outputs/eval_{final}.json"], serve=adapter)
            compared = ["outputs/comparison.html", "outputs/comparison.json"]
            argv = ["compare", *(final for _, final, _ in EVALUATIONS), *given(published=of["published"])]
            argv += [f"--html={compared[0]}", f"--save={compared[1]}", "--workdir=."]
            inputs = [f"outputs/eval_{final}.json" for _, final, _ in EVALUATIONS]
            yield Step("compare", "evaluate", argv, inputs, compared)
        made = ["outputs/report.html", "outputs/report.json"]
        yield Step("report", "evaluate", ["report", "--workdir=."], [SFT, RL, *compared[1:]], made)
