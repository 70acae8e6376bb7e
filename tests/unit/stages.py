"""The daemon's side of a zygote, for tests: starts one, spawns children, and asks them for one report."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared import wire

ROOT = Path(__file__).resolve().parents[2]
HARNESS = Path(os.environ.get("VERIFIERD_HARNESS", ROOT / "build" / "lib" / "verifierd" / "harness"))
START_S = 180.0
LIMIT_S = 300.0
"""For one request, whose own time is not under test: the longest of them compiles a kernel 64 times."""
UID = 64000 + os.getpid() % 1000 if os.geteuid() == 0 else None


def limits(memory_bytes: int = 8 << 30, file_bytes: int = 1 << 30, scratch_bytes: int = 4 << 30) -> dict[str, int]:
    return {"memory_bytes": memory_bytes, "file_bytes": file_bytes, "scratch_bytes": scratch_bytes}


def tensor(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    """A contiguous tensor of a specification."""
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= size
    return {"tensor": {"dtype": dtype, "shape": list(shape), "stride": stride}}


def spec(*inputs: Any, args: tuple[Any, ...] = ()) -> dict[str, Any]:
    """SPEC with the own case only."""
    init = {"args": {"list": list(args)}, "kwargs": {"dict": []}}
    own = {"name": "own", "overrides": {}, "init": init, "inputs": {"list": list(inputs)}}
    return {"entry_point": "Model", "cases": {"own": own, "tiny": None, "shapes": []}}


@dataclass
class Ended:
    """What became of a child."""

    report: dict[str, Any] | None
    exited: dict[str, Any]
    output: str
    seconds: float


class Zygote:
    """A running zygote. close() ends it by closing its channel."""

    def __init__(self, kind: str, device: str = "cpu", target: str = "cuda:90") -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, str(HARNESS / "zygote.py"), "--kind", kind]
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            self.process = subprocess.Popen(
                [*command, "--device", device, "--target", target, "--fd", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
            )
        self.channel = wire.Channel(ours.detach())
        self.ready = self.channel.receive(START_S)
        self._count = 0

    def close(self) -> int:
        self.channel.close()
        return self.process.wait(60)

    def spawn(self, role: str, scratch: Path, **more: Any) -> tuple[str, wire.Channel, int, int]:
        """Name, channel, read end of the output, pidfd."""
        self._count += 1
        name = f"c{self._count}"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read_end, write_end = os.pipe()
        request = {"op": "spawn", "child": name, "role": role, "scratch": str(scratch), "uid": UID}
        self.channel.send({**request, "limits": limits(), **more}, {"channel": theirs.fileno(), "output": write_end})
        theirs.close()
        os.close(write_end)
        answer = self.channel.receive(LIMIT_S)
        assert answer.body["ev"] == "spawned", answer.body
        return name, wire.Channel(ours.detach()), read_end, answer.take_fd("pidfd")

    def ask(self, request: dict[str, Any], fds: dict[str, bytes], scratch: Path, **more: Any) -> Ended:
        """Spawn a child for the request's op, ask, and wait for its end."""
        begun = time.monotonic()
        _, channel, output, pidfd = self.spawn(request["op"], scratch, **more)
        memfds = {name: wire.make_memfd(data) for name, data in fds.items()}
        report = None
        with contextlib.closing(channel), contextlib.suppress(wire.ChannelClosed):
            channel.send(request, memfds)
            report = channel.receive(LIMIT_S).body
        seconds = time.monotonic() - begun
        for fd in memfds.values():
            os.close(fd)
        exited = self.channel.receive(LIMIT_S).body
        os.close(pidfd)
        return Ended(report, exited, _drain(output), seconds)


def _drain(fd: int) -> str:
    parts = []
    while select.select([fd], [], [], 5.0)[0] and (part := os.read(fd, 65536)):
        parts.append(part)
    os.close(fd)
    return b"".join(parts).decode("utf-8", "replace")
