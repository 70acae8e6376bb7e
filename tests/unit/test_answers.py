"""Right answers that are kept for a group: to these very inputs, in a bounded room."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "harness"))

from oracle import answers
from oracle.reference import Expected

CPU = torch.device("cpu")
KEY = ("c1", "question")


def expected(values: list[object], own: list[object], *, against: str = "fp64") -> Expected:
    return Expected(values, own, ["0"], against, [0.0], False, [None], None)


def answer(size: int = 8, *, against: str = "fp64") -> Expected:
    own = torch.arange(size, dtype=torch.float32)
    return expected([own.double() if against == "fp64" else own], [own], against=against)


def test_what_is_kept_is_a_copy_for_these_very_inputs() -> None:
    kept, inputs, first = answers.Answers(CPU), [torch.randn(5, 3), torch.randn(7)], answer()
    kept.keep(KEY, inputs, first)
    first.values[0].zero_()
    found = kept.find(KEY, [x.clone() for x in inputs])
    assert found is not None and found.values[0].tolist() == list(range(8))
    assert found.own[0].dtype == torch.float32 and found.own[0].shape == (8,) and found.own[0].is_meta
    assert kept.find(("c2", "question"), inputs) is None and kept.find(("c1", "another"), inputs) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64])
@pytest.mark.parametrize("where", [0, 12, -1])
def test_one_bit_of_the_inputs_makes_them_others(dtype: torch.dtype, where: int) -> None:
    """Whatever their type, and in whatever part of them."""
    kept = answers.Answers(CPU)
    inputs = torch.zeros(37, dtype=dtype)
    kept.keep(KEY, [inputs], answer())
    assert kept.find(KEY, [inputs]) is not None
    inputs.view(torch.uint8)[where] ^= 1
    assert kept.find(KEY, [inputs]) is None
    inputs.view(torch.uint8)[where] ^= 1
    assert kept.find(KEY, [inputs.view(1, 37)]) is None


def test_exchanged_inputs_are_others() -> None:
    kept, a, b = answers.Answers(CPU), torch.randn(9), torch.randn(9)
    kept.keep(KEY, [a, b], answer())
    assert kept.find(KEY, [b, a]) is None and kept.find(KEY, [a, b]) is not None


def test_parts_of_a_large_input_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "WORDS", 4)
    kept, x = answers.Answers(CPU), torch.randn(35)
    kept.keep(KEY, [x], answer())
    assert kept.find(KEY, [torch.cat([x[8:16], x[:8], x[16:]])]) is None
    assert kept.find(KEY, [x]) is not None


def test_the_one_used_longest_ago_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "HOST_BYTES", 3 * 64)
    kept, x = answers.Answers(CPU), [torch.randn(2)]
    for name in "abc":
        kept.keep((name, 0), x, answer())
    assert kept.find(("a", 0), x) is not None
    kept.keep(("d", 0), x, answer(16))  # as large as two
    assert [kept.find((name, 0), x) is not None for name in "abcd"] == [True, False, False, True]
    kept.keep(("e", 0), x, answer(32))
    assert kept.find(("e", 0), x) is None and kept.find(("d", 0), x) is not None


def test_who_is_forgotten_leaves_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "HOST_BYTES", 2 * 64)
    kept, x = answers.Answers(CPU), [torch.randn(2)]
    kept.keep(("a", 0), x, answer())
    kept.keep(("b", 0), x, answer())
    kept.forget("b")
    kept.keep(("c", 0), x, answer())
    assert [kept.find((name, 0), x) is not None for name in "abc"] == [True, False, True]
    kept.clear()
    kept.keep(("d", 0), x, answer(16))
    assert kept.find(("d", 0), x) is not None and kept.find(("a", 0), x) is None


def test_inputs_that_are_too_large_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = answers.Answers(CPU)
    assert kept.is_fit([torch.randn(16), torch.randn(16)])
    monkeypatch.setattr(answers, "INPUTS_MOST", 127)
    assert not kept.is_fit([torch.randn(16), torch.randn(16)])


def test_another_answer_to_a_question_takes_the_place_of_the_first() -> None:
    kept, x = answers.Answers(CPU), [torch.randn(2)]
    kept.keep(KEY, x, answer())
    kept.keep(KEY, x, answer(16, against="own"))
    found = kept.find(KEY, x)
    assert found is not None and found.values[0].tolist() == list(range(16))
