"""A referee without torch: has its children do what the source says (script.py), over the real protocol."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "server/harness"))

import script  # noqa: E402
from shared import wire  # noqa: E402

SETTINGS = script.settings()
SPEC = {
    "entry_point": "Model",
    "dynamic_shapes": False,
    "tiny_declared": False,
    "knobs": {},
    "flags": ["random_reference"],
    "cases": {"own": {"name": "own", "elements": 1}, "tiny": None, "shapes": []},
}
MISMATCH = {"case": "original", "output": "0", "index": [0, 3], "expected": 1.5, "got": 1.25, "differing": 5, "of": 64}

FINDING = {"what": "Invalid __global__ write", "kernel": "kernel", "file": "candidate.py", "line": 8, "reports": 2}
LOOKED = [
    {"tool": "memcheck", "ran": True, "why": None, "cases": ["own"], "errors": 2, "findings": [
        FINDING | {"thread": "(8,0,0)", "block": "(0,1,0)", "text": "1 bytes after the nearest allocation"},
        FINDING | {"kernel": None, "file": None, "line": None, "thread": None, "block": None, "text": "", "reports": 1},
    ]},
    {"tool": "racecheck", "ran": False, "why": "it did not end within 90 s", "cases": [], "errors": 0, "findings": []},
]  # fmt: skip


DRIFT = 0.05
"""server/harness/oracle/gpu_state.py's."""


def canary_ns() -> int | None:
    """What the canary takes now, as a file says; None: there is no GPU whose canary has a time."""
    path = SETTINGS.get("SCRIPT_CANARY_NS")
    return int(Path(path).read_text()) if path is not None else None


def note(line: str) -> None:
    """What was asked, in order, for who wants to know."""
    path = SETTINGS.get("SCRIPT_NOTES")
    if path is not None:
        with Path(path).open("a") as file:
            file.write(line + "\n")


class Gone(Exception):
    """A child ended instead of answering."""


@dataclass
class Child:
    channel: wire.Channel
    pidfd: int
    is_ready: bool = False

    def close(self) -> None:
        self.channel.close()
        os.close(self.pidfd)

    def has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def do(self, stage: str, source: bytes) -> str:
        fd = wire.make_memfd(source)
        try:
            self.channel.send({"op": "do", "stage": stage}, {"source": fd})
            return self.channel.receive().text("step")
        except wire.ChannelClosed:
            raise Gone from None
        finally:
            os.close(fd)


@dataclass
class Job:
    candidate: str
    source: bytes


class Referee:
    def __init__(self, channel: wire.Channel) -> None:
        self.channel = channel
        self.children: dict[str, Child] = {}
        self.jobs: dict[str, Job] = {}
        self.turned: set[bytes] = set()
        self.known_ns = canary_ns()

    def serve(self) -> None:
        while True:
            for name in self.wait():
                self.look_after(name)
            if self.channel.wait(0):
                message = self.channel.receive()
                getattr(self, "op_" + message.text("op"))(message)
                message.close()

    def wait(self) -> list[str]:
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        owners: dict[int, str] = {}
        for name, child in self.children.items():
            for fd in [child.pidfd] if child.is_ready else [child.pidfd, child.channel.fileno()]:
                poll.register(fd, select.POLLIN)
                owners[fd] = name
        return sorted({owners[fd] for fd, _ in poll.poll() if fd in owners})

    def look_after(self, name: str) -> None:
        child = self.children[name]
        if not child.is_ready and child.channel.wait(0):
            try:
                child.channel.receive()
                child.is_ready = True
                self.channel.send({"ev": "child_ready", "child": name})
                return
            except wire.ChannelClosed:
                pass
        if child.has_ended() or not child.is_ready:
            self.forget(name)
            self.channel.send({"ev": "child_gone", "child": name})

    def forget(self, name: str) -> None:
        child = self.children.pop(name, None)
        if child is not None:
            child.close()

    def op_child(self, message: wire.Message) -> None:
        channel = wire.Channel(message.take_fd("channel"))
        self.children[message.text("child")] = Child(channel, message.take_fd("pidfd"))

    def op_drop(self, message: wire.Message) -> None:
        self.forget(message.text("child"))
        self.channel.send({"ev": "dropped", "child": message.text("child")})

    def op_register(self, message: wire.Message) -> None:
        job = message.text("job")
        source = wire.read_memfd(message.take_fd("source"), wire.SOURCE_MAX)
        child = self.children.get(message.text("child"))
        try:
            step = child.do("describe", source) if child is not None else "gone"
        except Gone:
            step = "gone"
        if step == "pass":
            fd = wire.make_memfd(json.dumps(SPEC).encode())
            self.channel.send({"ev": "registered", "job": job}, {"spec": fd})
            os.close(fd)
        else:
            error = {"type": "Scripted", "text": f"Traceback: {step}", "line": 1}
            self.channel.send({"ev": "refused", "job": job, "error": error})

    def op_open(self, message: wire.Message) -> None:
        job, source = message.text("job"), wire.read_memfd(message.take_fd("source"), wire.SOURCE_MAX)
        self.jobs[job] = Job(message.text("candidate"), source)
        note(f"open {job}")
        if message.text("reference") not in self.children:
            self.report(job, "reference", "fail:infra")
        else:
            self.stage(job, "open")

    def op_stage(self, message: wire.Message) -> None:
        self.stage(message.text("job"), message.text("stage"), message.optional_text("child"))

    def stage(self, name: str, stage: str, tool: str | None = None) -> None:
        job = self.jobs[name]
        note(f"stage {stage}")
        todo = script.steps(job.source.decode("utf-8", "replace"), stage)
        if "oom_referee" in todo:
            os.kill(os.getpid(), signal.SIGKILL)
        if "kill_referee" in todo:
            os._exit(1)
        child = self.children.get(tool or job.candidate)
        try:
            step = child.do(stage, job.source) if child is not None else "fail:crash"
        except Gone:
            last = script.steps(job.source.decode("utf-8", "replace"), stage)[-1]
            step = last if last.startswith(("reopen", "fail:policy", "fail:hack")) else "fail:crash"
        if step == "turn":
            step = "fail:mismatch" if job.source in self.turned else "pass"
            self.turned.add(job.source)
        if step == "flaky":
            flag = SETTINGS.get("SCRIPT_REFERENCE_FAILS")
            step = "reference" if flag is not None and Path(flag).exists() else "pass"
        if step == "background":
            step = "1.5" if job.source in self.turned else "fail:hack:background_work"
            self.turned.add(job.source)
        if step == "drift":
            step = "pass" if job.source in self.turned else "drift"
            self.turned.add(job.source)
        if step == "drift":
            self.report(name, "reference", "fail:infra", "NotTheCandidate")
            return
        if step == "reference":
            stage, step = "reference", "fail:infra"
        self.report(name, stage, step)

    def report(self, job: str, stage: str, step: str, error: str = "") -> None:
        outcome, _, found = step.partition(":")
        class_, _, rule = found.partition(":")
        detail: dict[str, Any] = {}
        body: dict[str, Any] = {"ev": "stage", "job": job, "stage": stage, "class": class_ or None, "run_ms": 1.0}
        body.update({"done": 1, "of": 1, "error": None, "generality": None, "reopen": False, "rule": rule or None})
        if stage == "timing":
            speedup = float(outcome) if outcome.replace(".", "").isdigit() else 1.0
            samples = [speedup * 1e6 + i for i in range(20)]
            detail = {"outcome": "measured", "why": None, "method": "scripted", "warmup": 1, "trials": 20}
            detail.update({"reference_ns": samples, "candidate_ns": [1e6 + i for i in range(20)], "empty_ns": 1.0})
            detail["clocks"] = {"blocks": json.loads(SETTINGS.get("SCRIPT_BLOCKS", "[]"))}
            if outcome == "inconclusive":
                detail.update({"outcome": outcome, "why": "as the script says"})
            outcome = "pass" if outcome not in ("fail", "skip") else outcome
        elif stage == "sanitize":
            detail = {"why": None, "tools": LOOKED} if outcome == "pass" else {"why": "as the script says", "tools": []}
        elif stage in ("tiny", "full"):
            detail = {"cases": [{"name": "original"}], "passed": 1, "first_mismatch": None}
            detail.update({"reference_peak_bytes": 4, "max_abs": 0.0, "max_rel": 0.0})
        if outcome == "rough":
            detail["cases"] = [{"name": str(n), "call_ms": n * float(found)} for n in (2, 1)]
            body["class"], outcome = None, "pass"
        if outcome in ("reopen", "generality"):
            body.update({"generality": "fails where nobody promised", "reopen": outcome == "reopen"})
            outcome = "skip"
        if outcome == "fail":
            text = "the process ended before it answered" if class_ == "crash" else "as the script says"
            body.update({"done": 0, "error": {"type": error or class_, "text": text, "line": None}})
            detail.update({"passed": 0, "first_mismatch": MISMATCH if class_ == "mismatch" else None})
        fd = wire.make_memfd(json.dumps(detail).encode())
        self.channel.send({**body, "outcome": outcome}, {"detail": fd})
        os.close(fd)

    def op_close(self, message: wire.Message) -> None:
        job = self.jobs.pop(message.text("job"), None)
        note(f"close {message.text('job')}")
        if message.body.get("keep") is True and job is not None:  # no child is made fit for another plan
            self.forget(job.candidate)
            self.channel.send({"ev": "child_gone", "child": job.candidate})

    def op_canary(self, message: wire.Message) -> None:
        flag = SETTINGS.get("SCRIPT_CANARY_FAILS")
        is_failing = flag is not None and Path(flag).exists()
        once = SETTINGS.get("SCRIPT_CANARY_FAILS_ONCE")
        if once is not None and Path(once).exists():
            Path(once).unlink()
            is_failing = True
        detail: dict[str, Any] = {"known_answer": not is_failing, "memory_back": True}
        ns = canary_ns()
        if ns is not None and self.known_ns is not None and not is_failing:
            drift = ns / self.known_ns - 1
            detail.update({"ns": ns, "kind": "scripted", "drift": round(drift, 4), "disturbed": None})
            is_failing = abs(drift) > DRIFT
        note(f"canary {len(self.jobs)} {sum(not child.is_ready for child in self.children.values())}")
        self.channel.send({"ev": "canary", "outcome": "fail" if is_failing else "pass", "detail": detail})


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--cores")
    parser.add_argument("--elements")
    parser.add_argument("--peaks")
    options = parser.parse_args()
    channel = wire.Channel(options.fd)
    versions = {"python": sys.version.split()[0], "torch": "scripted"}
    gpu: dict[str, Any] | None = {"name": "scripted"} if "SCRIPT_BLOCKS" in SETTINGS else None
    if canary_ns() is not None:
        gpu = {"name": "scripted", "uuid": "GPU-scripted", "driver": SETTINGS.get("SCRIPT_DRIVER", "1.0")}
    channel.send({"ev": "ready", "device": options.device, "gpu": gpu, "versions": versions})
    with contextlib.suppress(wire.ChannelClosed):
        Referee(channel).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
