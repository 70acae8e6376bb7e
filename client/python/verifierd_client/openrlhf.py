"""A reward function for OpenRLHF, for what its address alone cannot carry: labels of the run and of the step.

    --reward.remote_url PATH/verifierd_client/openrlhf.py

The settings are in the workers' environment: VERIFIERD_URL, VERIFIERD_TOKEN, VERIFIERD_RUN, and VERIFIERD_REWARD, a
kind or an object's text (staged). OpenRLHF does not say the step: where you want it, have a callback write it to a
file, and name the file in VERIFIERD_STEP_FILE.
"""

from __future__ import annotations

import functools
import json
import os
import warnings
from pathlib import Path
from typing import Any

from verifierd_client.client import Client, labels
from verifierd_client.numbers import numbers_of
from verifierd_client.rows import judge_row

LOGGED = ("extracted", "valid", "compiled", "correct", "hack", "speedup", "coverage", "masked")


@functools.lru_cache
def _client() -> Client:
    return Client()


def _reward() -> object:
    told = os.environ.get("VERIFIERD_REWARD", "staged")
    return json.loads(told) if told.lstrip().startswith("{") else told


def _step() -> int | None:
    path = os.environ.get("VERIFIERD_STEP_FILE")
    words = Path(path).read_text().split() if path else []
    return int(words[0]) if words else None  # empty: while it is written anew


def _answer_of(query: str, prompt: str) -> str | None:
    """What follows the prompt, of which a tokenizer may have left out spaces. None: the query begins otherwise."""
    if query.startswith(prompt):
        return query[len(prompt) :]
    at = 0
    for one in "".join(prompt.split()):
        while query[at : at + 1].isspace():
            at += 1
        if query[at : at + 1] != one:
            return None
        at += 1
    return query[at:]


def reward_func(queries: list[str], prompts: list[str], labels_: list[object]) -> dict[str, Any]:
    """rewards, scores (correctness) and extra_logs. A row's label says the task; without a verdict its reward is 0."""
    told = labels(step=_step())
    numbers = []
    for query, prompt, label in zip(queries, prompts, labels_, strict=True):
        verdict = None
        if (answer := _answer_of(query, prompt)) is not None:
            verdict = judge_row(_client(), label, answer, reward=_reward(), metadata=told)
        else:  # the prompt may hold a solution
            warnings.warn("a query does not begin with its prompt: it has no reward", stacklevel=2)
        numbers.append(numbers_of(verdict or {}))
    return {
        "rewards": [one["score"] for one in numbers],
        "scores": [0.0 if one["masked"] else one["correct"] for one in numbers],
        "extra_logs": {name: [one[name] for one in numbers] for name in LOGGED},
    }
