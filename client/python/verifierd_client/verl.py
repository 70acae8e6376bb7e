"""A reward function for verl.

    reward.custom_reward_function.path=pkg://verifierd_client.verl reward.custom_reward_function.name=compute_score

The row's ground truth says the task. verl stacks the keys of what it gets over the batch, so every number is always
there; what stands for null is in docs/trainers.md.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from .client import Client, labels
from .numbers import numbers_of
from .rows import judge_row


@functools.lru_cache
def _client(url: str | None, token: str | None, wait_s: float) -> Client:
    return Client(url, token, wait_s)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: object,
    extra_info: object = None,
    *,
    url: str | None = None,
    token: str | None = None,
    reward: object = "staged",
    policy: object = None,
    fill: float = 0.0,
    wait_s: float = 900.0,
    run: str | None = None,
    **_: object,
) -> dict[str, float]:
    """score and the components. Keyword arguments come from reward_kwargs of verl's configuration.

    A row that is refused, and one for which the daemon is not reachable, has the score fill, and masked 1; Refused is
    raised if every row would be refused. run, and the step in extra_info, are sent with the submission.
    """
    known = extra_info if isinstance(extra_info, Mapping) else {}
    step = known.get("global_steps", known.get("step"))
    told = labels(run, None if step is None else int(step), metadata={"data_source": data_source})
    client = _client(url, token, wait_s)
    verdict = judge_row(client, ground_truth, solution_str, reward=reward, policy=policy, metadata=told)
    return numbers_of(verdict or {}, fill)
