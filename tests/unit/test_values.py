"""Value trees: what goes in comes out, and what no honest peer sends is refused by name."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from shared import values
from shared.values import TensorNote, ValueRefused


def test_round_trip() -> None:
    tensor = torch.zeros(2, 3)
    value = [1, -2.5, True, None, "x", (4, 5), {"a": [torch.float16], 3: torch.device("cuda")}, tensor, math.inf, 2j]
    marks = frozenset({values.KEPT})
    tree = values.encode(value, lambda found: replace(TensorNote.of(found, 512), marks=marks))
    back = values.decode(tree, lambda note: note)
    assert back[7] == TensorNote(torch.float32, (2, 3), (3, 1), 512, marks)
    assert [*back[:7], *back[8:]] == [*value[:7], *value[8:]]
    assert type(back[5]) is tuple and type(back[2]) is bool


def test_refuses_what_cannot_be_passed() -> None:
    with pytest.raises(ValueRefused, match=r"value\[1\] is of type set"):
        values.encode([1, {2}], lambda found: TensorNote.of(found))


@pytest.mark.parametrize(
    "tree",
    [
        {"pickle": "x"},
        {"list": "x"},
        {"list": [], "tuple": []},
        {"float": "yes"},
        {"dtype": "float33"},
        {"dict": [[{"list": []}, 1]]},
        {"tensor": {"dtype": "float32", "shape": [-1], "stride": [1]}},
        {"tensor": {"dtype": "float32", "shape": [2], "stride": [1, 1]}},
        {"tensor": {"dtype": "float32", "shape": [True], "stride": [1]}},
        {"tensor": {"dtype": "float32", "shape": [2], "stride": [1], "offset": -4}},
        {"tensor": {"dtype": "float32", "shape": [1] * 13, "stride": [1] * 13}},
        1.5,
    ],
)
def test_refuses_false_trees(tree: Any) -> None:
    with pytest.raises(ValueRefused):
        values.decode(tree, lambda note: note)


def test_depth_is_bounded() -> None:
    tree: Any = None
    for _ in range(values.DEPTH_MAX + 2):
        tree = {"list": [tree]}
    with pytest.raises(ValueRefused, match="nested"):
        values.decode(tree, lambda note: note)


def test_span_counts_strides() -> None:
    assert TensorNote(torch.float16, (3, 4), (8, 1)).span_bytes == (2 * 8 + 3 + 1) * 2
    assert TensorNote(torch.float16, (0, 4), (8, 1)).span_bytes == 0
    assert TensorNote(torch.int64, (), ()).span_bytes == 8


def test_leaves_have_paths() -> None:
    assert [path for path, _ in values.leaves({"a": [1, 2], "b": 3})] == ["a.0", "a.1", "b"]
    assert [path for path, _ in values.leaves(7)] == ["0"]


def test_the_order_in_which_keys_were_put_in_is_no_part_of_an_answer() -> None:
    """Issue 21, point 9."""
    one, other = {"a": 1, "b": [2, 3], 4: 5}, {4: 5, "b": [2, 3], "a": 1}
    assert list(values.leaves(one)) == list(values.leaves(other))
