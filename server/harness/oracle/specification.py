"""A task's specification as the reference's child reports it: checked before it is used.

The child has run the reference, so its report may be anything. A refusal names the field; an accepted report has the
form of SPEC, numbers of 64 bits, and trees that decode (values.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from shared import values
from shared.wire import WORKER_MESSAGE_MAX, Json, encode

SPEC_MAX: Final = 8 << 20
"""Bytes of a specification (SPEC_MAX in server/workers/referee.c)."""
SHAPES_MAX: Final = 64
NAME_MAX: Final = 1024
TREE_MAX: Final = WORKER_MESSAGE_MAX - (8 << 10)
"""Bytes of the inputs of a case as JSON, and of the constructor's: each travels in a message."""
DTYPES: Final = ("float16", "bfloat16")
"""Of a case in half precision."""
FIGURE_MAX: Final = 1 << 60
FIGURES: Final = ("elements", "input_bytes", "output_bytes", "state_bytes", "peak_bytes")


class SpecRefused(ValueError):
    """Not a valid specification: the text has the place."""


def parse(data: bytes) -> Json:
    """The specification in these bytes. SpecRefused when it is none."""
    if len(data) > SPEC_MAX:
        raise SpecRefused(f"it has {len(data)} bytes, at most {SPEC_MAX} are allowed")
    try:
        spec = json.loads(data.decode(), parse_int=_integer, parse_constant=_constant, object_pairs_hook=_object)
        json.dumps(spec, ensure_ascii=False).encode()  # halves of characters
    except SpecRefused:
        raise
    except (ValueError, RecursionError) as error:
        raise SpecRefused(f"it is no JSON: {error}") from None
    check(spec)
    return dict(spec)


def check(spec: Any) -> None:
    """SpecRefused unless it has the form of SPEC."""
    _fields(spec, "", ("entry_point", str), ("dynamic_shapes", bool), ("tiny_declared", bool), ("cases", dict))
    _text(spec["entry_point"], "entry_point")
    if type(spec.get("has_modes", False)) is not bool:
        raise SpecRefused("has_modes must be a boolean")
    cases = spec["cases"]
    _fields(cases, "cases", ("own", dict), ("shapes", list))
    if type(cases.get("other", [])) is not list:
        raise SpecRefused("cases.other must be list")
    if len(cases["shapes"]) + len(cases.get("other", [])) > SHAPES_MAX:
        raise SpecRefused(f"cases.shapes and cases.other have more than {SHAPES_MAX} cases")
    _case(cases["own"], "cases.own", "own")
    if cases.get("tiny") is not None:
        _case(cases["tiny"], "cases.tiny", "tiny")
    elif "tiny" not in cases:
        raise SpecRefused("cases.tiny is missing")
    for key in ("shapes", "other"):
        for index, case in enumerate(cases.get(key, [])):
            _case(case, f"cases.{key}[{index}]", None)


def _case(case: Any, where: str, name: str | None) -> None:
    figures = [(figure, int) for figure in FIGURES]
    _fields(case, where, ("name", str), ("overrides", dict), ("init", dict), ("multiplies_matrices", bool), *figures)
    if (name is None) == (case["name"] in ("own", "tiny")) or name not in (None, case["name"]):
        raise SpecRefused(f"{where}.name is {case['name']!r:.40}")
    _text(case["name"], f"{where}.name")
    if case.get("dtype") not in (None, *DTYPES):
        raise SpecRefused(f"{where}.dtype must be one of {', '.join(DTYPES)}")
    for key, size in case["overrides"].items():
        if type(size) not in (int, float):
            raise SpecRefused(f"{where}.overrides.{key:.40} must be a number")
    for figure in (*FIGURES, "call_bytes", "flops", "operations"):
        value = case.get(figure, 0)
        if type(value) is not int or not 0 <= value <= FIGURE_MAX:
            raise SpecRefused(f"{where}.{figure} must be an integer from 0 to {FIGURE_MAX}")
    init = case["init"]
    _tree(init.get("args"), f"{where}.init.args", list)
    _tree(init.get("kwargs"), f"{where}.init.kwargs", dict)
    ins, outs = (
        _tree(case.get("inputs"), f"{where}.inputs", list),
        _tree(case.get("outputs"), f"{where}.outputs", object),
    )
    for field, tree in (("init", init), ("inputs", case["inputs"])):
        if len(encode({field: tree})) > TREE_MAX:
            raise SpecRefused(f"{where}.{field} has more than the {TREE_MAX} bytes of JSON that a message holds")
    if case["elements"] != sum(note.elements for note in (*ins, *outs)):
        raise SpecRefused(f"{where}.elements is not what its inputs and outputs have")


def _tree(tree: Any, where: str, kind: type) -> list[values.TensorNote]:
    notes: list[values.TensorNote] = []
    try:
        value = values.decode(tree, notes.append, where)
    except values.ValueRefused as refused:
        raise SpecRefused(str(refused)) from None
    if not isinstance(value, kind):
        raise SpecRefused(f"{where} is no {kind.__name__}")
    return notes


def _fields(found: Any, where: str, *fields: tuple[str, type]) -> None:
    if not isinstance(found, dict):
        raise SpecRefused(f"{where or 'it'} must be an object, not {type(found).__name__}")
    for name, of in fields:
        if type(found.get(name)) is not of:
            raise SpecRefused(f"{where}{'.' if where else ''}{name} must be {of.__name__}")


def _text(text: str, where: str) -> None:
    if not 0 < len(text) <= NAME_MAX:
        raise SpecRefused(f"{where} must have 1 to {NAME_MAX} characters")


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise SpecRefused(f"{text:.40} is no number of 64 bits")
    return value


def _constant(text: str) -> NoReturn:
    raise SpecRefused(f"{text} is no JSON number")


def _object(pairs: Iterable[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if any("\0" in key for key in found):
        raise SpecRefused("a key has a NUL in it")
    return found
