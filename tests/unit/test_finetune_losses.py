"""Losses and gradients of the trainers against formulas worked out by hand; advantages and weights by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from finetune import checkpoint, policy, rewards, supervised, tiny
from finetune.data import Example, chat_prompt
from finetune.judge import Judge, Task, Verdict
from finetune.runs import Run
from finetune.settings import settings_of
from trl import GRPOTrainer

torch.set_num_threads(1)

Loss = Callable[[Any], torch.Tensor]
ANSWERS = ([7, 8, 9], [5, 6])


class Compared(Exception):
    """The first step of the optimizer was reached: nothing more is wanted."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "tiny"
    tiny.make(directory, ["Write relu in Triton."], vocabulary=280, hidden=32, layers=1)
    return directory


def nll(model: Any, ids: Sequence[int], prompt: int, temperature: float = 1.0) -> torch.Tensor:
    """Of each token after the prompt, by the plainest way there is."""
    logits = model(input_ids=torch.tensor([list(ids)])).logits[0, prompt - 1 : -1].float() / temperature
    return -torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[prompt:]).unsqueeze(1)).squeeze(1)


def compare(trainer: Any, by_hand: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a trainer's first step is that of by_hand(model), and not 0."""
    trained = {name: p for name, p in trainer.run.model.named_parameters() if p.requires_grad}

    def stepped(*_: Any, **__: Any) -> None:
        found = {name: p.grad.clone() for name, p in trained.items()}
        trainer.run.model.zero_grad()
        by_hand(trainer.run.model).backward()
        assert any(p.grad.abs().max() > 1e-4 for p in trained.values())
        for name, p in trained.items():
            torch.testing.assert_close(found[name], p.grad, rtol=1e-4, atol=1e-6)
        raise Compared

    monkeypatch.setattr(torch.optim.AdamW, "step", stepped)
    with pytest.raises(Compared):
        trainer.train()


def run_of(method: str, model: Path, workdir: Path, **more: object) -> Run:
    given = {"model": str(model), "checkpointing": False, "lora_dropout": 0.0, "gradient_norm": 1e9}
    return Run(method, settings_of(method, given | more), workdir, {})


SPREAD = [(2, 1), (1, 2)]  # rows of a pass, passes of a step


@pytest.mark.parametrize(("batch", "accumulation"), SPREAD)
def test_supervised_is_the_mean_over_tokens(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, accumulation: int
) -> None:
    run = run_of("sft", model, tmp_path, batch=batch, accumulation=accumulation)
    rows = [Example([1, 2, 3, *answer], 3) for answer in ANSWERS]

    def by_hand(one: Any) -> torch.Tensor:
        return torch.cat([nll(one, row.ids, row.prompt) for row in rows]).sum() / 5

    compare(supervised.trainer_of(run, rows), by_hand, monkeypatch)


@pytest.mark.parametrize(("batch", "accumulation"), SPREAD)
def test_gradient_of_the_weighted_loss(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, accumulation: int
) -> None:
    """(0.1 * mean NLL of the first + 0.3 * of the second) / 0.4: by row, not by token and not by batch."""
    run = run_of("weighted", model, tmp_path, batch=batch, accumulation=accumulation, weight="column")
    given = [Example([1, 2, 3, *answer], 3, reward) for answer, reward in zip(ANSWERS, (0.1, 0.3), strict=True)]
    rows = supervised.weigh([*given, Example([1, 2, 3, 4], 3, 0.0)], run.settings)
    assert [row.weight for row in rows] == pytest.approx([1.0, 3.0]), "a row of weight 0 is no row"

    def by_hand(one: Any) -> torch.Tensor:
        return sum(row.reward * nll(one, row.ids, row.prompt).mean() for row in rows) / 0.4

    compare(supervised.trainer_of(run, rows), by_hand, monkeypatch)


@pytest.mark.parametrize("method", ["sft", "weighted"])
def test_rows_that_do_not_fill_a_pass_of_all_processes_count_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Two processes with two rows each: here one process takes their passes one after the other."""
    run = run_of(method, model, tmp_path, batch=2, accumulation=2)
    run.world = 2
    rows = [Example([1, 2, 3, *answer], 3, weight=w) for answer, w in zip(ANSWERS, (1.0, 3.0), strict=True)]

    def by_hand(one: Any) -> torch.Tensor:
        if method == "sft":
            return torch.cat([nll(one, row.ids, row.prompt) for row in rows]).sum() / 5
        return sum(row.weight * nll(one, row.ids, row.prompt).mean() for row in rows) / 4

    trainer = supervised.trainer_of(run, rows)
    assert [sum(label >= 0 for label in row["labels"]) for row in trainer.train_dataset] == [3, 2, 0, 0]
    compare(trainer, by_hand, monkeypatch)


@pytest.mark.parametrize(("world", "batch"), [(1, 1), (2, 2)])
def test_the_loss_that_is_told_is_that_of_the_step(model: Path, tmp_path: Path, world: int, batch: int) -> None:
    """The second's other pass has only rows that fill it."""
    run = run_of("weighted", model, tmp_path, batch=batch, accumulation=2, weight="column")
    run.world = world
    rows = [Example([1, 2, 3, *answer], 3, w, w) for answer, w in zip(ANSWERS, (1.0, 3.0), strict=True)]
    with torch.no_grad():
        expected = sum(row.weight * nll(run.model, row.ids, row.prompt).mean() for row in rows) / 4
    assert supervised.trainer_of(run, rows).learn() == 0
    assert run.metrics.rows[0]["loss"] == pytest.approx(float(expected), rel=1e-5)


class Scripted(Judge):
    """Gives these verdicts, group after group."""

    def __init__(self, verdicts: Sequence[Verdict], alpha: float | None) -> None:
        self._verdicts, self._alpha, self.waited_s = list(verdicts), alpha, 0.0
        self.groups: list[list[str]] = []

    @property
    def alpha(self) -> float | None:
        return self._alpha

    def post(self, task: Task, answers: Sequence[str], step: int) -> str:
        self.groups.append(list(answers))
        return str(len(self.groups) - 1)

    def wait(self, groups: Sequence[str]) -> list[list[Verdict]]:
        return [[self._verdicts.pop(0) for _ in self.groups[int(group)]] for group in groups]


def verdicts_of(*given: float | None) -> list[Verdict]:
    return [Verdict(r, {"plan": r, "code": None if r is None else -2 * r}, "ok") for r in given]


UP = 0.5 / (0.5**0.5 + 1e-4)  # GRPO's advantage of the better of two, whatever they are
# method, settings, rewards of two groups of two, alpha, advantages by hand (None: the answer counts nowhere)
POLICIES: list[tuple[str, dict[str, object], list[float | None], float | None, list[float | None]]] = [
    ("reinforce", {}, [1.0, 0.0, 0.5, 0.25], None, [1.0, -1.0, 0.25, -0.25]),
    ("reinforce", {"batch": 1}, [1.0, 0.0, 0.5, None], None, [1.0, -1.0, 0.0, None]),
    ("reinforce", {"baseline": "none", "temperature": 0.7}, [1.0, 0.0, 0.5, 0.5], None, [1.0, 0.0, 0.5, 0.5]),
    ("reinforce", {}, [1.0, 0.0, 0.5, 0.25], 0.5, [-2.0, 2.0, -0.5, 0.5]),
    (
        "grpo",
        {"temperature": 0.7},
        [1.0, 0.0, 0.5, 0.25],
        None,
        [UP, -UP, 0.125 / (0.03125**0.5 + 1e-4), -0.125 / (0.03125**0.5 + 1e-4)],
    ),
    ("grpo", {}, [1.0, 0.0, 3.0, None], 0.5, [-1 / (2**0.5 + 1e-4), 1 / (2**0.5 + 1e-4), 0.0, None]),
]


@pytest.mark.parametrize(("method", "more", "given", "alpha", "expected"), POLICIES)
def test_policy_gradients_by_hand(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    more: dict[str, object],
    given: list[float | None],
    alpha: float | None,
    expected: list[float | None],
) -> None:
    """The gradient of -sum A log p / N under the sampling distribution, N the tokens of what counts.

    These answers have no fence: with alpha all of them is code.
    """
    common: dict[str, object] = {"tasks_per_step": 2, "samples": 2, "answer_tokens": 6, "batch": 4, "truncated": "keep"}
    run = run_of(method, model, tmp_path, epochs=1, **common | more)
    tasks = [Task(f"t{i}", f"id{i}", f"Write {i}.", "strict", "ModelNew") for i in range(2)]
    trainer: Any = policy.trainer_of(run, Scripted(verdicts_of(*given), alpha), tasks)
    seen: list[tuple[list[int], int]] = []
    inner = trainer._generate_single_turn

    def watched(prompts: list[list[int]], *rest: Any, **named: Any) -> Any:
        said, logprobs = inner(prompts, *rest, **named)
        seen.extend((prompt + ids, len(prompt)) for prompt, ids in zip(prompts, said, strict=True))
        return said, logprobs

    trainer._generate_single_turn = watched
    # What counts of a step is all tokens of it for TRL, and those with a verdict where advantages are ours.
    is_ours = method == "reinforce" or alpha is not None

    def by_hand(one: Any) -> torch.Tensor:
        counted = [(ids, at, a) for (ids, at), a in zip(seen, expected, strict=True) if a is not None or not is_ours]
        total = sum(len(ids) - at for ids, at, _ in counted)
        heat = run.settings.temperature
        return sum((a or 0.0) * nll(one, ids, at, heat).sum() for ids, at, a in counted) / total

    compare(trainer, by_hand, monkeypatch)


def test_what_was_cut_off_counts_in_the_baseline_only(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("reinforce", model, tmp_path, epochs=1, tasks_per_step=1, samples=2, answer_tokens=3, batch=2)
    trainer = policy.trainer_of(run, Scripted(verdicts_of(1.0, 0.0), None), [Task("t", "i", "p", "strict", "ModelNew")])
    end = run.tokenizer.eos_token_id
    said = [[5, 6, end], [7, 8, 9]]
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", lambda *_, **__: (said, None))
    prompt = chat_prompt(run.tokenizer, "p")

    def by_hand(one: Any) -> torch.Tensor:
        return nll(one, [*prompt, *said[0]], len(prompt)).sum() / 3

    compare(trainer, by_hand, monkeypatch)


def test_a_policy_gradient_may_have_a_loss_of_either_sign(model: Path, tmp_path: Path) -> None:
    run = run_of("reinforce", model, tmp_path, tasks_per_step=1, samples=2)
    trainer = policy.trainer_of(run, Scripted([], None), [Task("t", "i", "p", "strict", "ModelNew")])
    trainer.check_loss(-1.0)


@pytest.mark.parametrize("method", ["reinforce", "grpo"])
def test_a_step_with_nothing_to_learn_from_moves_nothing(model: Path, tmp_path: Path, method: str) -> None:
    """Neither by momentum nor by decay, after a step that did."""
    run = run_of(method, model, tmp_path, tasks_per_step=1, samples=2, answer_tokens=4, epochs=1, weight_decay=0.1,
                 save_steps=1, keep=3, learning_rate=0.01, truncated="keep")  # fmt: skip
    tasks = [Task(f"t{i}", f"id{i}", f"Write {i}.", "strict", "ModelNew") for i in range(3)]
    assert policy.trainer_of(run, Scripted(verdicts_of(1.0, 0.0, 0.5, 0.5, 0.0, 1.0), None), tasks).learn() == 0
    assert [row["gradient_norm"] > 0 for row in run.metrics.rows] == [True, False, True]
    assert all(0 < row["sampling_s"] < row["seconds"] for row in run.metrics.rows)
    kept = [checkpoint.digest_of(p / "adapter_model.safetensors") for p in checkpoint.step_directories(run.root)]
    assert len(kept) == 3 and kept[2] == kept[1] != kept[0]


def test_leave_one_out() -> None:
    assert rewards.advantages([1.0, 0.0, 0.5], "leave_one_out") == pytest.approx([0.75, -0.75, 0.0])
    assert rewards.advantages([1.0, 0.0, 0.5], "none") == [1.0, 0.0, 0.5]


def test_advantages_of_grpo_by_hand() -> None:
    assert rewards.advantages([1.0, 0.0], "group") == pytest.approx([UP, -UP])
    assert rewards.advantages([1.0, None, 0.0], "group") == [pytest.approx(UP), None, pytest.approx(-UP)]


def test_no_verdict_is_no_reward() -> None:
    assert rewards.advantages([1.0, None, 0.0], "leave_one_out") == [1.0, None, -1.0]
    assert rewards.advantages([1.0, None], "leave_one_out") == [0.0, None]
    assert rewards.is_constant([0.3, None, 0.3]) and not rewards.is_constant([0.3, 0.0])


def test_weights_are_winsorized() -> None:
    given = [0.0] * 10 + [1.0] * 10 + [100.0]
    weights = rewards.weights_of(given, "winsorized", 1.0, 20.0)
    assert max(weights) == pytest.approx(1.0) and min(weights) == 0.0
    assert rewards.weights_of([-1.0, 1.0], "winsorized", 1.0, 20.0)[0] == 0.0


def test_exponential_weights_are_clipped() -> None:
    weights = rewards.weights_of([0.0, 1.0], "exponential", 0.5, 2.0)
    assert weights == pytest.approx([math.exp(-1), 2.0])
    assert rewards.weights_of([0.0, 1e6], "exponential", 1e-3, 20.0)[1] == 20.0
