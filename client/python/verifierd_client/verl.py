"""A reward function for verl.

    reward.custom_reward_function.path=pkg://verifierd_client.verl reward.custom_reward_function.name=compute_score

The row's ground truth says the task. verl stacks the keys of what it gets over the batch, so every number is always
there; what stands for null is in docs/trainers.md.
"""

from __future__ import annotations

import functools

from .client import Client, Unavailable
from .numbers import numbers_of


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
    **_: object,
) -> dict[str, float]:
    """score and the components. Keyword arguments come from reward_kwargs of verl's configuration.

    Refused is raised; where the daemon is away the score is fill, and masked 1.
    """
    try:
        verdict = _client(url, token, wait_s).judge(ground_truth, solution_str, reward=reward, policy=policy)
    except Unavailable:
        verdict = {}
    return numbers_of(verdict, fill)
