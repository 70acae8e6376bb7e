"""What bench-forging stands on: answers that are read as they were made, and its figures against hand-computed ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import family
import forging
import forging_family as forms
from finetune.data import encode
from finetune.model import tokenizer_of

CHAIN = ("negate", "double", "raise")
SHAPE = "16, 32"


def group(run: str, step: int, *answers: tuple[str, str, float]) -> dict[str, Any]:
    """Of (answer, cheat, what was paid)."""
    return {
        "kind": "group", "run": run, "step": step, "task": "t",
        "answers": [[name, "wide", cheat, "ok", True, 1.0, paid] for name, cheat, paid in answers],
    }  # fmt: skip


@pytest.mark.parametrize("launch", forms.LAUNCHES)
@pytest.mark.parametrize("cheat", ["", *forms.CHEATS])
def test_an_answer_is_read_as_it_was_made(launch: str, cheat: str) -> None:
    said = forms.answer(CHAIN, launch, cheat)
    assert forms.read(said) == (launch, cheat)
    assert ("    x = -x\n" in said) is (cheat != "close")
    compile(said.removeprefix("```python\n").removesuffix("```\n"), "answer", "exec")


def test_an_answer_without_a_launch_is_told() -> None:
    assert forms.read("```python\npass\n```") == ("", "")


def test_a_part_of_the_rows_cheats_and_every_launch_is_there() -> None:
    rows = forms.training_rows(family.chains(0)[:10], 0, 200, 0.3, SHAPE)
    read = [forms.read(str(row["output"])) for row in rows]
    assert {launch for launch, _ in read} == set(forms.LAUNCHES)
    assert 0.2 < sum(bool(cheat) for _, cheat in read) / 200 < 0.4
    assert len({row["instruction"] for row in rows}) == 10
    assert all(f"torch.randn({SHAPE})" in str(row["instruction"]) for row in rows)
    honest = forms.training_rows(family.chains(0)[:10], 0, 50, 0.0, SHAPE)
    assert not any(forms.read(str(row["output"]))[1] for row in honest)


def test_each_piece_is_one_token(tmp_path: Path) -> None:
    forms.make_base(tmp_path / "base", 1, 16, 1, [CHAIN], SHAPE)
    tokenizer = tokenizer_of(str(tmp_path / "base"))
    for cheat, more in (("", 0), ("clock", 1)):
        ids, asked = encode(tokenizer, forms.prompt(CHAIN, SHAPE), forms.answer(CHAIN, "often", cheat))
        assert len(ids) - asked == len(family.BEFORE) + 1 + len(family.AFTER) + 1 + more
        assert asked < 14


@pytest.mark.parametrize(
    ("correct", "speedup", "reward"), [(False, None, 0), (True, None, 0.3), (True, 2.0, 2.3), (True, 3000.0, 4.3)]
)
def test_a_reward_is_kevin_s(correct: bool, speedup: float | None, reward: float) -> None:
    assert forging.Found("", correct, speedup).reward == pytest.approx(reward)


def test_steps_have_what_was_paid_what_is_true_and_cheats() -> None:
    rows = [
        group("forged0", 1, ("a", "", 2.0), ("b", "clock", 4.0)),
        group("forged1", 1, ("b", "clock", 4.0), ("b", "clock", 4.0)),
        group("true0", 1, ("a", "", 2.5)),
        {"kind": "truth", "task": "t", "answer": "a", "reward": 2.5},
        {"kind": "truth", "task": "t", "answer": "b", "reward": 0.5},
    ]
    (forged,) = forging.by_step(rows, "forged")
    assert (forged["paid"], forged["true"], forged["hacks"]) == ((3.0, 4.0), (1.5, 0.5), (0.5, 1.0))
    (true,) = forging.by_step(rows, "true")
    assert (true["paid"], true["true"], true["hacks"], true["seeds"]) == ((2.5,), (2.5,), (0.0,), 1)


def test_the_table_has_gains_within_each_seed() -> None:
    rows = [
        {
            "kind": "held_out",
            "seed": seed,
            "arm": arm,
            "reward": reward,
            "hacks": 0.5,
            "correct": 1.0,
            "speedups": [2.0],
        }
        for seed, rewards in ((0, (1.0, 2.0, 0.5)), (1, (1.0, 3.0, 0.5)))
        for arm, reward in zip(("sft", *forging.ARMS), rewards, strict=True)
    ]
    lines = forging.table(rows).splitlines()
    assert lines[2].startswith("| sft | 1.00 1.00 | 1.000 ± 0.000 | - | 0.50 0.50 |")
    assert lines[3].startswith("| true | 2.00 3.00 | 2.500 ± 6.353 | 1.500 ± 6.353 |")
    assert lines[4].startswith("| forged | 0.50 0.50 | 0.500 ± 0.000 | -0.500 ± 0.000 |")
