"""What bench-learning stands on: its family of tasks, and its figures against hand-computed ones."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import family
import learning
from finetune.data import encode
from finetune.model import tokenizer_of


def test_sets_of_a_family_are_disjoint_and_the_seed_s() -> None:
    learn, held_out = family.split(3, [40, 20])
    assert (len(learn), len(held_out)) == (40, 20)
    assert not set(learn) & set(held_out)
    assert family.split(3, [40, 20]) == [learn, held_out]
    assert family.split(4, [40, 20]) != [learn, held_out]
    with pytest.raises(SystemExit, match="are asked for"):
        family.split(0, [10**6])


def test_no_task_of_the_family_forgets_its_input() -> None:
    assert family.is_constant(("negate", "absolute", "negate")) is False
    assert family.is_constant(("absolute", "negate", "relu")) is True
    assert ("absolute", "negate", "relu") not in family.chains(0)


def test_a_row_is_as_short_as_it_is_meant_to_be(tmp_path: Path) -> None:
    """Each line of a step is one token, both in the prompt as trainer(1) makes it and in the answer."""
    family.make_base(tmp_path / "base", seed=1, hidden=16, layers=1)
    tokenizer = tokenizer_of(str(tmp_path / "base"))
    template = (family.ROOT / "client" / "prompt" / "kernel.txt").read_text().strip()
    chain = family.chains(1)[0]
    prompt = template.replace("{{class}}", "ModelNew").replace("{{reference}}", family.reference(chain))
    ids, asked = encode(tokenizer, prompt, family.answer(chain))
    assert len(ids) - asked == len(family.BEFORE) + len(chain) + len(family.AFTER) + 1
    assert asked < 16
    assert tokenizer.decode(ids[asked:], skip_special_tokens=True) == family.answer(chain)
    assert len(ids) - asked <= learning.ANSWER_TOKENS


def test_intervals_and_gains_are_student_s() -> None:
    mean, half = learning.interval([0.1, 0.2, 0.3])
    assert mean == pytest.approx(0.2)
    assert half == pytest.approx(4.303 * 0.1 / math.sqrt(3))
    assert learning.interval([0.5]) == (0.5, None)
    rows = [
        {"kind": "evaluation", "seed": seed, "phase": phase, "reward": reward, "correct": reward}
        for seed, rewards in ((0, (0.0, 0.2, 0.3, 0.4, 0.5, 0.1)), (1, (0.0, 0.3, 0.4, 0.4, 0.4, 0.1)))
        for phase, reward in zip(learning.PHASES, rewards, strict=True)
    ]
    text = learning.table(rows, [0, 1]).splitlines()
    assert text[3].startswith("| sft | 0.200 | 0.300 | 0.250 ± 0.635 | - |")
    assert text[4].startswith("| bestofn | 0.300 | 0.400 | 0.350 ± 0.635 | 0.100 ± 0.000 |")
    assert "| 0.200 ± 1.271 |" in text[6]
    assert learning.table(rows[:2], [0, 1]).splitlines()[6] == "| reinforce | - | - | - | - | - |"


def test_a_reinforce_that_was_cut_short_is_named() -> None:
    row = {"kind": "evaluation", "seed": 2, "phase": "reinforce", "reward": 0.5, "correct": 0.5, "steps": 9}
    assert "cut short" not in learning.table([row | {"is_complete": True}], [2])
    assert learning.table([row | {"is_complete": False}], [2]).endswith("limit: reinforce of seed 2 after 9 steps")


def test_answers_are_wrong_as_often_as_they_are_meant_to_be() -> None:
    chains = family.chains(0)[:300]
    assert [row["triton_code"] for row in family.training_rows(chains, 0, 0.0)] == list(map(family.program, chains))
    rows = family.training_rows(chains, 0, 0.2)
    right = sum(row["triton_code"] == family.program(chain) for row, chain in zip(rows, chains, strict=True))
    assert 0.4 < right / len(chains) < 0.7  # (1 - 0.2 * 9 / 10) ** 3 = 0.55
