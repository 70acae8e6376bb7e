"""A zygote without torch: forks real children that do what the source says (script.py), over the real protocol.

Nothing here confines anybody: it is for testing supervision, with sources of our own.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "server/harness"))

import script  # noqa: E402
from shared import wire  # noqa: E402

SETTINGS = script.settings()
NOTE = {"registers": 8, "spill_bytes": 0, "shared_bytes": 0}
LINGER_S = 60
"""How long a child stays that is to outlive its channel: its zygote may be gone, and nobody left to kill it."""


def ast(channel: wire.Channel, scratch: Path) -> None:
    request = channel.receive()
    source = wire.read_memfd(request.take_fd("source"), wire.SOURCE_MAX).decode("utf-8", "replace")
    end, _, found = script.perform(script.steps(source, "ast"), scratch).partition(":")
    class_, _, rule = found.partition(":")
    report: dict[str, Any] = {"ev": "result", "outcome": end, "class": class_ or None, "kernels": ["kernel"]}
    error = {"type": "Scripted", "text": "as the script says", "line": 1} if end == "fail" else None
    channel.send({**report, "flags": [], "error": error, "rule": rule or None})


def compile_(channel: wire.Channel, scratch: Path) -> None:
    request = channel.receive()
    source = wire.read_memfd(request.take_fd("source"), wire.SOURCE_MAX).decode("utf-8", "replace")
    cache = Path(request.text("cache"))
    cache.mkdir()
    end, _, class_ = script.perform(script.steps(source, "compile"), scratch).partition(":")
    error = {"type": "Scripted", "text": "as the script says", "line": 2} if end == "fail" else None
    if end == "pass":
        (cache / "kernel").mkdir()
        (cache / "kernel" / "kernel.cubin").write_bytes(b"cubin")
    kernels = [{"name": "kernel", "outcome": end, "error": error, "ms": 1.0}]
    report = {"ev": "result", "outcome": end, "class": class_ or None, "launches": 1, "kernels": kernels}
    has_plan = end == "pass" and (request.body["trace"] is True or class_ == "plan")
    fds = {"plan": wire.make_memfd(source.encode(), "plan")} if has_plan else {}
    channel.send({**report, "unreached": [], "flags": [], "error": error}, fds)


def build(channel: wire.Channel) -> None:
    """Kernels of the plan, which is the source: all compile. One with a script is half done when that begins."""
    request = channel.receive()
    plan = request.take_fd("plan")
    for done in range(40):  # one for each kernel, and none of them is one too many
        channel.send({"ev": "progress", "done": done, "of": 40})
    todo = script.steps(os.pread(plan, wire.SOURCE_MAX, 0).decode("utf-8", "replace"), "build")
    if todo != ["pass"]:
        channel.send({"ev": "progress", "done": 2, "of": 4})
    script.perform(todo, None)
    report: dict[str, Any] = {"ev": "result", "outcome": "pass", "flags": [], "error": None, "done": 1, "of": 1}
    images = {"images": plan}
    report["plan"] = {"traced": True, "call_bytes": 8}
    channel.send({**report, "kernels": [{"name": "kernel", **NOTE, "cubin_bytes": 5, "hash": "sha256:0"}]}, images)


def inspect(channel: wire.Channel) -> None:
    request = channel.receive()
    found = sorted(Path(request.text("cache")).glob("*/*.cubin"))
    kernels = [{"name": f.stem, **NOTE, "cubin_bytes": f.stat().st_size, "hash": "sha256:0"} for f in found]
    channel.send({"ev": "result", "outcome": "pass", "kernels": kernels})


def run(channel: wire.Channel, scratch: Path, *, is_tool: bool) -> None:
    """Do what the referee passes on, one stage after another. is_tool: it is asked without being ready first."""
    time.sleep(float(SETTINGS.get("SCRIPT_MAKE_S", "0")))
    if not is_tool:
        channel.send({"ev": "ready"})
    while True:
        try:
            request = channel.receive()
        except wire.ChannelClosed:
            if "SCRIPT_END" in SETTINGS:
                time.sleep(LINGER_S)
            return
        source = wire.read_memfd(request.take_fd("source"), wire.SOURCE_MAX).decode("utf-8", "replace")
        request.close()
        channel.send({"ev": "end", "step": script.perform(script.steps(source, request.text("stage")), scratch)})


def become(message: wire.Message) -> None:
    channel_fd, output = message.take_fd("channel"), message.take_fd("output")
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(channel_fd, 3)
    os.closerange(4, 256)
    scratch, uid, role = Path(message.text("scratch")), message.body["uid"], message.text("role")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, 0)  # so that a script can do what only a hole in the sandbox would allow
    os.setsid()
    channel = wire.Channel(3)
    if role == "ast":
        ast(channel, scratch)
    elif role == "compile":
        compile_(channel, scratch)
    elif role == "build":
        build(channel)
    elif role == "inspect":
        inspect(channel)
    else:
        run(channel, scratch, is_tool=role == "sanitize")


class Zygote:
    def __init__(self, channel: wire.Channel) -> None:
        self.channel = channel
        self.pids: dict[str, int] = {}
        self.killed: set[str] = set()

    def spawn(self, message: wire.Message) -> None:
        name = message.text("child")
        pid = os.fork()
        if pid == 0:
            try:
                become(message)
                os._exit(0)
            except BaseException as error:
                sys.stderr.write(f"{error!r}\n")
                os._exit(70)
        self.pids[name] = pid
        pidfd = os.pidfd_open(pid)
        self.channel.send({"ev": "spawned", "child": name, "pid": pid}, {"pidfd": pidfd})
        os.close(pidfd)

    def reap(self) -> None:
        while self.pids:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            name = next(name for name, known in self.pids.items() if known == pid)
            del self.pids[name]
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            report = {"ev": "exited", "child": name, "code": code, "signal": killer, "error": None}
            self.channel.send({**report, "max_rss_kb": usage.ru_maxrss, "cpu_ms": int(usage.ru_utime * 1000)})

    def end_killed(self) -> None:
        """Those who were killed are gone once the file SCRIPT_END is there, as a context on a GPU takes its time."""
        if not Path(SETTINGS.get("SCRIPT_END", "/")).exists():
            return
        for name in self.killed & set(self.pids):
            os.kill(self.pids[name], signal.SIGKILL)
        self.killed.clear()

    def serve(self, wake: int) -> None:
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll(20 if self.killed else None)]
            if wake in ready:
                os.read(wake, 4096)
            self.reap()
            self.end_killed()
            if self.channel.fileno() not in ready:
                continue
            message = self.channel.receive()
            if message.text("op") == "spawn":
                self.spawn(message)
            elif message.text("child") in self.pids:
                self.killed.add(message.text("child"))
                self.end_killed()
            message.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--kind", "--device", "--target"):
        parser.add_argument(name, required=True)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--private", action="append")
    options = parser.parse_args()
    channel = wire.Channel(options.fd)
    wake, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    layers = {"no_new_privs": "on", "seccomp": "on", "uid": "on"}
    lacking = Path(SETTINGS.get("SCRIPT_UNCONFINED", "/"))
    if lacking.is_file() and lacking.read_text() == options.kind:
        layers["seccomp"] = "absent: as the test says"
    versions = {"python": sys.version.split()[0], "torch": "scripted", "triton": "scripted"}
    channel.send({"ev": "ready", "kind": options.kind, "versions": versions, "sandbox": {"layers": layers}})
    zygote = Zygote(channel)
    try:
        zygote.serve(wake)
    except wire.ChannelClosed:
        pass
    finally:
        for pid in zygote.pids.values():
            os.kill(pid, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
