"""Metamorphic relations, on plain callables: which forms a function satisfies, and what contradicts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle import relations
from torch import Tensor

LIMIT = relations.Allowed(1e-4, 1e-4)


def pairs(
    form: relations.Form, call: Callable[[relations.Inputs], relations.Answer], inputs: relations.Inputs
) -> list[relations.Pair] | None:
    varied = form.vary(inputs, generator())
    return None if varied is None else relations.related(form, [call(item) for item in varied], varied)


def satisfied(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> set[str]:
    """The texts of all forms that hold in fp64."""
    inputs = given(*shapes)

    def call(arguments: list[Any]) -> list[Tensor]:
        return [function(*(x.double() for x in arguments))]

    found = [(form, pairs(form, call, inputs)) for form in relations.FORMS]
    return {form.text for form, equal in found if equal is not None and relations.holds(equal)}


def given(*shapes: tuple[int, ...]) -> list[Any]:
    torch.manual_seed(3)
    return [torch.randn(shape) for shape in shapes]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(4)


ROWS = "f(Px) = P f(x), P of rows"
WEIGHT = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("function", "shapes", "forms"),
    [
        (torch.relu, [(8, 6)], {"f(2x) = 2 f(x)", ROWS}),
        (lambda x: x @ WEIGHT, [(8, 6)], {"f(2x) = 2 f(x)", "f(x + x') = f(x) + f(x')", ROWS}),
        (lambda x: x @ WEIGHT + 1, [(8, 6)], {ROWS}),
        (lambda x: torch.softmax(x, 1), [(8, 6)], {ROWS, "f(x + c) = f(x)"}),
        (
            lambda x: x.mean(1),
            [(8, 6)],
            {"f(2x) = 2 f(x)", "f(x + x') = f(x) + f(x')", ROWS, "f(x + c) = f(x) + c"},
        ),
        (
            lambda x: x.amax(),
            [(8, 6)],
            {"f(2x) = 2 f(x)", "f(Px) = f(x), P of rows", "f(x + c) = f(x) + c"},
        ),
        (
            torch.mul,
            [(8, 6), (8, 6)],
            {"f(2x, y) = 2 f(x, y)", "f(x + x', y) = f(x, y) + f(x', y)", "f(x, y) = f(y, x)", ROWS},
        ),
        (
            torch.matmul,
            [(8, 8), (8, 8)],
            {"f(2x, y) = 2 f(x, y)", "f(x + x', y) = f(x, y) + f(x', y)"},
        ),
        (
            torch.add,
            [(8, 6), (8, 6)],
            {"f(2x) = 2 f(x)", "f(x + x') = f(x) + f(x')", "f(x, y) = f(y, x)", ROWS, "f(x + c) = f(x) + c"},
        ),
        (lambda x: torch.cumsum(x, 0).sin(), [(8, 6)], set()),
        (lambda x: x * 0, [(8, 6)], set()),  # zeros satisfy all, and say nothing
    ],
)
def test_a_function_satisfies_the_forms_that_are_true_of_it(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], forms: set[str]
) -> None:
    assert satisfied(function, *shapes) == forms


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sums_of_inputs_are_exact_in_every_dtype(dtype: torch.dtype) -> None:
    inputs = [x.to(dtype) for x in given((64, 64))]
    for form in relations.FORMS:
        if form.relation not in ("additivity", "shift") or "y" in form.text:
            continue
        varied = form.vary(inputs, generator())
        assert varied is not None and all(item[0].dtype is dtype for item in varied)
        one, last = varied[0][0].double(), varied[-1][0].double()
        other = varied[1][0].double() if form.relation == "additivity" else torch.full_like(one, (last - one)[0, 0])
        assert torch.equal(one + other, last)


def pairs_of(text: str, function: Callable[..., Tensor]) -> list[relations.Pair]:
    form = next(form for form in relations.FORMS if form.text == text)
    found = pairs(form, lambda x: [function(*x)], given((8, 6)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("f(2x) = 2 f(x)", torch.relu, lambda x: torch.relu(x).clamp(max=2)),
        ("f(x + x') = f(x) + f(x')", lambda x: x.sum(1), lambda x: x.sum(1) + 0.5),
        (ROWS, torch.relu, lambda x: torch.cat([torch.relu(x[:4]), x[4:]])),
        ("f(x + c) = f(x)", lambda x: torch.softmax(x, 1), lambda x: x.exp() / (x.exp().sum(1, keepdim=True) + 1)),
        ("f(x + c) = f(x) + c", lambda x: x.amax(1), lambda x: x.amax(1).clamp(max=3)),
    ],
)
def test_answers_that_contradict_each_other_are_found(
    text: str, right: Callable[..., Tensor], wrong: Callable[..., Tensor]
) -> None:
    assert relations.violation(pairs_of(text, right), [LIMIT]) is None
    found = relations.violation(pairs_of(text, wrong), [LIMIT])
    assert found is not None and found.output == 0 and found.differing > 0 and found.max_abs > 1e-3


def test_an_answer_that_is_no_number_satisfies_nothing() -> None:
    found = relations.violation(pairs_of("f(2x) = 2 f(x)", lambda x: torch.where(x > 1.5, torch.nan, x)), [LIMIT])
    assert found is not None and found.max_abs == float("inf")


def test_what_each_answer_may_err_is_allowed() -> None:
    """By rounding to half precision, say, on both sides; not by as much again."""
    pairs = pairs_of("f(2x) = 2 f(x)", lambda x: (x * 1.000244).half().float())
    allowed = relations.Allowed(1e-3, 1e-3)
    assert relations.violation(pairs, [allowed]) is None
    assert relations.violation(pairs_of("f(2x) = 2 f(x)", lambda x: x + 1), [allowed]) is not None


def test_so_many_elements_as_the_dtype_allows_may_be_off() -> None:
    def one_off(x: Tensor) -> Tensor:
        return torch.where(torch.arange(48).reshape(8, 6) == 7, x + 1, x)

    pairs = pairs_of("f(2x) = 2 f(x)", one_off)
    assert relations.violation(pairs, [relations.Allowed(1e-3, 1e-3, ratio=0.97)]) is None
    found = relations.violation(pairs, [relations.Allowed(1e-3, 1e-3, ratio=0.99)])
    assert found is not None and found.differing == 1


def test_a_form_says_nothing_of_inputs_that_it_does_not_fit() -> None:
    fits = {form.text: form.vary([torch.arange(6)], generator()) is not None for form in relations.FORMS}
    assert {text for text, does in fits.items() if does} == {ROWS, "f(Px) = f(x), P of rows"}
    unlike = [torch.rand(3, 4), torch.rand(4, 3)]
    assert all(form.vary(unlike, generator()) is None for form in relations.FORMS if form.relation == "commutativity")
