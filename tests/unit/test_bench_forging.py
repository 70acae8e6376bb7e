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


def said(number: int, rule: str, answer: str, cheat: str, paid: float) -> dict[str, Any]:
    row = {"kind": "answer", "number": number, "rule": rule, "task": "t", "answer": answer, "style": ["wide", cheat]}
    return row | {"found": "ok", "correct": True, "speedup": paid, "reward": paid}


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
        said(0, "forged", "a", "", 2.0),
        said(1, "forged", "b", "clock", 4.0),
        said(2, "forged", "c", "clock", 4.0),
        said(3, "true", "a", "", 2.5),
        {"kind": "group", "run": "forged0", "step": 1, "answers": [0, 1]},
        {"kind": "group", "run": "forged1", "step": 1, "answers": [1, 1]},
        {"kind": "group", "run": "forged1", "step": 1, "answers": [1, 2]},
        {"kind": "group", "run": "true0", "step": 1, "answers": [3]},
        {"kind": "truth", "task": "t", "answer": "b", "reward": 0.5},
    ]
    forged = forging.by_run(rows, "forged")
    assert forged["forged0"][1] == {"paid": 3.0, "true": 1.5, "least": 1.5, "hacks": 0.5, "judged": 1.0}
    assert forged["forged1"][1] == {"paid": 4.0, "true": 0.5, "least": 0.375, "hacks": 1.0, "judged": 0.75}
    assert forging.by_run(rows, "true")["true0"][1]["true"] == 2.5
    lines = forging.steps_table(rows).splitlines()
    assert lines[3].startswith("| forged | 1 to 1 | 2 | 3.500 ± 6.353 | 1.000 ± 6.353 |")
    styles = forging.styles_table(rows).splitlines()
    assert styles[2] == "| wide | - | 1 of 1, 2.50 to 2.50 | 1 of 1, 2.00 to 2.00 |"
    assert styles[3] == "| wide | clock | 0 of 0, - | 2 of 2, 4.00 to 4.00 |"


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
