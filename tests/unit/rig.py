"""A referee and its children without a daemon or a zygote: what the harness' tests drive."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT / "server" / "harness"
sys.path.insert(0, str(HARNESS))
os.environ.setdefault("VERIFIERD_LIBHARNESS", str(ROOT / "build" / "lib" / "verifierd" / "libharness.so"))

from shared.wire import Channel, make_memfd, read_memfd  # noqa: E402

NURSERY = Path(__file__).parent / "nursery.py"

# What is left out when so many seconds have passed is not left out here: it would depend on the machine's load.
PATIENCE = "from oracle import judge; judge.SCREEN_S = 600.0; "
REFEREE = (
    f"import sys; sys.path[:0] = [sys.argv[1], '{Path(__file__).parent}']; {PATIENCE}exec(sys.argv[2]); "
    "del sys.argv[1:3]; import referee; sys.exit(referee.main())"
)
# Of a process that imports torch, and of a message from one, seconds.
LIMIT_S = 180

# A task with a weight, and an honest kernel for it.
TASK = """
import torch
N = 300
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n))
    def forward(self, x):
        return torch.relu(x) * self.weight
def get_inputs():
    return [torch.randn(40, N)]
def get_init_inputs():
    return [N]
"""

HONEST = """
import os, torch, triton, triton.language as tl
@triton.jit
def kernel(x, w, y, n, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    value = tl.maximum(tl.load(x + at, mask=inside), 0.0) * tl.load(w + at % n, mask=inside)
    tl.store(y + at, value, mask=inside)
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, self.weight, y, x.shape[-1], x.numel(), BLOCK=256)
        return y
"""


def policy(name: str = "strict", **changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "name": name,
        "foreign": {"hybrid": "library", "kernelbench": "any"}.get(name, "movement"),
        "variations": {"count": 5, "value": True, "shape": True, "dtype": True},
        "precision": "tf32",
        "timing": {"warmup": 10, "trials": 50, "events": True},
    }
    return {**whole, **changes}


class Rig:
    """One referee. Use as a context manager; children end with it."""

    def __init__(
        self,
        directory: Path,
        elements: int = 1 << 20,
        device: str = "cpu",
        prelude: str = "",
        child_prelude: str = "",
    ) -> None:
        """prelude: Python that the referee's process runs first; it can import the harness and what is beside this.

        child_prelude: the same of the children's.
        """
        self._directory = directory
        self._names = 0
        self._pids: dict[str, int] = {}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = ["--device", device, "--fd", str(theirs.fileno()), "--elements", str(elements)]
        self._referee = self._start([sys.executable, "-c", REFEREE, str(HARNESS), prelude, *arguments], theirs)
        self.channel = Channel(ours.detach())
        base = directory / "nursery"
        base.mkdir()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nursery = [sys.executable, str(NURSERY), str(HARNESS), str(theirs.fileno()), device, str(base), child_prelude]
        self._nursery_process = self._start(nursery, theirs)
        self._nursery = Channel(ours.detach())
        self.ready = self.channel.receive(LIMIT_S).body

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._referee.wait(10)
        self._referee.kill()
        self._referee.wait()
        self._nursery.close()
        assert self._nursery_process.wait(60) == 0

    def _start(self, command: list[str], end: socket.socket) -> subprocess.Popen[bytes]:
        with end:
            return subprocess.Popen(command, pass_fds=[end.fileno()])

    def child(self) -> str:
        """A run child that the referee says is ready."""
        self._names += 1
        name = f"c{self._names}"
        scratch = self._directory / name
        scratch.mkdir()
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._nursery.send({"op": "fork", "scratch": str(scratch)}, {"channel": theirs.fileno()})
        theirs.close()
        pidfd = self._nursery.receive(LIMIT_S).take_fd("pidfd")
        self.channel.send({"op": "child", "child": name}, {"channel": mine.fileno(), "pidfd": pidfd})
        mine.close()
        (self._pids[name],) = map(
            int, re.findall(r"^Pid:\s+(\d+)$", Path(f"/proc/self/fdinfo/{pidfd}").read_text(), re.M)
        )
        os.close(pidfd)
        while (told := self.channel.receive(LIMIT_S).body).get("ev") != "child_ready" or told["child"] != name:
            pass
        return name

    def is_stopped(self, child: str) -> bool:
        return Path(f"/proc/{self._pids[child]}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def cpu_s(self, child: str) -> float:
        """What all threads of its process have had so far."""
        tasks = Path(f"/proc/{self._pids[child]}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def ask(self, message: dict[str, Any], event: str, **contents: str) -> dict[str, Any]:
        """The answer of this kind to an operation, without descriptors."""
        fds = {name: make_memfd(text.encode()) for name, text in contents.items()}
        self.channel.send(message, fds)
        for fd in fds.values():
            os.close(fd)
        while (told := self.channel.receive(180).body).get("ev") != event:
            pass
        return told

    def register(self, child: str, source: str, **options: Any) -> dict[str, Any]:
        """The specification of a task, or {"refused": ERROR}."""
        fd = make_memfd(source.encode())
        message = {
            "op": "register",
            "job": "r",
            "child": child,
            "entry": None,
            "dynamic_shapes": False,
            "cases": None,
        }
        self.channel.send({**message, **options}, {"source": fd})
        os.close(fd)
        report = self.channel.receive(LIMIT_S)
        if report.body["ev"] == "refused":
            return {"refused": report.body["error"]}
        fd = report.take_fd("spec")
        spec: dict[str, Any] = json.loads(read_memfd(fd, 1 << 23))
        os.close(fd)
        return spec

    def judge(
        self,
        reference: str,
        spec: dict[str, Any],
        reference_source: str,
        candidate_source: str,
        *,
        stages: tuple[str, ...] = ("tiny", "full"),
        rules: dict[str, Any] | None = None,
        entry: str = "ModelNew",
        limit_ms: int = 60_000,
        compiles: bool = False,
        grouped: bool = False,
        cache: Path | None = None,
        images: bytes | None = None,
        seed: int = 1234,
        between: Callable[[str], None] = lambda _: None,
    ) -> dict[str, dict[str, Any]]:
        """Stage reports by name, their details inside; stops at the first failure.

        grouped: others have its seed.
        between: gets the candidate's child after each report.
        images: of the candidate's plan, which is judged then.
        compiles: the candidate, which is the reference then, runs under torch.compile. cache: of a compile stage.
        """
        candidate = self.child()
        message = {
            "op": "open", "job": "j", "reference": reference, "candidate": candidate, "entry": entry,
            "policy": rules or policy(), "seed": f"{seed:016x}",
            "cache": None if cache is None else str(cache), "call_limit_ms": limit_ms,
        }  # fmt: skip
        if compiles:
            message["compile"] = True
        if grouped:
            message["grouped"] = True
        contents: dict[str, str | bytes] = {
            "source": candidate_source, "spec": json.dumps(spec), "reference_source": reference_source,
        }  # fmt: skip
        if images is not None:
            contents["images"] = images
        found = {"open": self._open(message, contents)}
        between(candidate)
        for stage in stages:
            if any(report["outcome"] == "fail" for report in found.values()):
                break
            self.channel.send({"op": "stage", "job": "j", "stage": stage})
            found[stage] = self._stage()
            between(candidate)
            if found[stage]["reopen"]:
                self._drop(candidate)
                candidate = self.child()
                self._open({**message, "candidate": candidate}, contents)
                self.channel.send({"op": "stage", "job": "j", "stage": "full"})
                found[stage] = self._stage()  # which decides in its place
        self._drop(candidate)
        return found

    def _open(self, message: dict[str, Any], contents: dict[str, str | bytes]) -> dict[str, Any]:
        fds = {name: make_memfd(part if isinstance(part, bytes) else part.encode()) for name, part in contents.items()}
        self.channel.send(message, fds)
        for fd in fds.values():
            os.close(fd)
        return self._stage()

    def _drop(self, child: str) -> None:
        os.kill(self._pids[child], signal.SIGKILL)  # not reaped yet; a kernel without an end has the GPU till then
        self.channel.send({"op": "drop", "child": child})
        while self.channel.receive(LIMIT_S).body.get("ev") != "dropped":
            pass

    def _stage(self) -> dict[str, Any]:
        report = self.channel.receive(LIMIT_S)
        while report.body["ev"] != "stage":
            report = self.channel.receive(LIMIT_S)
        fd = report.take_fd("detail")
        report.body["detail"] = json.loads(read_memfd(fd, 1 << 20))
        os.close(fd)
        return report.body
