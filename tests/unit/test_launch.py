"""The executor's launches: parameters lie in memory as Triton's own launcher puts them."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "server" / "harness"))

from executor import launch
from executor.steps import Descriptor


def test_scalars_are_packed_by_their_type() -> None:
    signature = [("a", "i32"), ("b", "i64"), ("c", "fp32"), ("d", "i1"), ("e", "u8"), ("f", "fp16"), ("g", "bf16")]
    found = launch.pack(signature, [-1, 1 << 40, 1.5, True, 255, 0.5, 1.0], [])
    wanted = ["<i", "<q", "<f", "<b", "<B", "<e"]
    values = [-1, 1 << 40, 1.5, 1, 255, 0.5]
    assert found[:6] == [struct.pack(code, value) for code, value in zip(wanted, values, strict=True)]
    assert found[6] == b"\x80\x3f", "bf16 is the upper half of a single"


def test_constants_have_no_parameter_and_tuples_have_one_for_each_part() -> None:
    x = torch.zeros(4)
    signature = [("x", "*fp32"), ("BLOCK", "constexpr"), ("pair", ["*fp32", ["i32", "constexpr"]]), ("n", "i32")]
    found = launch.pack(signature, [x, 64, (x, (7, 8)), 4], [])
    pointer = struct.pack("<Q", x.data_ptr())
    assert found == [pointer, pointer, struct.pack("<i", 7), struct.pack("<i", 4)]


def test_an_address_may_stand_for_a_tensor() -> None:
    assert launch.pack([("x", "*fp32")], [0x7F0000001000], []) == [struct.pack("<Q", 0x7F0000001000)]


def test_a_descriptor_without_hardware_becomes_pointer_sizes_and_strides_twice() -> None:
    x = torch.zeros(8, 16)
    described = Descriptor(x, (8, 16), (16, 1), (4, 16), is_nan_padded=True)
    found = launch.pack([("d", "tensordesc<fp32[4, 16]>")], [described], [None])
    sizes = [8, 16, 16, 1]
    assert found[0] == struct.pack("<Q", x.data_ptr())
    assert found[1:5] == [struct.pack("<q", size) for size in sizes]
    assert found[5] == b"\x01"
    assert found[6:] == [struct.pack("<i", 8), struct.pack("<i", 16), struct.pack("<q", 16), struct.pack("<q", 1)]


@pytest.mark.parametrize(
    ("kind", "value", "word"),
    [
        ("i32", 1 << 31, "x"),
        ("i32", 1.5, "x"),
        ("u8", -1, "x"),
        ("fp32", "text", "x"),
        ("fp99", 1.0, "fp99"),
        ("*fp32", 1.5, "tensor"),
        ("bf16", 1e300, "bf16"),
        ("bf16", "one", "bf16"),
        ("tensordesc<fp32[4]>", 3, "descriptor"),
        ("tensordesc<fp32[4]>", Descriptor(torch.ones(4), (1 << 31,), (1,), (4,), False), "i32"),
        (["i32", "i32"], (1,), "tuple of 2"),
    ],
)
def test_what_does_not_fit_its_parameter_is_refused_by_name(kind: object, value: object, word: str) -> None:
    with pytest.raises(launch.LaunchRefused, match=word):
        launch.pack([("x", kind)], [value], [])


def test_too_few_arguments_are_refused() -> None:
    with pytest.raises(launch.LaunchRefused, match="1 arguments for 2"):
        launch.pack([("x", "i32"), ("y", "i32")], [1], [])
