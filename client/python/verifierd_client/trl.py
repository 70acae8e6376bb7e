"""A reward function for TRL's GRPOTrainer: whole groups, so that rewards of a rank work.

    trainer = GRPOTrainer(..., reward_funcs=make_reward("http://verifier:8080", reward="rank"))

The data set has a column `task`: an id, a name, a reference's source, or an object. A sample without a reward is None,
which TRL leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

from .client import Client, Json, labels
from .numbers import numbers_of, reward_of
from .rows import judge_rows
from .types import Verdict

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
    run: str | None = None,
    metadata: Json | None = None,
) -> Reward:
    """The function for reward_funcs. column: the data set's column with the task. name: as TRL shows it.

    Adjacent rows with the same prompt and task are one group; num_generations (the trainer's own) limits a group, for
    a batch in which a prompt follows itself. A row that is refused, and a group for which the daemon is not reachable,
    have None, with a warning; Refused is raised if every row would be refused (the token, reward=, policy=). run, the
    trainer's step and metadata are sent with each group: the dashboard draws by them.
    """
    client = Client(url, token, wait_s)
    options = {"reward": reward, "policy": policy}

    def verifierd(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        tasks = columns.get(column)
        if tasks is None:
            raise ValueError(f"the data set has no column {column!r}, which says the task of each row")
        jobs = [
            (tasks[rows[0]], [text_of(completions[row]) for row in rows])
            for rows in groups(prompts, tasks, num_generations)
        ]
        step = getattr(columns.get("trainer_state"), "global_step", None)
        told = labels(run, step, metadata=metadata)

        def judge(job: tuple[object, list[str]]) -> list[Verdict | None]:
            task, texts = job
            return judge_rows(client, task, texts, metadata=told, **options)

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


def tell(verdicts: Sequence[Verdict | None], log_metric: Any, log_extra: Any, name: str) -> None:
    """Further figures for TRL's log, if it is new enough to accept them."""
    if callable(log_extra):
        log_extra(f"{name}_class", [verdict.get("class") if verdict else None for verdict in verdicts])
    known = [numbers_of(verdict) for verdict in verdicts if verdict]
    if callable(log_metric) and known:
        for metric in METRICS:
            log_metric(f"{name}/{metric}", sum(numbers[metric] for numbers in known) / len(known))
