"""verifierd-client against a daemon with scripted workers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import service
from scripted import SCRIPTED, TASK
from verifierd_client import Client, Refused
from verifierd_client.trl import make_reward
from verifierd_client.verl import compute_score


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with service.directory() as directory, service.Daemon(directory, SCRIPTED) as running:
        running.client.add_task(TASK)
        yield running.client.url


def answer(script: str) -> str:
    return f"```python\n# script: {script}\n# {time.monotonic_ns()}\n```"


def test_judge(url: str) -> None:
    found = Client(url).judge("scripted", answer("timing=2"), reward="binary", metadata={"step": 7})
    assert (found["class"], found["reward"], found["metadata"]) == ("ok", 1, {"step": 7})
    with pytest.raises(Refused, match="unknown_task"):
        Client(url).judge("nobody", answer("timing=2"))


def test_a_rank_needs_a_group_and_has_one(url: str) -> None:
    scripts = ["timing=1.5", "timing=3", "full=fail:mismatch", "full=reference", "timing=3.01"]
    reward = make_reward(url, reward={"kind": "rank", "params": {"beta": 0}})
    found = reward(prompts=["p"] * 5, completions=[answer(one) for one in scripts], task=["scripted"] * 5)
    # Against three others and the reference; the two that are alike tie.
    assert found == pytest.approx([1 / 3, 2.5 / 3, 0, None, 2.5 / 3])


def test_groups_of_a_batch_are_judged_apart(url: str) -> None:
    reward = make_reward(url, reward="staged", num_generations=2)
    scripts = ["timing=2", "ast=fail:syntax", "full=fail:mismatch", "timing=2"]
    found = reward(prompts=["p"] * 4, completions=[answer(one) for one in scripts], task=["scripted"] * 4)
    assert found == pytest.approx([1, 0, 0.5, 1], rel=1e-3)


def test_verl(url: str) -> None:
    score = compute_score("kernels", answer("timing=1.3"), "scripted", url=url)
    assert score["score"] == pytest.approx(0.895, rel=1e-3)
    assert (score["correct"], score["timed"], score["masked"]) == (1, 1, 0)
    lost = compute_score("kernels", answer("full=reference"), "scripted", url=url, fill=-0.5)
    assert (lost["score"], lost["masked"]) == (-0.5, 1)
    assert set(lost) == set(score)
