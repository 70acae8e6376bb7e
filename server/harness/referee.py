"""The referee of one device: owns the arenas, the inputs, the expected outputs, the comparison and the clock.

It imports no code of tasks or candidates. verifierd sends one operation at a time (proto/worker.md); this
loop answers them in order, and between them reports children that became ready or ended.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import select
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final

import prime
import torch
from executor import archive
from oracle import physics, sanitizer, specification
from oracle.answers import Answers
from oracle.gpu_state import DRIFT, KIND, Gpu, disturbance
from oracle.judge import Job, Policy, Report, timed
from oracle.peer import NotTheCandidate, Peer, PeerFailed, is_over
from oracle.reference import Reference, ReferenceBroken, Sizes, available_bytes, fp64_room
from shared import native
from shared.wire import (
    SOURCE_MAX,
    WORKER_DETAIL_MAX,
    Channel,
    ChannelClosed,
    Json,
    Message,
    ProtocolError,
    clean_text,
    cores,
    error_json,
    finite,
)

WORKING: Final = 2
"""The referee's own copies of inputs and outputs, while it compares."""
CACHED_MOST: Final = 8 << 30
"""Bytes that the referee may keep for itself from one job to the next, where there is room: less than the references of
other tasks hold, so that hardly anything depends on it what a candidate finds free."""
MEMORY_LIMIT_S: Final = 8.0
FATAL_MOST: Final = 4096
"""Tasks of which it is known what their references do not survive."""
MEMORY_SLACK: Final = 6 << 30
"""Contexts of children that are made ready meanwhile: the largest size of a pool by default."""
ENDING_S: Final = 1.0
"""How long killed processes may keep their GPU memory from the next job."""
ENDING_POLL_S: Final = 0.01
DESCRIBE_LIMIT_MS: Final = 180_000
CONTENT_MOST: Final = {
    "source": SOURCE_MAX,
    "spec": specification.SPEC_MAX,
    "reference_source": SOURCE_MAX,
}
"""Bytes of what comes with each request to open a job."""


def _untimed() -> Report:
    return Report("timing", "skip", detail={"outcome": "skipped", "why": "no GPU on this machine"})


class Referee:
    def __init__(
        self,
        channel: Channel,
        device: torch.device,
        element_limit: int | None,
        peaks: physics.Peaks | None,
        overrides: dict[str, float],
    ) -> None:
        """peaks: of the GPU (None without one), with the overrides in."""
        self._channel = channel
        self._peaks, self._overrides = peaks, overrides
        self._device = device
        self._element_limit = element_limit if device.type == "cpu" else None
        self._children: dict[str, Peer] = {}
        self._references: dict[str, Reference] = {}
        self._jobs: dict[str, Job] = {}
        self._gpu = Gpu(device) if device.type == "cuda" else None
        self._answers = Answers(device)
        self._fatal: dict[bytes, set[tuple[str, str]]] = {}  # by task: what its references did not survive
        self._registered: set[str] = set()  # children that have run a task's code and hold no reference yet
        self._ending: list[int] = []  # pidfds of children that were forgotten before they were gone
        self._due_bytes = 0  # free GPU memory that there must be once a child is gone, and until others take some
        self._ops: dict[str, Callable[[Message], None]] = {
            "child": self._op_child,
            "drop": self._op_drop,
            "register": self._op_register,
            "open": self._op_open,
            "stage": self._op_stage,
            "close": self._op_close,
            "canary": self._op_canary,
        }

    def run(self, ready: Json) -> None:
        """Serve until verifierd is gone."""
        if self._gpu is not None:
            self._gpu.learn()
        try:
            self._channel.send(ready)
        except ChannelClosed:  # the start failed meanwhile, and the daemon said why
            return
        while True:
            try:
                for name in self._wait():
                    self._look_after(name)
                if self._channel.wait(0):
                    self._serve(self._channel.receive())
            except ChannelClosed:  # the daemon ends, maybe before it was told or answered
                return

    def _serve(self, message: Message) -> None:
        try:
            self._ops[message.text("op")](message)
        finally:
            message.close()
            self._hold_references()

    # --- children ---

    def _wait(self) -> list[str]:
        """Sleep until there is a message, a child that says "ready", or one that ended: the names of those children."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        owners: dict[int, str] = {}
        for name, peer in self._children.items():
            watched = [peer.pidfd] if peer.is_ready else [peer.pidfd, peer.channel.fileno()]
            for fd in watched:
                poll.register(fd, select.POLLIN)
                owners[fd] = name
        found = {owners[fd] for fd, _ in poll.poll() if fd in owners}
        return sorted(found)

    def _look_after(self, name: str) -> None:
        peer = self._children[name]
        if not peer.is_ready:
            try:
                if peer.channel.wait(0) and peer.channel.receive().text("ev") == "ready":
                    peer.is_ready = True
                    self._channel.send({"ev": "child_ready", "child": name})
                    return
            except (ChannelClosed, ProtocolError):
                pass
        if not peer.is_alive() or not peer.is_ready:
            self._forget(name)
            self._channel.send({"ev": "child_gone", "child": name})

    def _hold_references(self) -> None:
        """Stops all processes that a task's code has started while its child has no request to serve.

        A process that cannot be stopped is ended: it is then handled like one that ended by itself.
        """
        for name in self._registered | self._references.keys():
            self._children[name].freeze()

    def _forget(self, name: str) -> None:
        self._references.pop(name, None)
        self._registered.discard(name)
        self._answers.forget(name)
        for job in [job for job, item in self._jobs.items() if item.candidate.name == name]:
            del self._jobs[job]
        peer = self._children.pop(name, None)
        if peer is None:
            return
        if self._device.type == "cuda":
            for pidfd in [pidfd for pidfd in self._ending if is_over(pidfd)]:
                self._ending.remove(pidfd)
                os.close(pidfd)
            if peer.is_alive():
                self._ending.append(os.dup(peer.pidfd))
            self._note_due(peer)
        peer.close()

    def _note_due(self, peer: Peer) -> None:
        """Of a child whose arena is freed now."""
        arena = peer.arena.size if peer.arena is not None else 0
        self._due_bytes = torch.cuda.mem_get_info(self._device)[0] + arena + self._cached_bytes()

    def _op_child(self, message: Message) -> None:
        name = message.text("child")
        channel = Channel(message.take_fd("channel"))
        self._children[name] = Peer(name, channel, message.take_fd("pidfd"), self._device)

    def _op_drop(self, message: Message) -> None:
        name = message.text("child")
        self._forget(name)
        self._channel.send({"ev": "dropped", "child": name})

    def _free_bytes(self) -> int | None:
        """Of the GPU's memory, or of the machine's without one; None: not known."""
        if self._device.type == "cuda":
            return int(torch.cuda.mem_get_info(self._device)[0])
        return available_bytes()

    # --- tasks ---

    def _op_register(self, message: Message) -> None:
        job, peer = message.text("job"), self._children.get(message.text("child"))
        source = message.take("source", SOURCE_MAX)
        self._due_bytes = 0
        if self._device.type == "cuda":
            self._answers.clear()
            torch.cuda.empty_cache()  # the child has no arena: all that it makes is the GPU's
        try:
            if peer is None:
                raise PeerFailed("crash", "the process ended before the reference was read")
            self._registered.add(peer.name)
            request = {
                "op": "describe",
                "entry": message.optional_text("entry"),
                "dynamic_shapes": message.boolean("dynamic_shapes"),
                "cases": message.body.get("cases"),
                "element_limit": self._element_limit,
            }
            report = peer.ask(request, "described", DESCRIBE_LIMIT_MS, {"source": source}, takes=("spec",))
            try:
                told = specification.parse(report.take("spec", specification.SPEC_MAX))
            finally:
                report.close()
        except PeerFailed as failure:
            self._channel.send({"ev": "refused", "job": job, "error": failure.error})
            return
        except (ProtocolError, specification.SpecRefused) as broken:
            text = clean_text(f"the reference's process told a false specification: {broken}")
            error = {"type": type(broken).__name__, "text": text, "line": None}
            self._channel.send({"ev": "refused", "job": job, "error": error})
            return
        spec = json.dumps(told, ensure_ascii=False).encode()  # not the child's own
        self._channel.send({"ev": "registered", "job": job}, contents={"spec": spec})

    # --- jobs ---

    def _op_open(self, message: Message) -> None:
        name = message.text("job")
        self._due_bytes = 0
        contents = {name: message.take(name, CONTENT_MOST[name]) for name in CONTENT_MOST}
        if "images" in message.fds:
            contents["images"] = message.take("images", archive.BYTES_MAX)
        self._report(name, lambda: self._open(name, message, contents))

    def _open(self, name: str, message: Message, contents: dict[str, bytes]) -> Report:
        reference, candidate = message.text("reference"), message.text("candidate")
        for child in (reference, candidate):
            if child not in self._children:
                raise NotTheCandidate(f"child {child} is gone")
        try:
            spec = specification.parse(contents["spec"])
        except specification.SpecRefused as refused:
            raise ReferenceBroken(f"the task's specification cannot be used: {refused}") from None
        self._make_room(spec, reference)
        if reference not in self._references:
            digest = hashlib.sha256(contents["reference_source"]).digest()
            if len(self._fatal) > FATAL_MOST:
                self._fatal.clear()
            self._references[reference] = Reference(self._children[reference], self._fatal.setdefault(digest, set()))
        self._children[reference].thaw()
        job = Job(
            name,
            self._references[reference],
            self._children[candidate],
            spec=spec,
            policy=Policy.parse(message.mapping("policy")),
            seed=int(message.text("seed"), 16),
            call_limit_ms=float(message.integer("call_limit_ms", 1, 3_600_000)),
            element_limit=self._element_limit,
            compiles=message.body.get("compile") is True,
            answers=self._answers if message.body.get("grouped") is True else None,
        )
        self._jobs[name] = job
        return job.open(
            contents["source"],
            contents["reference_source"],
            message.text("entry"),
            message.optional_text("cache"),
            contents.get("images"),
        )

    def _make_room(self, spec: Json, keep: str) -> None:
        """Until the GPU has room for this one's arenas: cached memory is freed, then references of other tasks, the
        longest loaded first, and then children that have registered one and wait to be its reference."""
        if self._device.type != "cuda":
            return
        sizes = Sizes.of(spec, self._device)
        needed = sizes.candidate_arena(self._device) + WORKING * (sizes.inputs + sizes.outputs) + MEMORY_SLACK
        if keep not in self._references:
            needed += sizes.reference_arena
        free = torch.cuda.mem_get_info(self._device)[0]
        is_short = free < needed + fp64_room(sizes, spec["cases"]["own"])
        if is_short:
            self._answers.clear()
        if is_short or self._cached_bytes() > CACHED_MOST:
            torch.cuda.empty_cache()
        elif free >= needed:
            return
        self._await_ends(needed)
        busy = {job.reference.peer.name for job in self._jobs.values()} | {keep}
        waiting = sorted(self._registered - self._references.keys())
        for name in [name for name in [*self._references, *waiting] if name not in busy]:
            if torch.cuda.mem_get_info(self._device)[0] >= needed:
                return
            self._children[name].end()
            self._forget(name)
            self._channel.send({"ev": "child_gone", "child": name})

    def _cached_bytes(self) -> int:
        return torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)

    def _await_ends(self, needed: int) -> None:
        """Until `needed` bytes are free, or no released child holds memory; at most ENDING_S."""
        end = time.monotonic() + ENDING_S
        for pidfd in self._ending:
            while torch.cuda.mem_get_info(self._device)[0] < needed and not is_over(pidfd, ENDING_POLL_S):
                if time.monotonic() > end:
                    return

    def _op_stage(self, message: Message) -> None:
        name, stage = message.text("job"), message.text("stage")
        if stage == "sanitize":
            tool = self._children.get(message.optional_text("child") or "")
            self._report(name, lambda: self._sanitize(self._jobs.get(name), tool))
            return
        self._report(name, lambda: self._stage(name, stage))

    def _stage(self, name: str, stage: str) -> Report:
        job = self._jobs.get(name)
        if job is None and stage == "timing" and self._gpu is None:
            return _untimed()
        if job is None:
            return Report(
                stage, "fail", "crash", 0, 1, {"type": "crash", "text": "the process has ended", "line": None}
            )
        job.candidate.thaw()
        job.reference.peer.thaw()
        recalled = job.reference.recalled
        with self._standing_still() if stage == "timing" and self._gpu else contextlib.nullcontext():
            report = job.tiny() if stage == "tiny" else job.full() if stage == "full" else self._timing(job)
            if stage != "timing":
                report.detail["recalled"] = job.reference.recalled - recalled
            if stage == ("full" if self._gpu is None else "timing"):
                job.tell_generality(report)
            return report

    def _sanitize(self, job: Job | None, tool: Peer | None) -> Report:
        if job is not None:
            job.reference.peer.thaw()
        return Report("sanitize", "pass", None, 1, 1, detail=sanitizer.look(job, tool))

    @contextlib.contextmanager
    def _standing_still(self) -> Iterator[None]:
        """Children that are being made stand still, wherever they are, while something is timed."""
        still = [peer for peer in self._children.values() if not peer.is_ready]
        try:
            for peer in still:
                peer.freeze()
            yield
        finally:
            for peer in still:
                peer.thaw()

    def _timing(self, job: Job) -> Report:
        gpu = self._gpu
        if gpu is None:
            return _untimed()
        assert self._peaks is not None
        case, precision = job.spec["cases"]["own"], job.precision()

        def again() -> tuple[Report, physics.Floor]:
            """Other processes may have slowed what was measured at start: now the GPU is this job's alone."""
            assert self._peaks is not None
            for peer in (job.candidate, job.reference.peer):
                peer.freeze()
            self._peaks = self._peaks.highest(physics.measure_peaks(self._device, self._overrides))
            for peer in (job.candidate, job.reference.peer):
                peer.thaw()
            return _time(job, gpu), physics.floor_of(case, self._peaks, precision)

        return physics.check(_time(job, gpu), physics.floor_of(case, self._peaks, precision), again)

    def _report(self, job: str, run: Callable[[], Report]) -> None:
        """Send the report of a stage; a reference that fails is reported as class `infra`, with the reason."""
        try:
            report = timed(run)
        except NotTheCandidate as broken:
            error = {"type": type(broken).__name__, "text": str(broken)[:8192], "line": None}
            report = Report("reference", "fail", "infra", error=error)
        except (torch.AcceleratorError, torch.OutOfMemoryError):  # another process is what helps
            raise
        except Exception as mistake:  # of ours, or data of a task that nobody foresaw: no candidate is to blame
            traceback.print_exc()
            error = {"type": type(mistake).__name__, "text": "the referee could not judge it", "line": None}
            report = Report("reference", "fail", "infra", error=error)
        body = report.json(job)
        if report.outcome == "fail":
            with contextlib.suppress(RuntimeError):  # a broken device has no figure
                body["free_bytes"] = self._free_bytes()
        detail = json.dumps(finite(report.detail), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        self._channel.send(body, contents={"detail": detail[:WORKER_DETAIL_MAX]})

    def _op_close(self, message: Message) -> None:
        closed = self._jobs.pop(message.text("job"), None)
        if message.body.get("keep") is True and closed is not None and self._device.type == "cuda":
            name = closed.candidate.name
            self._note_due(closed.candidate)
            why = closed.candidate.renew() if closed.is_planned else "it ran no plan"
            if why is None:
                self._channel.send({"ev": "child_ready", "child": name})
                return
            self._forget(name)
            self._channel.send({"ev": "child_gone", "child": name, "why": clean_text(why, 256)})

    # --- the device ---

    def _op_canary(self, message: Message) -> None:
        """A known computation gives its known answer in its known time, and the GPU's memory is back to what it was."""
        detail: Json = {}
        try:
            is_right = self._known_answer()
        except Exception as error:
            is_right, detail["error"] = False, error_json(error)["text"]
        detail["known_answer"] = is_right
        detail["memory_back"] = is_back = self._memory_is_back()
        is_steady = self._is_steady(detail) if is_right else True
        is_well = is_right and is_back and is_steady
        self._channel.send({"ev": "canary", "outcome": "pass" if is_well else "fail", "detail": detail})

    def _is_steady(self, detail: Json) -> bool:
        """The GPU is as fast as it was. What was timed of the references is forgotten when it is not."""
        if self._gpu is None:
            return True
        drift = self._gpu.drift()
        detail["ns"] = round((1 + drift) * self._gpu.known_long_ns)
        detail["kind"] = KIND
        detail["drift"] = drift = round(drift, 4)
        state = self._gpu.state()
        detail["disturbed"] = disturbance(state, state)
        if abs(drift) <= DRIFT:
            return True
        for reference in self._references.values():
            reference.baselines.clear()
            reference.graph_ns.clear()
        return False

    def _memory_is_back(self) -> bool:
        """The last child's memory is free again; the driver may take some seconds for a killed child's context."""
        if self._device.type != "cuda":
            return True
        torch.cuda.empty_cache()
        end = time.monotonic() + MEMORY_LIMIT_S
        while torch.cuda.mem_get_info(self._device)[0] < self._due_bytes - MEMORY_SLACK:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def _known_answer(self) -> bool:
        ramp = torch.arange(1, 4097, device=self._device, dtype=torch.float64)
        return float((ramp * ramp).sum()) == 4096 * 4097 * 8193 / 6


def _time(job: Job, gpu: Gpu) -> Report:
    """A plan's device time by events; without events, or without a graph, calls by the clock of the live way."""
    from oracle import clock, timing

    if not job.is_planned:
        return clock.time_job(job, gpu)
    try:
        return timing.DeviceTimer(job, gpu).run()
    except timing.Uncapturable as why:
        report = clock.time_job(job, gpu)
        report.detail["not_captured"] = clean_text(str(why), 1024)
        return report


def describe_device(device: torch.device, peaks: physics.Peaks | None) -> Json | None:
    if peaks is None:
        return None
    found = torch.cuda.get_device_properties(device)
    _, total = torch.cuda.mem_get_info(device)
    return {
        "name": found.name,
        "uuid": str(found.uuid),
        "driver": native.driver_version(),
        "memory_bytes": total,
        "capability": f"{found.major}.{found.minor}",
        "peaks": peaks.json(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="referee")
    parser.add_argument("--device", required=True)
    parser.add_argument("--cores", type=cores, default=(), help="to run on, as 13,14,15; none: any")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--elements", type=int, default=None, help="largest task judged in full without a GPU")
    parser.add_argument("--peaks", type=physics.parse_peaks, default={}, help="NAME=FIGURE,... instead of measuring")
    args = parser.parse_args()
    if args.cores:
        os.sched_setaffinity(0, args.cores)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ["CUDA_DEVICE_ORDER"] = prime.DEVICE_ORDER
    with tempfile.TemporaryDirectory(prefix="verifierd-referee-", ignore_cleanup_errors=True) as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        serve(args)
    return 0


def serve(args: argparse.Namespace) -> None:
    """Until verifierd is gone."""
    device = torch.device(args.device)
    peaks = None
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.init()
        native.gpu_init(device.index or 0)
        from oracle import fused

        fused.warm_up(device)
        peaks = physics.measure_peaks(device, args.peaks)
    else:
        torch.set_num_threads(1)
    versions = {"python": sys.version.split()[0], "torch": torch.__version__}
    ready: dict[str, Any] = {
        "ev": "ready",
        "device": args.device,
        "gpu": describe_device(device, peaks),
        "versions": versions,
    }
    Referee(Channel(args.fd), device, args.elements, peaks, args.peaks).run(ready)


if __name__ == "__main__":
    sys.exit(main())
