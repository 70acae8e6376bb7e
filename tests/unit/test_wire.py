"""The worker protocol's transport: sizes, shapes, descriptors, errors."""

from __future__ import annotations

import array
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from shared import wire

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pair() -> Iterator[tuple[wire.Channel, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, closing(wire.Channel(ours.detach())) as channel:
        yield channel, theirs


def header_constants() -> dict[str, int]:
    found: dict[str, int] = {}
    text = (ROOT / "proto" / "worker.h").read_text()
    for name, value in re.findall(r"^#define (\w+) (\(?[\d *]+\)?)$", text, re.MULTILINE):
        found[name] = eval(value)
    for name, value in re.findall(r"^\s+(DOORBELL_\w+) = (\d+)", text, re.MULTILINE):
        found[name] = int(value)
    return found


def test_constants_are_those_of_the_header() -> None:
    constants = header_constants()
    assert len(constants) >= 8
    for name, value in constants.items():
        assert getattr(wire, name) == value, name


def test_message_and_descriptors_arrive(pair: tuple[wire.Channel, socket.socket]) -> None:
    channel, theirs = pair
    other = wire.Channel(os.dup(theirs.fileno()))
    fd = wire.make_memfd(b"hello")
    channel.send({"op": "ast", "n": 3}, {"source": fd})
    message = other.receive(1.0)
    assert message.text("op") == "ast"
    assert message.integer("n", 0, 3) == 3
    taken = message.take_fd("source")
    assert wire.read_memfd(taken, 5) == b"hello"
    with pytest.raises(wire.ProtocolError, match="at most 4"):
        wire.read_memfd(taken, 4)
    os.close(taken)
    os.close(fd)
    other.close()


@pytest.mark.parametrize(
    "data",
    [
        b"[1]",
        b"{",
        b"\xff\xfe",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"fds":["x"]}',
        b'{"fds":7}',
        b"[" * 50000,
        b" " * (wire.WORKER_MESSAGE_MAX + 1),
    ],
)
def test_bad_packets_are_refused(pair: tuple[wire.Channel, socket.socket], data: bytes) -> None:
    channel, theirs = pair
    theirs.send(data)
    with pytest.raises(wire.ProtocolError):
        channel.receive(1.0)


def test_descriptors_of_a_refused_packet_are_closed(pair: tuple[wire.Channel, socket.socket]) -> None:
    channel, theirs = pair
    before = len(os.listdir("/proc/self/fd"))
    rights = array.array("i", [0, 1])
    theirs.sendmsg([b'{"fds":["one"]}'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    with pytest.raises(wire.ProtocolError, match="2 descriptors"):
        channel.receive(1.0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_closed_and_silent_channels_differ(pair: tuple[wire.Channel, socket.socket]) -> None:
    channel, theirs = pair
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    theirs.close()
    with pytest.raises(wire.ChannelClosed):
        channel.receive(1.0)
    with pytest.raises(wire.ChannelClosed):
        channel.send({"ev": "late"})


def test_message_too_large_is_not_sent(pair: tuple[wire.Channel, socket.socket]) -> None:
    channel, _ = pair
    with pytest.raises(ValueError, match="at most"):
        channel.send({"text": "x" * wire.WORKER_MESSAGE_MAX})
    with pytest.raises(ValueError):
        channel.send({"x": float("nan")})


def test_only_sealed_memfds_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with path.open("rb") as file, pytest.raises(wire.ProtocolError, match="no memfd"):
        wire.read_memfd(file.fileno(), 10)
    open_fd = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    with pytest.raises(wire.ProtocolError, match="sealed"):
        wire.read_memfd(open_fd, 10)
    os.close(open_fd)


def test_error_has_the_candidates_line_and_no_harness_frames(tmp_path: Path) -> None:
    path = tmp_path / wire.CANDIDATE_FILE
    path.write_text("def f():\n    return g()\n\ndef g():\n    raise ValueError('no \\ud800')\n")
    space: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    with pytest.raises(ValueError) as caught:
        space["f"]()  # type: ignore[operator]
    error = wire.error_json(caught.value)
    assert error["line"] == 5
    assert error["type"] == "ValueError"
    assert "test_wire" not in error["text"]
    assert 'File "candidate.py", line 2, in f' in error["text"]
    wire.encode(error).decode("ascii").encode("utf-8")


def test_frames_of_the_module_inspect_say_nothing_and_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / wire.CANDIDATE_FILE
    file.write_text("import inspect\n\n\ndef call():\n    inspect.getcallargs(call, 1)\n")
    space: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    with pytest.raises(TypeError) as raised:
        space["call"]()  # type: ignore[operator]
    text = wire.error_json(raised.value)["text"]
    assert "line 5, in call" in text and "takes 0 positional arguments" in text and "inspect.py" not in text


def test_long_texts_lose_their_middle() -> None:
    cut = wire.clean_text("a" * 9000 + "ä" * 9000)
    assert len(cut.encode()) <= wire.WORKER_ERROR_TEXT_MAX
    assert "[... cut ...]" in cut
    assert cut.startswith("aaa")
    assert cut.endswith("ä")
    assert wire.clean_text("a\0b") == "a\\0b"


def test_a_report_has_numbers_only_that_json_has() -> None:
    """Issue 21, point 9: jansson refuses a detail with an infinity in it, and the verdict stood without cases."""
    detail = {"cases": [{"max_rel": float("inf"), "max_abs": 1.5}], "limits": (float("nan"), -float("inf"), 2, True)}
    text = json.dumps(wire.finite(detail), allow_nan=False)
    assert json.loads(text) == {"cases": [{"max_rel": None, "max_abs": 1.5}], "limits": [None, None, 2, True]}
