"""REINFORCE and GRPO on TRL's GRPOTrainer: sample from the policy, have verifierd judge, step on A log p.

Answers are kept as token ids from the sampler to the gradient. REINFORCE is TRL's cispo, -sum r A log p / tokens with
a constant ratio r, with advantages of our own: each answer is learned from once, so that r is 1.
"""

from __future__ import annotations

import importlib.util
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import StoppingCriteriaList
from trl import GRPOConfig, GRPOTrainer

from . import rewards
from .data import chat_prompt
from .errors import StopRequested, TrainError
from .judge import Judge, Task, Verdict, code_token, tasks_of
from .runs import Kept, Run
from .settings import Settings

Json = dict[str, Any]


def order_of(n: int, epochs: int, seed: int) -> list[int]:
    """Every task once in each epoch, drawn anew; the same for the same seed, so that nothing has to be stored."""
    order = []
    for epoch in range(epochs):
        one = list(range(n))
        random.Random(f"{seed} {epoch}").shuffle(one)
        order += one
    return order


def rollouts_of(settings: Settings) -> Json:
    """The arguments of TRL by which answers are sampled. TrainError: vLLM is asked for and cannot be had."""
    kind = settings.rollouts
    if kind in ("auto", "generate"):
        return {"use_vllm": False}
    if importlib.util.find_spec("vllm") is None:
        raise TrainError(f"rollouts: {kind} needs vLLM in {sys.executable}: pip install vllm, or rollouts = generate")
    if kind == "vllm_server":
        return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": settings.vllm_url}
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": settings.vllm_memory,
        "vllm_max_model_length": settings.length,
    }


def arguments(run: Run, tasks: int) -> GRPOConfig:
    """tasks: how many there are in all epochs together. What does not fill a step at the end is left out."""
    s = run.settings
    per_step = min(s.tasks_per_step, tasks)
    answers, total = per_step * s.samples, tasks // per_step
    if answers < 2:
        raise TrainError("tasks_per_step and samples are 1: a step needs two answers")
    if per_step % run.world:  # a group is judged by the process that has sampled it
        raise TrainError(f"tasks_per_step = {per_step}: {run.world} processes need a multiple of {run.world}")
    share = answers // run.world
    batch = max(n for n in range(1, min(s.batch, share) + 1) if share % n == 0)
    is_reinforce = run.method == "reinforce"
    made = GRPOConfig(
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=share // batch,
        num_generations=s.samples if s.samples > 1 else answers,
        max_completion_length=s.answer_tokens,
        temperature=s.temperature,
        shuffle_dataset=False,
        scale_rewards="none" if is_reinforce else "group",
        mask_truncated_completions=is_reinforce and s.truncated == "mask",
        loss_type="cispo" if is_reinforce else "dapo",
        epsilon_high=1.0 if is_reinforce else None,
        beta=0.0,
        **run.arguments(min(total, s.max_steps or total)),
        **rollouts_of(s),
    )
    made.save_steps = min(s.save_steps, math.ceil(tasks / s.epochs / per_step))
    made.num_generations = s.samples  # TRL refuses 1, since its own advantages would be 0
    return made


class Reward:
    """The verdicts of a batch of answers. A group is posted once its last answer is there, and judged meanwhile."""

    __name__ = "verifierd"

    def __init__(self, judge: Judge, tasks: Sequence[Task], order: Sequence[int], samples: int) -> None:
        self.judge = judge
        self._tasks = tasks
        self._order = order
        self._samples = samples
        self._rows: list[int] = []
        self._texts: list[str] = []
        self._posted: list[str] = []
        self._step = 0
        self._sent = 0
        self._fault: TrainError | None = None  # of this step: raised in the call, by all processes

    def begin(self, rows: Sequence[int], step: int) -> None:
        """rows: for each answer to come, the task's index in the order of tasks."""
        self._rows, self._texts, self._posted, self._sent, self._step = list(rows), [], [], 0, step
        self._fault = None

    def add(self, texts: Sequence[str]) -> None:
        self._texts += texts
        while self._sent < len(self._rows) and not self._fault:
            row, first = self._rows[self._sent], self._sent
            end = next((i for i in range(first, len(self._rows)) if self._rows[i] != row), len(self._rows))
            if end > len(self._texts):
                return
            try:
                group = self.judge.post(self._tasks[self._order[row]], self._texts[first:end], self._step)
            except TrainError as error:
                self._fault = error
                return
            self._posted.append(group)
            self._sent = end

    def task(self, at: int) -> Task:
        return self._tasks[self._order[self._rows[at]]]

    def __call__(self, **given: Any) -> list[float | None]:
        """TrainError in all processes, where one of them has had one: a checkpoint is left by all of them together."""
        try:
            if not self._fault:
                self.verdicts = [verdict for group in self.judge.wait(self._posted) for verdict in group]
        except TrainError as error:
            self._fault = error
        for fault in gather_object([self._fault and (str(self._fault), self._fault.status)]):
            if fault:
                raise TrainError(*fault)
        return [verdict.reward for verdict in self.verdicts]


def by_token(
    ids: Sequence[Sequence[int]], verdicts: Sequence[Verdict], codes: Sequence[int], first: int, s: Settings, how: str,
    alpha: float | None,
) -> list[list[float] | None]:  # fmt: skip
    """Advantages of each token of each row of ids; None: the row has no verdict. how: rewards.advantages()'s.

    alpha: plan and code are rewarded apart, alpha times the plan's before the code and the code's from there on.
    verdicts are of all processes' answers, in groups; ids are those from first on, and codes where their code begins.
    """

    def each(values: list[float | None]) -> list[float | None]:
        size = s.samples
        return [a for i in range(0, len(values), size) for a in rewards.advantages(values[i : i + size], how)]

    if alpha is None:
        plan = code = each([v.reward for v in verdicts])
    else:
        code = each([v.parts.get("code") for v in verdicts])
        plan = [None if p is None else alpha * p for p in each([v.parts.get("plan") for v in verdicts])]
    out: list[list[float] | None] = []
    for number, (row, at) in enumerate(zip(ids, codes, strict=True), first):
        before, after = plan[number], code[number]
        out.append(None if before is None or after is None else [before] * at + [after] * (len(row) - at))
    return out


def stop_sampling(model: Any, run: Run) -> None:
    """Have generate() end with the present token once a signal came. What it returns then is not to be used."""
    generate = model.generate

    def is_stopped(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        return torch.full((ids.shape[0],), run.stop.is_set, dtype=torch.bool, device=ids.device)

    def stoppable(*given: Any, **more: Any) -> Any:
        return generate(*given, stopping_criteria=StoppingCriteriaList([is_stopped]), **more)

    model.generate = stoppable


class Trainer(Kept, GRPOTrainer):  # type: ignore[misc, unused-ignore]
    """TRL's, with advantages of our own for reinforce, and where plan and code are rewarded apart."""

    def __init__(self, run: Run, reward: Reward, **trl: Any) -> None:
        self.run = run
        self._reward = reward
        self._waited = self._sampling_s = 0.0
        self._verdicts: list[Verdict] = []
        super().__init__(reward_funcs=reward, **trl)
        if run.world == 1:  # several processes can only stop together, between two passes
            stop_sampling(run.model, run)

    def _generate_single_turn(self, prompt_ids: Any, *given: Any, **more: Any) -> Any:
        """In batches of sampling_batch; vLLM makes its own."""
        size = len(prompt_ids) if self.use_vllm else self.run.settings.sampling_batch
        ids: list[list[int]] = []
        for at in range(0, len(prompt_ids), size):
            part = prompt_ids[at : at + size]
            began = time.monotonic()
            self.model.eval()  # answers are the policy's: without dropout
            try:
                said, logprobs = super()._generate_single_turn(part, *given, **more)
            except torch.cuda.OutOfMemoryError as error:
                raise TrainError(
                    f"out of memory while it samples {len(part)} answers at once, prompts of up to "
                    f"{max(map(len, part))} tokens and answers of up to {self.max_completion_length}: lower "
                    "sampling_batch, or answer_tokens"
                ) from error
            finally:
                self.model.train()
            self._sampling_s += time.monotonic() - began
            if self.run.world == 1 and self.run.stop.is_set:
                raise StopRequested()
            self._reward.add(self.processing_class.batch_decode(said, skip_special_tokens=True))
            ids += said
        return ids, logprobs

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._reward.begin([row["row"] for row in inputs], self.state.global_step + 1)
        made = super()._generate_and_score_completions(inputs)
        s, alpha = self.run.settings, self._reward.judge.alpha
        self._verdicts = gather_object(self._reward.verdicts)
        if self.run.method != "reinforce" and alpha is None:
            return made
        ids, mask = made["completion_ids"], made["completion_mask"]
        rows, codes = ids.tolist(), [0] * len(ids)
        if alpha is not None:
            texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
            codes = [
                code_token(self.processing_class, row, text, self._reward.task(i).entry_point)
                for i, (row, text) in enumerate(zip(rows, texts, strict=True))
            ]
        how = s.baseline if self.run.method == "reinforce" else "group"
        found = by_token(rows, self._verdicts, codes, self.accelerator.process_index * len(ids), s, how, alpha)
        made["advantages"] = torch.tensor(
            [row or [0.0] * ids.shape[1] for row in found], dtype=torch.float32, device=ids.device
        )
        judged = torch.tensor([row is not None for row in found], device=ids.device)
        made["completion_mask"] = mask * judged.unsqueeze(1)
        made["num_items_in_batch"] = self.accelerator.gather(made["completion_mask"].sum()).sum()
        return made

    def figures(self, logs: Json) -> Json:
        """TrainError: there has been nothing to learn from for constant_steps steps."""
        size = self.run.settings.samples
        size = size if size > 1 else len(self._verdicts)  # a group of one is always constant: the step is one group
        every = [v.reward for v in self._verdicts]
        groups = [every[i : i + size] for i in range(0, len(every), size)]
        known = [r for r in every if r is not None]
        constant = sum(map(rewards.is_constant, groups))
        steps = 0
        if constant == len(groups):
            before = [row["constant_groups"] == row["groups"] for row in reversed(self.run.metrics.rows)]
            steps = 1 + (before.index(False) if False in before else len(before))
        rewards.check_constant(steps, self.run.settings.constant_steps, groups)
        waited, self._waited = self._reward.judge.waited_s - self._waited, self._reward.judge.waited_s
        sampling_s, self._sampling_s = self._sampling_s, 0.0
        return {
            "rewards": [round(r, 4) for r in known],
            "reward_mean": round(math.fsum(known) / len(known), 6) if known else None,
            "classes": dict(sorted(Counter(v.kind for v in self._verdicts).items())),
            "truncated": round(logs["completions/clipped_ratio"] * len(every)),
            "constant_groups": constant,
            "groups": len(groups),
            "wait_s": round(waited, 3),
            "sampling_s": round(sampling_s, 3),
        }


def check_prompts(run: Run, tasks: Sequence[Task]) -> None:
    s = run.settings
    for task in tasks:
        n = len(chat_prompt(run.tokenizer, task.prompt))
        if n + s.answer_tokens > s.length:
            raise TrainError(
                f"the prompt of {task.name} has {n} tokens: with answer_tokens = {s.answer_tokens} that is more than "
                f"length = {s.length}"
            )


def trainer_of(run: Run, judge: Judge, tasks: Sequence[Task]) -> Trainer:
    order = order_of(len(tasks), run.settings.epochs, run.settings.seed)
    rows = [{"prompt": [{"role": "user", "content": tasks[i].prompt}], "row": number} for number, i in enumerate(order)]
    return Trainer(
        run,
        Reward(judge, tasks, order, run.settings.samples),
        model=run.model,
        args=arguments(run, len(rows)),
        train_dataset=Dataset.from_list(rows),
        processing_class=run.tokenizer,
    )


def train(method: str, settings: Settings, workdir: Path, request: Json) -> int:
    """Returns the exit status; TrainError where it cannot be begun or gone on with."""
    tasks = tasks_of(request)[: settings.max_samples or None]
    run = Run(method, settings, workdir, {"tasks": [task.id for task in tasks], "prompt": request.get("prompt")})
    if run.is_finished():
        return 0
    check_prompts(run, tasks)
    judge = Judge(
        str(request["daemon"]), settings.reward, settings.until, settings.run,
        lambda: run.world == 1 and run.stop.is_set,
    )  # fmt: skip
    run.say(f"{len(tasks)} tasks, {settings.samples} answers to each, reward {settings.reward}")
    return trainer_of(run, judge, tasks).learn()
