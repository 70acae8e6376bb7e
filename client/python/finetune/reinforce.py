"""REINFORCE: sample from the policy, have verifierd judge, step on -A log p.

Answers are kept as token ids from the sampler to the gradient: log-probabilities are computed again from them, never
from their text.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import StoppingCriteriaList

from . import losses
from .data import Example, chat_prompt
from .errors import FAILED, StopRequested, TrainError
from .judge import Judge, Task, Verdict, code_token, tasks_of
from .loop import Loop, run_guarded, said_of_memory
from .settings import Settings
from .supervised import order_of

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """One sampled answer with its verdict."""

    ids: list[int]  # prompt and answer
    prompt: int
    code: int  # the first id of the code
    is_truncated: bool
    verdict: Verdict


def sample(loop: Loop, prompts: Sequence[list[int]], settings: Settings) -> list[tuple[list[int], bool]]:
    """An answer to each of these prompts, all in one batch: its ids, the end of the turn included; True: cut off.

    Shorter prompts are padded on the left. StopRequested: a signal came meanwhile.
    """

    def is_stopped(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        return torch.full((ids.shape[0],), loop.stop.is_set, dtype=torch.bool, device=ids.device)

    model = loop.bare
    model.eval()
    end = loop.tokenizer.eos_token_id
    pad = loop.tokenizer.pad_token_id if loop.tokenizer.pad_token_id is not None else end
    width = max(len(prompt) for prompt in prompts)
    gaps = [width - len(prompt) for prompt in prompts]
    device = loop.accelerator.device
    try:
        with torch.no_grad():
            out = model.generate(
                input_ids=torch.tensor([[pad] * n + p for n, p in zip(gaps, prompts, strict=True)], device=device),
                attention_mask=torch.tensor([[0] * n + [1] * (width - n) for n in gaps], device=device),
                do_sample=True,
                temperature=settings.temperature,
                top_p=1.0,
                top_k=0,
                max_new_tokens=settings.answer_tokens,
                pad_token_id=pad,
                eos_token_id=end,
                stopping_criteria=StoppingCriteriaList([is_stopped]),
            )
    except torch.cuda.OutOfMemoryError as error:
        raise TrainError(
            f"out of memory while it samples {len(prompts)} answers at once, prompts of up to {width} tokens and "
            f"answers of up to {settings.answer_tokens}: lower sampling_batch, or answer_tokens"
        ) from error
    if loop.stop.is_set:
        raise StopRequested()
    answers = []
    for row in out[:, width:].tolist():
        cut = row.index(end) + 1 if end in row else len(row)
        answers.append((row[:cut], end not in row))
    return answers


def _judged(loop: Loop, judge: Judge, tasks: Sequence[Task], settings: Settings) -> list[list[Answer]]:
    """Sample for all of these tasks, sampling_batch answers at once, and have them judged.

    A task is posted once its last answer is there, and judged while others are sampled.
    """
    prompts = [chat_prompt(loop.tokenizer, task.prompt) for task in tasks]
    for task, prompt in zip(tasks, prompts, strict=True):
        if len(prompt) + settings.answer_tokens > settings.length:
            raise TrainError(
                f"the prompt of {task.name} has {len(prompt)} tokens: with answer_tokens = {settings.answer_tokens} "
                f"that is more than length = {settings.length}"
            )
    wanted = [prompt for prompt in prompts for _ in range(settings.samples)]
    sampled: list[tuple[list[int], bool]] = []
    texts: list[list[str]] = []
    posted: list[str] = []
    for at in range(0, len(wanted), settings.sampling_batch):
        sampled += sample(loop, wanted[at : at + settings.sampling_batch], settings)
        while len(sampled) >= (len(posted) + 1) * settings.samples:
            first = len(posted) * settings.samples
            group = sampled[first : first + settings.samples]
            texts.append([loop.tokenizer.decode(ids, skip_special_tokens=True) for ids, _ in group])
            posted.append(judge.post(tasks[len(posted)], texts[-1], loop.step + 1))
    verdicts = judge.wait(posted)
    out = []
    for number, (task, prompt, said, judged) in enumerate(zip(tasks, prompts, texts, verdicts, strict=True)):
        group = sampled[number * settings.samples : (number + 1) * settings.samples]
        answers = []
        for (ids, is_truncated), text, verdict in zip(group, said, judged, strict=True):
            code = code_token(loop.tokenizer, ids, text, task.entry_point)
            answers.append(Answer(prompt + ids, len(prompt), len(prompt) + code, is_truncated, verdict))
        out.append(answers)
    return out


def coefficients(
    groups: Sequence[Sequence[Answer]], settings: Settings, alpha: float | None
) -> list[tuple[Example, list[float]]]:
    """What the gradient stands on: the answers that count, with a coefficient for each token.

    alpha: plan and code are rewarded apart, A = alpha * A_plan before the code and A_code from there on.
    """
    rows: list[tuple[Answer, float, float]] = []
    for group in groups:
        if alpha is None:
            whole = losses.advantages([a.verdict.reward for a in group], settings.baseline)
            each = [(a, a) for a in whole]
        else:
            plan = losses.advantages([a.verdict.parts.get("plan") for a in group], settings.baseline)
            code = losses.advantages([a.verdict.parts.get("code") for a in group], settings.baseline)
            each = [(None if p is None else alpha * p, c) for p, c in zip(plan, code, strict=True)]
        for answer, (before, after) in zip(group, each, strict=True):
            if before is None or after is None or (answer.is_truncated and settings.truncated == "mask"):
                continue
            rows.append((answer, before, after))
    total = sum(len(a.ids) - a.prompt for a, _, _ in rows)
    out = []
    for answer, before, after in rows:
        if before == 0 and after == 0:
            continue  # counts in the total, has no gradient
        plan_tokens = answer.code - answer.prompt
        values = (
            [0.0] * answer.prompt + [before / total] * plan_tokens + [after / total] * (len(answer.ids) - answer.code)
        )
        out.append((Example(answer.ids, answer.prompt), values))
    return out


def figures_of(groups: Sequence[Sequence[Answer]]) -> Json:
    """What the report shows of a step's rewards."""
    answers = [a for group in groups for a in group]
    rewards = [a.verdict.reward for a in answers if a.verdict.reward is not None]
    return {
        "rewards": [round(r, 4) for r in rewards],
        "reward_mean": round(math.fsum(rewards) / len(rewards), 6) if rewards else None,
        "classes": dict(Counter(a.verdict.kind for a in answers)),
        "truncated": sum(a.is_truncated for a in answers),
        "constant_groups": sum(losses.is_constant([a.verdict.reward for a in group]) for group in groups),
        "groups": len(groups),
    }


class ConstantGuard:
    """Ends a run in which there is nothing to learn from."""

    def __init__(self, limit: int, seen: int = 0) -> None:
        """seen: steps of that kind that lie behind already."""
        self._limit = limit
        self.seen = seen

    def add(self, groups: Sequence[Sequence[float | None]]) -> None:
        """The rewards of one step, by group."""
        self.seen = self.seen + 1 if all(losses.is_constant(g) for g in groups) else 0
        if self.seen >= self._limit:
            known = [r for group in groups for r in group if r is not None]
            value = f"{known[0]:g} in the last group" if known else "null: no answer was judged"
            raise TrainError(
                f"the reward was constant over every group of {self.seen} steps ({value}): there is no gradient. "
                "Sample more answers, at a higher temperature, of easier tasks, or fine-tune first",
                FAILED,
            )


def train(settings: Settings, workdir: Path, request: Json) -> int:
    tasks = tasks_of(request)
    if settings.max_samples:
        tasks = tasks[: settings.max_samples]
    identity = {"tasks": [task.id for task in tasks], "prompt": request.get("prompt")}
    loop = Loop("reinforce", settings, workdir, identity)
    if loop.finished():
        return 0
    judge = Judge(str(request["daemon"]), settings.reward, settings.until, settings.run, lambda: loop.stop.is_set)
    per_epoch = math.ceil(len(tasks) / settings.tasks_per_step)
    loop.total = min(settings.epochs * per_epoch, settings.max_steps or settings.epochs * per_epoch)
    guard = ConstantGuard(settings.constant_steps, int(loop.carried.get("constant_steps", 0)))
    loop.say(f"{len(tasks)} tasks, {settings.samples} answers to each, reward {json.dumps(settings.reward)}")

    def body() -> None:
        while loop.step < loop.total:
            epoch, at = divmod(loop.step, per_epoch)
            order = order_of(len(tasks), epoch, settings.seed)
            chosen = order[at * settings.tasks_per_step : (at + 1) * settings.tasks_per_step]
            began, waited, before = time.monotonic(), judge.waited_s, loop.random_state()
            mine = chosen[loop.rank :: loop.world]
            try:
                judged = list(zip(mine, _judged(loop, judge, [tasks[i] for i in mine], settings), strict=True))
            except StopRequested:
                judged = []
            every = gather_object(judged)
            if len(every) < len(chosen):  # a signal: what was sampled so far is not waited for
                loop.leave_step(before)
            groups = [group for _, group in sorted(every, key=lambda pair: pair[0])]
            sampled_s = time.monotonic() - began
            judged_as = [[a.verdict.reward for a in group] for group in groups]
            if settings.samples == 1:  # a group of one is always constant: the step's answers are one group
                judged_as = [[reward for group in judged_as for reward in group]]
            guard.add(judged_as)
            loop.carried["constant_steps"] = guard.seen
            rows = coefficients(groups, settings, judge.alpha)
            figures = loop.take_step(rows, settings.temperature) if rows else loop.skip_step()
            figures |= figures_of(groups) | {
                "epoch": epoch,
                "wait_s": round(judge.waited_s - waited, 3),
                "sample_s": round(sampled_s - (judge.waited_s - waited), 3),
            }
            loop.metrics.add(figures)
            loop.say(f"step {loop.step} of {loop.total}: mean reward {figures['reward_mean']}{said_of_memory()}")
            loop.after_step(is_epoch_end=at + 1 == per_epoch or loop.step == loop.total)
        loop.save_final()

    return run_guarded(loop, body)
