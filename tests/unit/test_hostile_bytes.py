"""Every parser of bytes that come from a child, fed with what no honest child sends: it answers, or refuses by name.

Each target is a function of bytes and the exceptions by which it may refuse. The inputs are honest ones, changed: bits,
slices, numbers at the edges, and for JSON also its tree. The order is fixed; HOSTILE_ROUNDS asks for more of them.
C parsers have their targets in tests/fuzz.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
import torch
from oracle import judge, peer, specification, tolerance
from oracle.reference import Reference, ReferenceBroken, Sizes
from shared import native, values, wire
from shared.arena import Arena
from static import inspect_stage

ROUNDS: Final = int(os.environ.get("HOSTILE_ROUNDS", "250"))
EDGES: Final = (
    0,
    1,
    -1,
    2,
    7,
    8,
    255,
    256,
    2**15,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**400,
)
WORDS: Final = (
    "",
    "x" * 70000,
    "\0",
    "\ud800",
    "é",
    "tensor",
    "float32",
    "float8_e8m0fnu",
    "0x1p99999",
    "nan",
    "__class__",
)


# --- changing ---


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """A few cuts, copies, flips and edge numbers."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(out) + 1)
        act = chance.randrange(6)
        if act == 0:
            del out[at : at + chance.randint(1, 64)]
        elif act == 1:
            out[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 16)))
        elif act == 2 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif act == 3:
            form = chance.choice("BHIQ")
            edge = chance.choice(EDGES) % (1 << 8 * struct.calcsize("<" + form))
            out[at : at + struct.calcsize("<" + form)] = struct.pack("<" + form, edge)
        elif act == 4:
            out[at:at] = out[chance.randrange(len(out) + 1) :][:256]
        elif act == 5:
            del out[at:]
    return bytes(out)


def change_tree(tree: Any, chance: random.Random) -> Any:
    """The same with one or more of its nodes replaced."""
    if chance.random() < 0.12:
        return any_node(chance)
    if isinstance(tree, dict):
        found = {key: change_tree(value, chance) for key, value in tree.items()}
        if found and chance.random() < 0.15:
            found.pop(chance.choice(list(found)))
        if "shape" in found and chance.random() < 0.1:  # many elements in few bytes
            found.update(shape=[1 << 39, 1 << 39], stride=[0, 0])
        if chance.random() < 0.1:
            found[chance.choice(WORDS)] = any_node(chance)
        return found
    if isinstance(tree, list):
        found_items = [change_tree(value, chance) for value in tree]
        return found_items * chance.choice((1, 1, 1, 2, 40))
    return tree


def any_node(chance: random.Random) -> Any:
    deep: Any = 0
    for _ in range(chance.choice((3, 30, 300))):
        deep = [deep] if chance.random() < 0.5 else {"list": [deep]}
    plain: tuple[Any, ...] = (None, True, [], {}, 0.5, 1e308, chance.choice(EDGES), chance.choice(WORDS))
    return chance.choice((*plain, deep, {"tensor": {}}, {"dict": [[1]]}))


# --- seeds ---

NOTE: Final = {"dtype": "float32", "shape": [4, 8], "stride": [8, 1], "offset": 256}
OUTPUTS: Final = {"outputs": {"tuple": [{"tensor": NOTE}, {"dict": [["a", {"list": [1, {"float": "0x1.8p+1"}]}]]}]}}
CALLS: Final = {"calls": [{"tensor": NOTE}, 1]}
WEIGHTS: Final = [{"name": "weight", "tensor": NOTE}, {"name": "bias", "tensor": NOTE}]
INPUTS: Final = {"list": [{"tensor": {**NOTE, "offset": 0}}, 3]}
ERROR: Final = {"error": {"type": "ValueError", "text": "x", "line": 3}, "phase": "call"}

CASE: Final = {
    "name": "own",
    "overrides": {"N": 4},
    "init": {"args": {"list": [4]}, "kwargs": {"dict": []}},
    "inputs": {"list": [{"tensor": {"dtype": "float32", "shape": [4, 8], "stride": [8, 1]}}]},
    "outputs": {"tensor": {"dtype": "float32", "shape": [4, 8], "stride": [8, 1]}},
    "elements": 64,
    "input_bytes": 128,
    "output_bytes": 128,
    "state_bytes": 0,
    "peak_bytes": 0,
    "multiplies_matrices": False,
    "flops": 0,
    "operations": 1,
}
SPECIFICATION: Final = {
    "entry_point": "Model",
    "dynamic_shapes": True,
    "tiny_declared": False,
    "knobs": {"N": 4},
    "flags": [],
    "has_modes": False,
    "cases": {"own": CASE, "tiny": None, "shapes": [{**CASE, "name": "shape x2"}]},
}


def cubin() -> bytes:
    """A CUDA ELF with one kernel `k`: its text, its attributes, symbols and names."""
    sections = [
        (b"", 0, b""),
        (b".shstrtab", 3, b""),
        (b".strtab", 3, b"\0k\0"),
        (b".symtab", 2, bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 5, 0, 16)),
        (b".nv.info", 0x70000000, struct.pack("<BBHII", 4, 0x2F, 8, 1, 24) + struct.pack("<BBHII", 4, 0x11, 8, 1, 0)),
        (b".text.k", 1, bytes(16)),
        (b".nv.info.k", 0x70000000, b""),
        (b".nv.shared.k", 8, b""),
    ]
    names = b"\0".join(name for name, _, _ in sections) + b"\0"
    body, table, at_name = bytearray(), bytearray(), 0
    for name, kind, content in sections:
        data = names if name == b".shstrtab" else content
        table += struct.pack("<IIQQQQIIQQ", at_name, kind, 0, 0, 64 + len(body), len(data), 0, 0, 0, 0)
        body += data
        at_name += len(name) + 1
    ident = b"\x7fELF" + bytes((2, 1, 1, 0x33, 7)) + bytes(7)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 90, 64, 0, 0, 64, len(sections), 1)
    return ident + head + bytes(body) + bytes(table)


# --- targets ---


def read_message(data: bytes) -> None:
    message = wire.decode(data)
    wire.Message(message).optional_text("ev")


def read_packet(data: bytes) -> None:
    wire._message(data, 0, [])


_ARENA: Final = Arena.make(torch.device("cpu"), 1 << 16)


class Page:
    """A doorbell page with this reply in it."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_reply(self) -> tuple[bytes, int]:
        return self.data, 1

    def claims(self) -> native.Claims:
        return native.Claims(wire.DOORBELL_OK, 1, 0, 0)


def child_of(data: bytes) -> Any:
    """A peer whose child has left this reply."""
    child: Any = peer.Peer.__new__(peer.Peer)
    child.arena, child.doorbell, child.device = _ARENA, Page(data), torch.device("cpu")
    return child


def read_reply(data: bytes) -> None:
    """Each tensor is read, so that a wrong bound would show."""
    for _, leaf in values.leaves(child_of(data).outputs_of(1)[0]):
        if isinstance(leaf, torch.Tensor):
            leaf.clone()


def read_calls(data: bytes) -> None:
    """The outputs of a bell of two calls."""
    for _, leaf in values.leaves(child_of(data).outputs_of(2)):
        if isinstance(leaf, torch.Tensor):
            leaf.clone()


def test_a_reply_that_is_the_same_is_not_taken_apart_again() -> None:
    def reply(offset: int) -> bytes:
        return json.dumps({"outputs": values.TensorNote(torch.float32, (2,), (1,), offset).json()}).encode()

    child = child_of(reply(0))
    first = child.outputs_of(1)
    assert child.outputs_of(1) is first
    child.doorbell.data = reply(64)
    assert child.outputs_of(1)[0].data_ptr() == first[0].data_ptr() + 64
    child.doorbell.claims = lambda: native.Claims(wire.DOORBELL_RAISED, 1, 0, 0)
    with pytest.raises(peer.PeerFailed):
        child.outputs_of(1)


def read_weights(data: bytes) -> None:
    """What a reference tells of its weights."""
    child = child_of(b"")
    child.build = lambda *_, **__: json.loads(data)
    _, state = Reference(child).model({**CASE, "init": {}}, 0)
    for item in state:
        _ARENA.view(values.TensorNote.parse(item["tensor"], item["name"]))


def read_inputs(data: bytes) -> None:
    """What a reference tells of inputs that it made."""
    child = child_of(b"")
    child.make_inputs = lambda *_, **__: json.loads(data)
    reference = Reference(child)
    reference.sizes = Sizes.of(SPECIFICATION, child.device)
    for view in reference.views(reference.inputs(CASE, 1)):
        view.clone()


def read_error(data: bytes) -> None:
    found = peer.failure("import", json.loads(data))
    assert len(str(found.error["text"])) <= 8192
    json.dumps(found.error)


def peer_of(answer: bytes, descriptors: int) -> tuple[peer.Peer, socket.socket]:
    """A peer whose child has already answered so, and the child's end of the channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    null = os.open(os.devnull, os.O_RDONLY)
    socket.send_fds(theirs, [answer], [null] * descriptors)
    os.close(null)
    return peer.Peer("child", wire.Channel(ours.detach()), os.pidfd_open(os.getpid()), torch.device("cpu")), theirs


@pytest.mark.parametrize("event", ["bound", "failed", "inputs", "x" * 50000])
def test_descriptors_that_nobody_asked_for_are_closed(event: str) -> None:
    """The referee outlives its children: each one that it kept would be kept for ever."""
    names = ["a", "b", "c"]
    answer = json.dumps({"ev": event, "phase": "bind", "error": {}, "fds": names}).encode()
    child, theirs = peer_of(answer, len(names))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(peer.PeerFailed):
        child.bind(0, "0", None)
    assert len(os.listdir("/proc/self/fd")) == before
    child.close()
    theirs.close()


@pytest.mark.parametrize("kind", ["RuntimeError", "StepError"])
def test_memory_that_the_host_does_not_have_is_no_mistake_of_a_launch(kind: str) -> None:
    text = "aten.empty.memory_format: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate"
    assert peer.failure("call", {"type": kind, "text": text, "line": 3}).class_ == "oom"


def test_what_a_child_says_of_an_error_fits_a_message() -> None:
    """Texts of a child, however they are made, are not what the referee's own message breaks on."""
    text = "\x01" * 9000 + "\ud800" * 9000
    failed = peer.failure("call", {"type": text, "text": text, "line": 10**30})
    result = judge.CaseResult("original", "launch", text, error={"type": text[:128], "text": text, "line": None})
    report = judge.Report("tiny", "fail", "launch", 0, 1, failed.error, generality=text)
    for found in (report, judge.Report("tiny", "skip", None, 0, 1, result.error)):
        assert len(wire.encode(found.json("job"))) <= wire.WORKER_MESSAGE_MAX
    assert len(wire.encode(result.json())) < 16 * 1024


def test_an_8_bit_float_beside_integers() -> None:
    """Dtypes that torch itself compares with nothing are wrong, and no fault of the referee's."""
    got = torch.ones(4).to(torch.float8_e4m3fn)
    found = tolerance.compare(got, torch.full((4,), 2, dtype=torch.int64), tolerance.Limit(0.0, 0.0))
    assert found.differing == 4


def read_notes(data: bytes) -> None:
    """What a reference tells of its inputs, moved as the referee moves them."""
    tree = json.loads(data)
    for note in values.notes(tree):
        assert note.span_bytes >= 0
    values.map_tensors(tree, lambda note: note.moved(0))


def read_cubin(data: bytes) -> None:
    capability, kernels = inspect_stage.kernels_of(data)
    assert capability >= 0
    json.dumps([kernel.name for kernel in kernels])


def read_specification(data: bytes) -> None:
    """What passes is JSON that verifierd reads, and its sizes can be worked out."""
    spec = specification.parse(data)
    json.dumps(spec, ensure_ascii=False).encode()
    assert Sizes.of(spec, torch.device("cpu")).reference_arena > 0


@dataclass(frozen=True)
class Target:
    read: Callable[[bytes], None]
    seeds: tuple[Any, ...]
    """bytes, or a JSON tree."""
    refusals: tuple[type[BaseException], ...]

    def inputs(self, chance: random.Random) -> bytes:
        seed = chance.choice(self.seeds)
        if isinstance(seed, bytes):
            return change_bytes(seed, chance)
        data = b""
        while not 0 < len(data) <= wire.WORKER_MESSAGE_MAX:
            changed = change_tree(seed, chance)
            data = b"" if changed == seed else json.dumps(changed).encode()
        return change_bytes(data, chance) if chance.random() < 0.2 else data


JSON_REFUSALS: Final = (ValueError, RecursionError)
"""What json.loads() itself raises."""

TARGETS: Final = {
    "message": Target(
        read_message, ({"ev": "ready"}, {"ev": "failed", "phase": "import", **ERROR}), (wire.ProtocolError,)
    ),
    "packet": Target(read_packet, ({"ev": "built", "fds": []},), (wire.ProtocolError, wire.ChannelClosed)),
    "reply": Target(read_reply, (OUTPUTS, ERROR), (peer.PeerFailed,)),
    "calls": Target(read_calls, (CALLS,), (peer.PeerFailed,)),
    "weights": Target(read_weights, (WEIGHTS,), (ReferenceBroken, *JSON_REFUSALS)),
    "inputs": Target(read_inputs, (INPUTS,), (ReferenceBroken, *JSON_REFUSALS)),
    "error": Target(read_error, (ERROR["error"],), JSON_REFUSALS),
    "notes": Target(read_notes, (OUTPUTS["outputs"],), (values.ValueRefused, *JSON_REFUSALS)),
    "cubin": Target(read_cubin, (cubin(),), (inspect_stage.BadElf, struct.error)),
    "specification": Target(
        # Most changes of the second fall into a text that may be anything.
        read_specification,
        (SPECIFICATION, json.dumps({**SPECIFICATION, "flags": ["x" * 8000]}).encode()),
        (specification.SpecRefused,),
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_of_a_child(name: str) -> None:
    target, chance = TARGETS[name], random.Random(name)
    accepted = 0
    for number in range(ROUNDS):
        data = target.inputs(chance)
        try:
            target.read(data)
            accepted += 1
        except target.refusals:
            pass
        except BaseException as error:
            raise AssertionError(f"{name} {number}: {type(error).__name__}: {error}: {data[:300]!r}") from error
    assert 0 < accepted < ROUNDS, "inputs that are all refused, or all taken, try nothing"


def test_the_seeds_are_honest() -> None:
    assert inspect_stage.kernels_of(cubin()) == (
        90,
        [inspect_stage.Kernel(name="k", registers=24, spill_bytes=0, shared_bytes=0)],
    )
    read_reply(json.dumps(OUTPUTS).encode())
    for name, target in TARGETS.items():
        for seed in target.seeds:
            try:
                target.read(seed if isinstance(seed, bytes) else json.dumps(seed).encode())
            except peer.PeerFailed:
                assert name == "reply"


@pytest.mark.parametrize(("phase", "is_gone"), [("capture", False), ("call", True)])
def test_a_call_that_cannot_be_captured_leaves_its_process(phase: str, is_gone: bool) -> None:
    """torch tells all of CUDA's errors by one type."""
    text = "CUDA error: operation failed due to a previous error during capture"
    assert peer.failure(phase, {"type": "AcceleratorError", "text": text, "line": None}).is_gone is is_gone
