"""A reward function for TRL's GRPOTrainer: whole groups, so that rewards of a rank work.

    trainer = GRPOTrainer(..., reward_funcs=make_reward("http://verifier:8080", reward="rank"))

The data set has a column `task`: an id, a name, a reference's source, or an object. A sample without a reward is None,
which TRL leaves out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

from .client import Client, Json, Unavailable
from .numbers import numbers_of, reward_of

GROUPS_AT_ONCE = 16
METRICS = ("extracted", "compiled", "correct", "hack", "speedup", "masked")

Reward = Callable[..., list[float | None]]


def text_of(completion: object) -> str:
    """A completion is a text, or a conversation whose last message is the answer."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence) and completion and isinstance(completion[-1], dict):
        content = completion[-1].get("content")
        if isinstance(content, list):  # parts: {"type": "text", "text": ...}
            return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        return "" if content is None else str(content)
    raise ValueError(f"a completion is a text or a list of messages, not {completion!r:.80}")


def make_reward(
    url: str | None = None,
    *,
    token: str | None = None,
    reward: object = "staged",
    policy: object = None,
    column: str = "task",
    num_generations: int | None = None,
    wait_s: float = 900.0,
    name: str = "verifierd",
) -> Reward:
    """The function for reward_funcs. column: of the data set, says the task. name: as TRL shows it.

    Rows that stand side by side with the same prompt and task are one group; num_generations (the trainer's own) ends
    one earlier, for a batch in which one prompt follows itself. Refused: raised, and the run ends. No daemon: None for
    the group, with a warning.
    """
    client = Client(url, token, wait_s)

    def judge(job: tuple[object, list[str]]) -> list[Json | None]:
        task, texts = job
        try:
            return list(client.judge_group(task, texts, reward=reward, policy=policy))
        except Unavailable as error:
            warnings.warn(f"{error}: {len(texts)} samples have no reward", stacklevel=2)
            return [None] * len(texts)

    def verifierd(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        tasks = columns.get(column)
        if tasks is None:
            raise ValueError(f"the data set has no column {column!r}, which says the task of each row")
        jobs = [
            (tasks[rows[0]], [text_of(completions[row]) for row in rows])
            for rows in groups(prompts, tasks, num_generations)
        ]
        with ThreadPoolExecutor(GROUPS_AT_ONCE) as pool:
            verdicts = [verdict for group in pool.map(judge, jobs) for verdict in group]
        tell(verdicts, columns.get("log_metric"), columns.get("log_extra"), name)
        return [None if verdict is None else reward_of(verdict) for verdict in verdicts]

    verifierd.__name__ = name
    return verifierd


def groups(prompts: Sequence[Any], tasks: Sequence[Any], size: int | None) -> list[list[int]]:
    """Rows of the same group, in their order."""
    found: list[list[int]] = []
    for _, rows in groupby(range(len(prompts)), lambda row: (repr(prompts[row]), repr(tasks[row]))):
        together = list(rows)
        step = size or len(together)
        found += [together[start : start + step] for start in range(0, len(together), step)]
    return found


def tell(verdicts: Sequence[Json | None], log_metric: Any, log_extra: Any, name: str) -> None:
    """What TRL shows beside the reward, where it is new enough to ask for it."""
    if callable(log_extra):
        log_extra(f"{name}_class", [verdict.get("class") if verdict else None for verdict in verdicts])
    known = [numbers_of(verdict) for verdict in verdicts if verdict]
    if callable(log_metric) and known:
        for metric in METRICS:
            log_metric(f"{name}/{metric}", sum(numbers[metric] for numbers in known) / len(known))
