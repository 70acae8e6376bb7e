"""The plan's parser against hostile documents: each refused with the field that is wrong."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from shared import operators, plan

CORPUS = Path(__file__).parent.parent / "fuzz" / "corpus" / "plan"


def leaf(value: int, *shape: int, dtype: str = "float32") -> dict[str, Any]:
    stride = [1] * len(shape)
    for index in range(len(shape) - 2, -1, -1):
        stride[index] = stride[index + 1] * max(1, shape[index + 1])
    return {"t": value, "shape": list(shape), "stride": stride, "dtype": dtype}


def document() -> dict[str, Any]:
    """A plan that uses every construct of the format."""
    return {
        "version": 2,
        "target": "cuda:90",
        "source": "sha256:" + "0" * 64,
        "functions": [
            {
                "name": "helper",
                "line": 5,
                "globals": {"tl": {"module": "triton.language"}, "PI": {"constexpr": {"f": math.pi.hex()}}},
                "defaults": {},
                "noinline": True,
            },
            {
                "name": "kernel",
                "line": 9,
                "globals": {
                    "helper": {"function": 0},
                    "tanh": {"object": "triton.language.extra.libdevice.tanh"},
                    "area": {"table": [[{"tuple": [8, {"tuple": ["width", {"dtype": "fp32"}]}]}, 64]]},
                },
                "defaults": {"BLOCK": 64, "KIND": {"dtype": "fp32"}, "PAIR": {"tuple": [1, None, "x", {"f": "nan"}]}},
                "noinline": False,
            },
        ],
        "kernels": [
            {
                "function": 1,
                "signature": [["x", "*fp32"], ["n", "i32"], ["pair", ["*fp32", "constexpr"]], ["BLOCK", "constexpr"]],
                "constants": [[[2, 1], {"f": (3.0).hex()}], [[3], 64]],
                "attributes": [[[0], [["tt.divisibility", 16]]]],
                "options": {"num_warps": 4, "maxnreg": None},
            },
            {
                "function": 1,
                "signature": [["d", "tensordesc<fp32[64, 64]>"], ["p", "u64"], ["s", "fp32"], ["b", "u1"]],
                "constants": [],
                "attributes": [],
                "options": {},
            },
        ],
        "traces": [
            {
                "case": "own",
                "inputs": {"list": [leaf(2, 8, 64), {"dict": [["scale", {"f": (1.0).hex()}]]}]},
                "parameters": {"weight": 0},
                "construct": [
                    {
                        "op": "aten.empty.memory_format",
                        "args": [{"list": [64]}],
                        "kwargs": {"dtype": {"torch_dtype": "float32"}, "device": {"device": "cuda"}},
                        "out": leaf(0, 64),
                        "line": 20,
                    },
                    {"op": "aten.normal_.default", "args": [{"t": 0}], "kwargs": {}, "out": leaf(0, 64), "line": 21},
                ],
                "first": [
                    {"op": "aten.t.default", "args": [{"t": 0}], "kwargs": {}, "out": leaf(1, 64), "line": 30},
                ],
                "steps": [
                    {
                        "op": "aten.split.Tensor",
                        "args": [{"t": 2}, 4],
                        "kwargs": {},
                        "out": {"list": [leaf(3, 4, 64), leaf(4, 4, 64)]},
                        "line": 31,
                    },
                    {
                        "choose": [
                            {
                                "config": "BLOCK: 64",
                                "steps": [
                                    {
                                        "op": "aten.zero_.default",
                                        "args": [{"t": 3}],
                                        "kwargs": {},
                                        "out": None,
                                        "line": 32,
                                    },
                                    {
                                        "launch": 0,
                                        "grid": [8, 1, 1],
                                        "args": [
                                            {"t": 3},
                                            {"sym": {"add": [{"item": 1}, 1]}},
                                            {"tuple": [{"t": 4}, {"f": (3.0).hex()}]},
                                            64,
                                        ],
                                        "line": 33,
                                    },
                                ],
                            }
                        ],
                        "line": 33,
                    },
                    {
                        "launch": 1,
                        "grid": [{"sym": {"item": 1}}, 1, 1],
                        "args": [
                            {
                                "descriptor": {
                                    "t": 3,
                                    "shape": [4, 64],
                                    "strides": [64, 1],
                                    "block": [64, 64],
                                    "padding": "zero",
                                }
                            },
                            {"address": 4, "offset": 16},
                            {"f": "-inf"},
                            True,
                        ],
                        "line": 34,
                    },
                ],
                "output": {"tuple": [leaf(3, 4, 64), {"dict": [["y", leaf(4, 4, 64)], [1, None]]}]},
            }
        ],
    }


def read(found: Any) -> plan.Plan:
    return plan.parse(json.dumps(found).encode())


def refusal(found: Any) -> plan.PlanError:
    with pytest.raises(plan.PlanError) as caught:
        read(found)
    return caught.value


def at(found: Any, *path: str | int) -> Any:
    for step in path:
        found = found[step]
    return found


STEPS = ("traces", 0, "steps")
CHOICE = (*STEPS, 1, "choose", 0, "steps")
LAUNCH = (*CHOICE, 1)


def changed(*path: Any) -> Callable[[Any], None]:
    """Sets what the path but its last item leads to."""

    def change(found: Any) -> None:
        at(found, *path[:-2])[path[-2]] = path[-1]

    return change


def gone(*path: str | int) -> Callable[[Any], None]:
    def change(found: Any) -> None:
        del at(found, *path[:-1])[path[-1]]

    return change


def nested(depth: int, kind: str = "list") -> Any:
    found: Any = 1
    for _ in range(depth):
        found = {kind: [found]} if kind != "constexpr" else {kind: found}
    return found


REFUSAL = {"case": "tiny", "kind": "call", "line": 3, "reason": "AssertionError"}

HOSTILE: list[tuple[str, Callable[[Any], object], str, str]] = [
    ("another version", changed("version", 1), "version", "from 2 to 2"),
    ("a version that is true", changed("version", True), "version", "integer"),
    ("no target", gone("target"), "plan.target", "missing"),
    ("a target that is not a GPU", changed("target", "cpu"), "target", "such as"),
    ("a source that is not a digest", changed("source", "x"), "source", "64"),
    ("an unknown key", changed("extra", 1), "plan", "unknown key"),
    ("refusals that are an object", changed("refusals", {}), "refusals", "list"),
    ("more refusals than cases", changed("refusals", [REFUSAL] * 33), "refusals", "32"),
    ("a refusal of no known kind", changed("refusals", [{**REFUSAL, "kind": "x"}]), "refusals[0].kind", "kind"),
    ("a refusal's line below zero", changed("refusals", [{**REFUSAL, "line": -1}]), "refusals[0].line", "from 0"),
    ("a long reason", changed("refusals", [{**REFUSAL, "reason": "x" * 1025}]), "refusals[0].reason", "1024"),
    ("functions that are an object", changed("functions", {}), "functions", "list"),
    ("a name with a newline", changed("functions", 0, "name", "a\nb"), "functions[0].name", "identifier"),
    ("half a character", changed("functions", 0, "name", "\ud800"), "functions[0].name", "halves"),
    ("a line below one", changed("functions", 0, "line", 0), "functions[0].line", "from 1"),
    (
        "a function that calls itself",
        changed("functions", 0, "globals", "f", {"function": 0}),
        "functions[0].globals.f.function",
        "from 0",
    ),
    (
        "two functions in a circle",
        changed("functions", 0, "globals", "f", {"function": 1}),
        "functions[0].globals.f.function",
        "from 0",
    ),
    (
        "a module of the system",
        changed("functions", 0, "globals", "os", {"module": "os.path"}),
        "functions[0].globals.os.module",
        "inside triton",
    ),
    (
        "a module that only begins like triton",
        changed("functions", 0, "globals", "t", {"module": "tritonx"}),
        "functions[0].globals.t.module",
        "inside triton",
    ),
    (
        "a global that is no constant",
        changed("functions", 0, "globals", "t", {"t": 1}),
        "functions[0].globals.t",
        "kind of constant",
    ),
    (
        "a table whose result is a function",
        changed("functions", 1, "globals", "t", {"table": [[{"tuple": []}, {"function": 0}]]}),
        "functions[1].globals.t.table[0][1].function",
        "from 0",
    ),
    (
        "a table of no pairs",
        changed("functions", 1, "globals", "t", {"table": [[{"tuple": []}]]}),
        "functions[1].globals.t.table[0]",
        "2",
    ),
    (
        "a float that is a number",
        changed("functions", 0, "globals", "t", {"f": 1}),
        "functions[0].globals.t.f",
        "text",
    ),
    (
        "a float beyond all bounds",
        changed("functions", 0, "globals", "t", {"f": "0x1p+99999"}),
        "functions[0].globals.t.f",
        "hexadecimal",
    ),
    (
        "a decimal float",
        changed("functions", 0, "globals", "t", {"f": "1.5"}),
        "functions[0].globals.t.f",
        "hexadecimal",
    ),
    (
        "an option that names a file",
        changed("kernels", 0, "options", "ir_override", "/etc/passwd"),
        "kernels[0].options key",
        "may set",
    ),
    (
        "an option that is a compiler's flag",
        changed("kernels", 0, "options", "ptx_options", "-o x"),
        "kernels[0].options key",
        "may set",
    ),
    ("a function that is not there", changed("kernels", 0, "function", 2), "kernels[0].function", "from 0 to 1"),
    ("a type that is none", changed("kernels", 0, "signature", 0, 1, "*fp32;"), "kernels[0].signature[0][1]", "type"),
    ("a parameter twice", changed("kernels", 0, "signature", 0, 0, "n"), "kernels[0].signature", "twice"),
    ("a path to nowhere", changed("kernels", 0, "constants", 0, 0, [9]), "kernels[0].constants[0][0]", "no parameter"),
    ("a negative path", changed("kernels", 0, "constants", 0, 0, [-1]), "kernels[0].constants[0][0][0]", "from 0"),
    ("an empty path", changed("kernels", 0, "attributes", 0, 0, []), "kernels[0].attributes[0][0]", "parameter"),
    ("a constant that lacks", gone("kernels", 0, "constants", 1), "kernels[0].constants", "lacks"),
    (
        "an attribute that is unknown",
        changed("kernels", 0, "attributes", 0, 1, [["tt.pointer_range", 32]]),
        "kernels[0].attributes[0][1][0][0]",
        "not an attribute",
    ),
    ("a case twice", lambda found: found["traces"].append(found["traces"][0]), "traces[1].case", "twice"),
    ("a step that is a text", changed(*STEPS, 0, "x"), "traces[0].steps[0]", "object"),
    ("a step of no kind", changed(*STEPS, 0, {"line": 1}), "traces[0].steps[0]", "neither"),
    ("an operator without its overload", changed(*STEPS, 0, "op", "aten.view"), "traces[0].steps[0].op", "overload"),
    ("an operator that is a path", changed(*STEPS, 0, "op", "a.b/../c.d"), "traces[0].steps[0].op", "overload"),
    (
        "an id before it is defined",
        changed(*STEPS, 0, "args", 0, "t", 99),
        "traces[0].steps[0].args[0].t",
        "not defined yet",
    ),
    (
        "an id of an alternative outside of it",
        lambda found: (
            changed(*CHOICE, 0, "out", leaf(50, 4))(found),
            changed(*STEPS, 2, "args", 1, "address", 50)(found),
        ),
        "traces[0].steps[2].args[1].address",
        "not defined yet",
    ),
    (
        "state that reads an input",
        changed("traces", 0, "first", 0, "args", 0, "t", 2),
        "traces[0].first[0].args[0].t",
        "not defined yet",
    ),
    (
        "a parameter that nothing made",
        changed("traces", 0, "parameters", "weight", 3),
        "traces[0].parameters[0]",
        "not defined yet",
    ),
    (
        "an id twice",
        changed(*STEPS, 0, "out", "list", 1, "t", 0),
        "traces[0].steps[0].out.list[1].t",
        "defined already",
    ),
    (
        "an id below zero",
        changed(*STEPS, 0, "out", "list", 1, "t", -1),
        "traces[0].steps[0].out.list[1].t",
        "from 0",
    ),
    (
        "a stride below zero",
        changed(*STEPS, 0, "out", "list", 0, "stride", [-1, 1]),
        "traces[0].steps[0].out.list[0].stride[0]",
        "from 0",
    ),
    (
        "a size below zero",
        changed(*STEPS, 0, "out", "list", 0, "shape", [-1, 1]),
        "traces[0].steps[0].out.list[0].shape[0]",
        "from 0",
    ),
    (
        "a size that is a float",
        changed(*STEPS, 0, "out", "list", 0, "shape", [{"f": "0x1p+1"}, 1]),
        "traces[0].steps[0].out.list[0].shape[0]",
        "integer",
    ),
    (
        "a size beyond all memory",
        changed(*STEPS, 0, "out", "list", 0, "shape", [1 << 41, 1]),
        "traces[0].steps[0].out.list[0].shape[0]",
        "from 0",
    ),
    (
        "sizes that only together are wild",
        changed(*STEPS, 0, "out", "list", 0, "shape", [1 << 30, 1 << 30]),
        "traces[0].steps[0].out.list[0].shape",
        "elements",
    ),
    (
        "a span beyond all memory",
        changed(*STEPS, 0, "out", "list", 0, "stride", [1 << 39, 1]),
        "traces[0].steps[0].out.list[0]",
        "spans",
    ),
    (
        "more dimensions than torch's kernels take",
        changed(*STEPS, 0, "out", "list", 0, leaf(3, *[1] * 13)),
        "traces[0].steps[0].out.list[0].shape",
        "more than 12",
    ),
    (
        "a stride without its size",
        changed(*STEPS, 0, "out", "list", 0, "stride", [1]),
        "traces[0].steps[0].out.list[0].stride",
        "where the shape",
    ),
    (
        "an unknown dtype",
        changed(*STEPS, 0, "out", "list", 0, "dtype", "float31"),
        "traces[0].steps[0].out.list[0].dtype",
        "not a dtype",
    ),
    (
        "a device that is none",
        changed("traces", 0, "construct", 0, "kwargs", "device", {"device": "meta"}),
        "traces[0].construct[0].kwargs.device.device",
        "not a device",
    ),
    (
        "an argument name that is none",
        changed("traces", 0, "construct", 0, "kwargs", {"a b": 1}),
        "traces[0].construct[0].kwargs key",
        "identifier",
    ),
    ("arguments nested deep", changed(*STEPS, 0, "args", 1, nested(40)), ".list[0]", "deeper"),
    ("constants nested deep", changed("functions", 0, "globals", "t", nested(40, "constexpr")), ".constexpr", "deeper"),
    (
        "expressions nested deep",
        lambda found: changed(*LAUNCH, "args", 1, "sym", _deep_expression(40))(found),
        ".add[0]",
        "deeper",
    ),
    ("outputs nested deep", changed("traces", 0, "output", nested(40, "tuple")), ".tuple[0]", "deeper"),
    (
        "an operation that is none",
        changed(*LAUNCH, "args", 1, "sym", {"pow": [1, 1]}),
        "traces[0].steps[1].choose[0].steps[1].args[1].sym",
        "not an operation",
    ),
    ("a key of an output that is a list", changed("traces", 0, "output", {"dict": [[[], 1]]}), ".dict[0][0]", "text"),
    ("a key of an output twice", changed("traces", 0, "output", {"dict": [["a", 1], ["a", 1]]}), ".dict", "twice"),
    ("a kernel that is not there", changed(*LAUNCH, "launch", 2), "traces[0].steps[1].choose[0].steps[1].launch", "0"),
    (
        "a choice inside a choice",
        lambda found: at(found, *CHOICE).append(copy.deepcopy(at(found, *STEPS, 1))),
        "traces[0].steps[1].choose[0].steps[2]",
        "neither",
    ),
    ("a choice of nothing", changed(*STEPS, 1, "choose", []), "traces[0].steps[1].choose", "nothing"),
    ("a grid of two", changed(*LAUNCH, "grid", [1, 1]), ".grid", "3 items"),
    ("a grid of zero", changed(*LAUNCH, "grid", [0, 1, 1]), ".grid[0]", "from 1"),
    ("a grid that is null", changed(*LAUNCH, "grid", [None, 1, 1]), ".grid[0]", "integer"),
    ("a grid that is a boolean", changed(*LAUNCH, "grid", [True, 1, 1]), ".grid[0]", "integer"),
    ("a grid that is a NaN", changed(*LAUNCH, "grid", [{"f": "nan"}, 1, 1]), ".grid[0]", "integer"),
    ("a grid too wide", changed(*LAUNCH, "grid", [1, 1 << 16, 1]), ".grid[1]", "65535"),
    ("an argument too few", gone(*LAUNCH, "args", 3), ".args", "where the kernel has 4"),
    ("a number for a pointer", changed(*LAUNCH, "args", 0, 5), ".args[0]", "tensor"),
    ("a tensor for a number", changed(*LAUNCH, "args", 1, {"t": 3}), ".args[1]", "integer"),
    ("a number beyond its type", changed(*LAUNCH, "args", 1, 1 << 31), ".args[1]", "from -2147483648"),
    ("a tuple too short", changed(*LAUNCH, "args", 2, {"tuple": [{"t": 3}]}), ".args[2]", "tuple of 2"),
    ("another constant than compiled", changed(*LAUNCH, "args", 3, 128), ".args[3]", "compiled with"),
    ("a constant of another type", changed(*LAUNCH, "args", 3, {"f": "0x1p+6"}), ".args[3]", "compiled with"),
    ("a tensor for a descriptor", changed(*STEPS, 2, "args", 0, {"t": 3}), ".args[0]", "descriptor"),
    (
        "a descriptor with a stride below zero",
        changed(*STEPS, 2, "args", 0, "descriptor", "strides", [-1, 1]),
        ".args[0].descriptor.strides[0]",
        "from 0",
    ),
    (
        "a descriptor without its block",
        changed(*STEPS, 2, "args", 0, "descriptor", "block", []),
        ".args[0].descriptor",
        "block of 0",
    ),
    (
        "an operator that takes a descriptor",
        changed(*STEPS, 0, "args", 1, {"address": 2}),
        "traces[0].steps[0].args[1]",
        "kind of constant",
    ),
    (
        "a constant with a calculated number",
        lambda found: changed(*STEPS, 0, _planned({"list": [{"sym": {"add": [{"item": 2}, 1]}}]}))(found),
        "traces[0].steps[0].args[0].list[0]",
        "Python knew",
    ),
    (
        "a constant with a number of the device",
        lambda found: changed(*STEPS, 0, _planned({"list": [{"sym": {"item": 2}}]}))(found),
        "traces[0].steps[0].args[0].list[0]",
        "Python knew",
    ),
    (
        "a constant with a list in its list",
        lambda found: changed(*STEPS, 0, _planned({"list": [{"list": [{"sym": {"item": 2}}]}]}))(found),
        "traces[0].steps[0].args[0].list[0]",
        "Python knew",
    ),
    (
        "a constant of a number alone",
        lambda found: changed(*STEPS, 0, _planned({"sym": {"item": 2}}))(found),
        "traces[0].steps[0].args",
        "list of numbers",
    ),
    (
        "a constant of a calculated size",
        lambda found: changed(*STEPS, 0, _planned({"list": [1]}, {"sym": {"item": 2}}))(found),
        "traces[0].steps[0].args[1].list[0]",
        "Python knew",
    ),
    (
        "a constant that is told its numbers by name",
        lambda found: changed(*STEPS, 0, _planned({"list": [1]}, data={"t": 2}))(found),
        "traces[0].steps[0].kwargs.data",
        "dtype",
    ),
    ("an output that nothing made", changed("traces", 0, "output", leaf(77, 1)), "traces[0].output.t", "not defined"),
]


def _planned(numbers: Any, size: Any = 1, **kwargs: Any) -> dict[str, Any]:
    args = [numbers, {"list": [size]}]
    return {"op": plan.CONSTANT, "args": args, "kwargs": kwargs, "out": {"list": [leaf(3, 4, 64)]}, "line": 1}


def _deep_expression(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = {"add": [found, 1]}
    return found


@pytest.mark.parametrize(("change", "field", "what"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_wild_plan_is_refused_with_its_field(change: Callable[[Any], object], field: str, what: str) -> None:
    found = document()
    read(found)
    change(found)
    error = refusal(found)
    assert error.field.endswith(field) if field.startswith(".") else error.field == field
    assert what in error.what


RAW = [
    ("a key twice", b'{"version":1,"version":1}', "twice"),
    ("NaN", b'{"version":NaN}', "NaN"),
    ("infinity", b'{"version":-Infinity}', "-Infinity"),
    ("a float", b'{"version":1.0}', "hexadecimal"),
    ("an exponent", b'{"version":1e999}', "hexadecimal"),
    ("an integer of ten thousand digits", b'{"version":' + b"9" * 10_000 + b"}", "10000 characters"),
    ("an integer beyond 64 bits", b'{"version":999999999999999999999}', "21 characters"),
    ("lists in lists", b"[" * 1_000_000, "nested too deep"),
    ("objects in objects", b'{"a":' * 1_000_000, "nested too deep"),
    ("bytes that are no text", b"\xff\xfe", "not UTF-8"),
    ("no JSON", b"{", "not JSON"),
    ("nothing", b"", "not JSON"),
    ("a list", b"[]", "must be an object"),
    ("too many bytes", b" " * (plan.BYTES_MAX + 1), "more than"),
]


@pytest.mark.parametrize(("data", "what"), [row[1:] for row in RAW], ids=[row[0] for row in RAW])
def test_bytes_that_are_no_plan_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(plan.PlanError, match=what):
        plan.parse(data)


def test_a_million_steps_are_refused() -> None:
    step = b'{"op":"a.b.c","args":[],"kwargs":{},"out":null,"line":1}'
    found = json.dumps(document()).encode()
    few = found.replace(b'"first": [', b'"first": [' + b",".join([step] * 10) + b",")
    assert len(plan.parse(few).traces[0].first) == 11
    many = found.replace(b'"first": [', b'"first": [' + b",".join([step] * 200_000) + b",")
    with pytest.raises(plan.PlanError, match=r"traces\[0\].first: has 200001 items"):
        plan.parse(many)
    with pytest.raises(plan.PlanError, match="document: has"):
        plan.parse(found.replace(b'"first": [', b'"first": [' + b",".join([step] * 1_000_000) + b","))


def test_steps_of_alternatives_count_too() -> None:
    found = document()
    step: dict[str, Any] = {"op": "a.b.c", "args": [], "kwargs": {}, "out": None, "line": 1}
    alternative = {"config": "", "steps": [step] * 100}
    found["traces"][0]["first"] = [{"choose": [alternative] * 100, "line": 1}] * 3
    assert "more than 20000 steps" in str(refusal(found))


def test_what_a_step_reads_is_found_without_a_look_into_its_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Mock(side_effect=plan.ids_in)
    monkeypatch.setattr(plan, "ids_in", look)
    numbers = tuple(range(1000))
    args: Any = (plan.Ref(3), numbers, *numbers, plan.List((plan.Ref(4),)))
    assert plan.reads(plan.Launch(0, (1, 1, 1), args, 1)) == {3, 4}
    assert look.call_count < 10


def test_what_is_written_is_read_again() -> None:
    parsed = read(document())
    assert json.loads(parsed.dump()) == document()
    assert repr(plan.parse(parsed.dump())) == repr(parsed)


def test_an_operator_may_return_its_own_argument_only() -> None:
    found = document()
    steps = at(found, *STEPS)
    steps.append({"op": "aten.add_.Tensor", "args": [{"t": 3}, 1], "kwargs": {}, "out": leaf(3, 4, 64), "line": 1})
    read(found)
    steps[-1]["out"] = leaf(4, 4, 64)
    assert refusal(found).field == "traces[0].steps[3].out.t"


# --- replayed and mutated documents ---


def _only_plan_errors(data: bytes) -> plan.Plan | None:
    try:
        parsed = plan.parse(data)
    except plan.PlanError as error:
        assert error.field and error.what and str(error).isprintable()
        return None
    assert repr(plan.parse(parsed.dump())) == repr(parsed)
    return parsed


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_the_corpus_is_read_or_refused(path: Path) -> None:
    _only_plan_errors(path.read_bytes())


PIECES: list[Any] = [
    None, True, 0, 1, -1, 1 << 31, 1 << 63, -(1 << 64), "", "x", "aten.view.default", "constexpr", "*fp32", [], {}, [0],
    [[0], 1], {"f": "nan"}, {"f": "0x1p+3"}, {"t": 0}, {"t": 3}, {"tuple": []}, {"list": [{"t": 1}]},
    {"dtype": "fp32"}, {"function": 0}, {"constexpr": 1}, {"sym": {"item": 1}}, {"address": 1, "offset": 0},
    {"module": "triton"}, {"dict": [["a", 1]]},
]  # fmt: skip


def _places(found: Any) -> list[tuple[Any, Any]]:
    places: list[tuple[Any, Any]] = []
    keys = found.keys() if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ()
    for key in keys:
        places += [(found, key), *_places(found[key])]
    return places


def _mutated(seed: int) -> bytes:
    """A document with a few things replaced, removed, doubled or taken from elsewhere; sometimes a byte changed."""
    chance = random.Random(seed)
    found = document()
    for _ in range(chance.randint(1, 4)):
        holder, key = chance.choice(_places(found))
        way = chance.randrange(5)
        if way == 0:
            holder[key] = copy.deepcopy(chance.choice(PIECES))
        elif way == 1:
            del holder[key]
        elif way == 2 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif way == 3 and isinstance(holder, dict):
            holder[chance.choice(("t", "x", "op", "launch", "list"))] = copy.deepcopy(chance.choice(PIECES))
        else:
            other, where = chance.choice(_places(found))
            holder[key] = copy.deepcopy(other[where])
    data = bytearray(json.dumps(found).encode())
    if chance.random() < 0.2:
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def test_mutated_plans_are_read_or_refused_and_nothing_else() -> None:
    read_whole = sum(_only_plan_errors(_mutated(seed)) is not None for seed in range(3000))
    assert 50 < read_whole < 2950


# --- operators ---


def _with_operator(op: str, *args: Any, where: str = "steps") -> plan.Plan:
    found = document()
    step: dict[str, Any] = {"op": op, "args": [{"t": 0}, *args], "kwargs": {}, "out": None, "line": 77}
    found["traces"][0][where].append(step)
    return read(found)


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("aten.view.default", "movement"),
        ("aten._to_copy.default", "movement"),
        ("aten.scatter.src", "movement"),
        ("aten.reflection_pad2d.default", "movement"),
        ("aten.replication_pad1d.default", "movement"),
        ("aten.embedding.default", "movement"),
        ("aten.embedding_renorm_.default", "compute"),
        ("aten.reflection_pad1d_backward.default", "compute"),
        ("aten.scatter.reduce", "compute"),
        ("plan.constant.default", "movement"),
        ("aten.mm.default", "library"),
        ("aten.convolution.default", "library"),
        ("aten.add.Tensor", "compute"),
        ("aten._softmax.default", "compute"),
        ("aten.from_file.default", "refused"),
        ("aten.set_.source_Tensor", "refused"),
        ("aten._no_such_thing.default", "refused"),
        ("mylib.answer.default", "refused"),
    ],
)
def test_an_operator_has_its_kind(op: str, kind: str) -> None:
    assert operators.kind(op) == kind


@pytest.mark.parametrize(
    ("op", "allowed_under"),
    [
        ("aten.view.default", {"movement", "library", "any"}),
        ("aten.mm.default", {"library", "any"}),
        ("aten.add.Tensor", {"any"}),
        ("aten.from_file.default", set()),
    ],
)
def test_a_policy_refuses_what_it_does_not_allow_by_name_and_line(op: str, allowed_under: set[str]) -> None:
    foreign: tuple[operators.Foreign, ...] = ("movement", "library", "any")
    for policy in foreign:
        found = operators.allowed(_with_operator(op), policy)
        assert not found if policy in allowed_under else [(one.operator, one.line) for one in found] == [(op, 77)]


def test_state_over_parameters_may_compute_but_reads_no_file() -> None:
    assert operators.allowed(_with_operator("aten.add.Tensor", where="first"), "movement") == []
    refused = operators.allowed(_with_operator("aten.from_file.default", where="construct"), "any")
    assert [one.operator for one in refused] == ["aten.from_file.default"]


@pytest.mark.parametrize("op", ["aten.empty.memory_format", "aten.randn.default", "aten._to_copy.default"])
def test_memory_that_no_limit_holds_for_is_refused(op: str) -> None:
    call = plan.Call(op, (), (("pin_memory", True),), None, 7)
    assert operators.kind_of(call) == "refused"
    assert not operators.permits(call, "any")


def test_who_is_refused_is_told_the_next_places_too() -> None:
    refusals = [operators.Refusal("own", step, f"aten.op{step}.default", 10 + step, "so") for step in range(6)]
    assert operators.told(refusals[:1]) == "aten.op0.default is not allowed here: so"
    assert operators.told(refusals) == (
        "aten.op0.default is not allowed here (nor aten.op1.default in line 11, aten.op2.default in line 12, "
        "aten.op3.default in line 13, 2 more): so"
    )


def test_values_that_are_added_up_by_index_put_are_computed() -> None:
    moved = _with_operator("aten.index_put.default", {"list": []}, {"t": 0}, False)
    added = _with_operator("aten.index_put.default", {"list": []}, {"t": 0}, True)
    assert operators.allowed(moved, "movement") == []
    assert len(operators.allowed(added, "movement")) == 1


ITEM: dict[str, Any] = {"item": 0}
SUM: dict[str, Any] = {"add": [ITEM, ITEM]}
SIZES: dict[str, Any] = {"list": [4]}


@pytest.mark.parametrize(
    ("op", "args", "is_allowed"),
    [
        ("full.default", [SIZES, {"sym": ITEM}], True),
        ("full.default", [{"list": [{"sym": SUM}]}, 0], True),
        ("full.default", [SIZES, {"sym": SUM}], False),
        ("fill_.Scalar", [{"t": 0}, {"sym": SUM}], False),
        ("constant_pad_nd.default", [{"t": 0}, SIZES, {"sym": SUM}], False),
        ("arange.default", [{"sym": SUM}], True),
        ("arange.start_step", [0, 9, 2], True),
        ("arange.start_step", [{"sym": ITEM}, 9, {"sym": ITEM}], False),
        ("arange.start", [0, {"sym": SUM}], True),
        ("arange.start", [{"sym": SUM}, 9], False),
        ("arange.start_out", [0, 9, {"sym": SUM}], False),
        ("linspace.default", [0, 1, 3], True),
        ("linspace.default", [{"sym": ITEM}, 1, 3], False),
        ("linspace.default", [0, 1, {"sym": ITEM}], False),
        ("linspace.default", [0, 1, {"steps": {"sym": SUM}}], False),
        ("linspace.default", [{"start": {"sym": SUM}, "end": 1, "steps": 1}], False),
        ("linspace.Tensor_Tensor", [{"t": 0}, {"t": 0}, 3], False),
        ("linspace.Tensor_Tensor", [{"start": {"t": 0}, "end": {"t": 0}, "steps": 3}], False),
        ("full.default", [SIZES, {"fill_value": {"sym": SUM}}], False),
    ],
)
def test_a_number_of_the_device_may_be_written_and_nothing_calculated_with_it(
    op: str, args: list[Any], is_allowed: bool
) -> None:
    found = document()
    named = args[-1] if isinstance(args[-1], dict) and args[-1].keys() & {"start", "steps", "fill_value"} else {}
    given = [arg for arg in args if arg is not named]
    step: dict[str, Any] = {"op": f"aten.{op}", "args": given, "kwargs": named, "out": None, "line": 77}
    found["traces"][0]["steps"].append(step)
    assert (operators.allowed(read(found), "movement") == []) is is_allowed
