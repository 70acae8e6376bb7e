"""A reference whose process tells false things: it is refused, or blamed by name, and its referee goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rig import HONEST, TASK, Rig, policy

LIES = """
import json, os, sys
harness, wire = sys.modules["live.child"], sys.modules["shared.wire"]
really = wire.make_memfd
def told(change):
    \"\"\"What goes out as NAME is what change() makes of it.\"\"\"
    def make_memfd(data, name="message"):
        return really(change(data), name) if name == NAME else really(data, name)
    wire.make_memfd = make_memfd
def change(path, value):
    def changed(data):
        found = json.loads(data)
        place = found
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return json.dumps(found).encode()
    told(changed)
NOTE = {"dtype": "float32", "shape": [40, 300], "stride": [300, 1], "offset": 0}
ENDLESS = {"shape": [1 << 20, 1 << 20], "stride": [0, 0]}
def ROWS(**changes):
    return {"list": [{"tensor": {**NOTE, **changes}}]}
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("rig")) as found:
        yield found


SPECIFICATIONS = {
    "no JSON": "told(lambda data: b'[')",
    "no object": "told(lambda data: b'[]')",
    "empty": "told(lambda data: b'{}')",
    "nested": "told(lambda data: b'[' * 100000)",
    "halves of characters": "change(['entry_point'], '\\ud800')",
    "a key with a NUL": "change(['knobs', 'a\\0'], 1)",
    "a number that no 64 bits hold": "change(['knobs', 'N'], 1 << 64)",
    "too large": "told(lambda data: data + b' ' * (9 << 20))",
    "not sealed": "wire.make_memfd = lambda data, name='m': os.memfd_create(name)",
    "no descriptor": (
        "class Mute(harness.Channel):\n"
        "    def send(self, message, *more, **contents):\n"
        "        harness.Channel.send(self, message)\n"
        "import gc\n"
        "for item in gc.get_objects():\n"
        "    if type(item) is harness.Channel: item.__class__ = Mute"
    ),
    "no own case": "change(['cases', 'own'], None)",
    "elements that are none": "change(['cases', 'own', 'elements'], 'many')",
    "fewer elements than it has": "change(['cases', 'own', 'elements'], 1)",
    "bytes below zero": "change(['cases', 'own', 'state_bytes'], -1)",
    "inputs that are no tree": "change(['cases', 'own', 'inputs'], {'list': [{'tensor': {}}]})",
    "inputs that are too long to be told": "change(['cases', 'own', 'inputs'], {'list': ['x' * 60000]})",
    "a shape without a name": "change(['cases', 'shapes'], [{}])",
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_a_false_specification_is_refused(rig: Rig, name: str) -> None:
    source = LIES.replace("NAME", "'spec'") + SPECIFICATIONS[name] + TASK
    found = rig.register(rig.child(), source)
    assert "specification" in found["refused"]["text"], found


AFTERWARDS = {
    "weights that are no JSON": "told(lambda data: b'[')",
    "weights that are no list": "told(lambda data: b'{}')",
    "a weight that is nothing": "told(lambda data: b'[null]')",
    "a weight without a name": "told(lambda data: json.dumps([{'name': None, 'tensor': NOTE}]).encode())",
    "a weight outside": (
        "told(lambda data: json.dumps([{'name': 'w', 'tensor': {**NOTE, 'offset': 1 << 40}}]).encode())"
    ),
    "more weights than there were": (
        "told(lambda data: json.dumps([{'name': 'w', 'tensor': {**NOTE, **ENDLESS}}]).encode())"
    ),
    "inputs that are no tree": "ANSWER = lambda message: message.update(inputs={'tensor': 5})",
    "inputs that are none": "ANSWER = lambda message: message.update(inputs=None)",
    "an input outside": "ANSWER = lambda message: message.update(inputs=ROWS(offset=1 << 44))",
    "an input of one value": (
        "ANSWER = lambda message: message.update(inputs=ROWS(**ENDLESS))"
    ),
    "outputs of one value": (
        "OUTPUT = lambda out: {'tensor': {**NOTE, **ENDLESS}}"
    ),
    "outputs that are not always as many": (
        "CALLS = []\ndef OUTPUT(out):\n    CALLS.append(1)\n"
        "    return out if len(CALLS) < 2 else {'list': [out] * len(CALLS)}"
    ),
    "outputs that are not always tensors": (
        "CALLS = []\ndef OUTPUT(out):\n    CALLS.append(1)\n    return out if len(CALLS) < 3 else 'nothing'"
    ),
}  # fmt: skip
PATCHES = """
ANSWER = OUTPUT = None
@
if ANSWER is not None:
    class Answering(harness.Channel):
        def send(self, message, *more, **contents):
            if message["ev"] == "inputs":
                message = dict(message)
                ANSWER(message)
            harness.Channel.send(self, message, *more, **contents)
    import gc
    for item in gc.get_objects():
        if type(item) is harness.Channel: item.__class__ = Answering
if OUTPUT is not None:
    encode = harness.values.encode
    harness.values.encode = lambda value, put, where="value", depth=0: (
        OUTPUT(encode(value, put, where)) if where == "forward()" else encode(value, put, where, depth)
    )
"""


@pytest.mark.parametrize("name", AFTERWARDS)
def test_one_that_is_false_afterwards_is_blamed_and_the_rest_goes_on(rig: Rig, name: str) -> None:
    lies = LIES.replace("NAME", "'state'") + PATCHES.replace("@", AFTERWARDS[name])
    source = lies + TASK
    child = rig.child()
    spec = rig.register(rig.child(), TASK)
    assert "refused" not in spec, spec
    found = last(rig.judge(child, spec, source, HONEST, rules=FEW))
    if found["stage"] == "reference":
        assert (found["class"], found["outcome"]) == ("infra", "fail"), found
        assert "reference" in found["error"]["text"] or "get_inputs" in found["error"]["text"], found
    else:  # it answers as no candidate could: nobody is paid for such a task
        assert found["class"] in ("shape", "mismatch"), found
    other = rig.child()
    assert last(rig.judge(other, spec, TASK, HONEST, rules=FEW))["outcome"] == "pass"


FEW = policy(variations={"count": 2, "value": False, "shape": False, "dtype": False})


def last(reports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return next((report for report in reports.values() if report["outcome"] == "fail"), list(reports.values())[-1])
