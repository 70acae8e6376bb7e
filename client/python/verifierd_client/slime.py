"""A reward function for slime, for what its address alone cannot carry: whole groups, and labels of the run.

    --custom-rm-path verifierd_client.slime.reward            one sample at a time
    --custom-rm-path verifierd_client.slime.reward --group-rm a prompt's samples together, as rewards of a rank need

VERIFIERD_URL, VERIFIERD_TOKEN and VERIFIERD_RUN are in the workers' environment; VERIFIERD_REWARD is the reward's kind
or an object's text (staged). A sample's label says the task; its metadata's rollout_id, where you set it, is the step.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from typing import Any

from .client import Client, labels
from .numbers import numbers_of
from .rows import POOL, judge_rows


@functools.lru_cache
def _client() -> Client:
    return Client()


async def reward(args: Any, samples: Any, **_: object) -> float | list[float]:
    """The reward of one sample, or those of a group's; without a verdict 0, and metadata["masked"] is true."""
    if not isinstance(samples, list):
        return (await _rewards([samples]))[0]
    return await _rewards(samples)


async def _rewards(samples: list[Any]) -> list[float]:
    kind = os.environ.get("VERIFIERD_REWARD", "staged")
    told = labels(step=(samples[0].metadata or {}).get("rollout_id"))
    options = {"reward": json.loads(kind) if kind.lstrip().startswith("{") else kind, "metadata": told}
    answers = [sample.response for sample in samples]
    judge = functools.partial(judge_rows, _client(), samples[0].label, answers, **options)
    verdicts = await asyncio.get_running_loop().run_in_executor(POOL, judge)
    rewards = []
    for sample, verdict in zip(samples, verdicts, strict=True):
        numbers = numbers_of(verdict or {})
        sample.metadata = {**(sample.metadata or {}), "verifierd": numbers, "masked": bool(numbers["masked"])}
        rewards.append(numbers["score"])
    return rewards
