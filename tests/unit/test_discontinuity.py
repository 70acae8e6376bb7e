"""What is rounded to codes inside a task: an answer beside a step is as right as the one that was expected."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import torch
from oracle import discontinuity
from oracle.tolerance import Limit

LIMIT = Limit(1e-4, 1e-4)
ELEMENTS = 4096


def answers(*told: torch.Tensor) -> Generator[list[Any], None, None]:
    for one in told:
        yield [None, one]


def other_at(wanted: torch.Tensor, *places: int) -> torch.Tensor:
    found = wanted.clone()
    found.view(-1)[list(places)] += 0.5
    return found


def test_a_place_is_right_where_another_exact_answer_is_the_same() -> None:
    wanted = torch.rand(64, 64)
    found = discontinuity.doubt(other_at(wanted, 3, 700), wanted, LIMIT)
    assert found is not None and found.places.tolist() == [3, 700]
    assert discontinuity.settle({1: found}, answers(other_at(wanted, 3).double(), other_at(wanted, 700, 9).double()))
    kept = wanted.clone()
    found.put(kept)
    assert torch.equal(kept, other_at(wanted, 3, 700))


def test_a_place_that_no_exact_answer_has_stays_wrong() -> None:
    wanted = torch.rand(64, 64)
    got = other_at(wanted, 3, 700)
    found = discontinuity.doubt(got, wanted, LIMIT)
    assert found is not None
    assert not discontinuity.settle({1: found}, answers(wanted, other_at(wanted, 3)))
    kept = wanted.clone()
    found.put(kept)
    assert torch.equal(kept, other_at(wanted, 3))


@pytest.mark.parametrize(
    "got",
    [
        torch.zeros(ELEMENTS),
        other_at(torch.zeros(ELEMENTS), *range(6)),
        other_at(torch.zeros(ELEMENTS), 1) * torch.inf,
        torch.zeros(ELEMENTS, dtype=torch.int32) + 1,
        torch.zeros(ELEMENTS // 2, 2),
        1.5,
    ],
    ids=["right", "more than a few", "no number", "integers", "another shape", "a number"],
)
def test_what_is_no_matter_of_steps(got: Any) -> None:
    assert discontinuity.doubt(got, torch.zeros(ELEMENTS), LIMIT) is None


def test_what_has_no_distance_is_no_step() -> None:
    """Any number was right where the reference answers with infinity, or another exact answer does."""
    wanted = torch.rand(ELEMENTS)
    for odd in (torch.inf, torch.nan):
        masked = wanted.clone()
        masked[5] = odd
        assert discontinuity.doubt(wanted, masked, LIMIT) is None
    found = discontinuity.doubt(other_at(wanted, 2), wanted, LIMIT)
    assert found is not None
    infinite = wanted.clone()
    infinite[2] = torch.inf
    assert not discontinuity.settle({1: found}, answers(infinite))


def test_an_answer_of_another_form_says_nothing() -> None:
    """How many values are selected may follow from the last digits, too."""
    wanted = torch.rand(ELEMENTS)
    found = discontinuity.doubt(other_at(wanted, ELEMENTS - 1), wanted, LIMIT)
    assert found is not None
    assert not discontinuity.settle({1: found, 7: found}, answers(wanted[:-1]))


def test_one_number_alone_is_no_matter_of_steps() -> None:
    """Nothing was right for a masked loss: its mask, of ones, was moved to other numbers."""
    for shape in ((), (1,), (1, 1)):
        assert discontinuity.doubt(torch.zeros(shape), torch.ones(shape), LIMIT) is None


def test_what_a_limit_allows_anyway_is_not_asked_about() -> None:
    """Timed answers beside a step were mismatches where another place was a little beyond its limit."""
    wanted, limit = torch.ones(ELEMENTS * 8), Limit(1e-4, 1e-4, ratio=0.9999, outlier=10.0)
    got = other_at(wanted, 3)
    got[[9, 11]] += 1e-3
    found = discontinuity.doubt(got, wanted, limit)
    assert found is not None and found.places.tolist() == [3]
    got[[20, 21]] += 1e-3
    found = discontinuity.doubt(got, wanted, limit)
    assert found is not None and found.places.tolist() == [3, 9, 11, 20, 21]


def test_no_more_answers_are_asked_for_than_it_takes() -> None:
    wanted = torch.rand(16)
    found = discontinuity.doubt(other_at(wanted, 2), wanted, LIMIT)
    assert found is not None
    asked = answers(other_at(wanted, 2), wanted)
    assert discontinuity.settle({1: found}, asked)
    with pytest.raises(StopIteration):
        next(asked)
