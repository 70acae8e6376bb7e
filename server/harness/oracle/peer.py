"""A run child as the referee sees it: its channel, its arena, its doorbell, and the right to freeze it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from shared import native, values
from shared.arena import Arena, Heap
from shared.values import TensorNote, ValueRefused
from shared.wire import (
    DOORBELL_OK,
    WORKER_DETAIL_MAX,
    Channel,
    ChannelClosed,
    Json,
    Message,
    ProtocolError,
    clean_text,
)

SPIN_NS: Final = 50_000_000
AWAKE_S: Final = 0.002
"""How long an answer is waited for without sleeping, which sees it sooner: most come within a millisecond."""
PROMPT_MS: Final = 60_000
"""How long a step that runs only trusted code in an honest child may take."""
RENEW_MS: Final = 2_000


@dataclass(frozen=True)
class Run:
    """How a model is called: in which dtype ("float64" and the like, "rounded"; None: its own), and whether TF32 is
    allowed."""

    dtype: str | None = None
    tf32: bool = False


class NotTheCandidate(Exception):
    """A step failed by our fault or the task's: reported as class `infra`."""


class TaskTooLong(NotTheCandidate):
    """A message about the task's inputs does not fit."""


class PeerFailed(Exception):
    """The child could not do a step; the failure is the child's. class_ is one of the verdict."""

    def __init__(self, class_: str, text: str, error: Json | None = None, *, is_gone: bool = False) -> None:
        super().__init__(text)
        self.class_ = class_
        self.error = error or {"type": class_, "text": clean_text(text), "line": None}
        self.is_gone = is_gone


_CLASS_OF_TYPE: Final = {
    "OutOfMemoryError": "oom",
    "MemoryError": "oom",
    "CompilationError": "compile",
    "UnsupportedLanguageConstruct": "compile",
    "CompileTimeAssertionFailure": "compile",
    "OutOfResources": "compile",
    "PTXASError": "compile",
    "OutOfBounds": "out_of_bounds",
    "SystemExit": "crash",
    "KeyboardInterrupt": "crash",
}
_OUT_OF_MEMORY: Final = re.compile("out of memory|can't allocate memory|cannot allocate memory", re.IGNORECASE)
_CLASS_OF_PHASE: Final = {"import": "import", "build": "import", "state": "import", "call": "launch"}


def failure(phase: str, error: Any) -> PeerFailed:
    """The class of an error that a child reported: it follows from the phase and the error's type."""
    if not isinstance(error, dict):
        error = {}
    name = clean_text(str(error.get("type", "Error")), 128)
    line = error.get("line")
    text = clean_text(str(error.get("text", "")))
    told = {
        "type": name,
        "text": text,
        "line": line if type(line) is int and 0 < line < 1 << 31 else None,
    }
    if name in ("RuntimeError", "AcceleratorError", "OSError", "StepError") and _OUT_OF_MEMORY.search(text):
        name = "OutOfMemoryError"
    class_ = _CLASS_OF_TYPE.get(name) or _CLASS_OF_PHASE.get(phase, "launch")
    # A kernel's fault leaves a context in which nothing can be called any more. A failed capture is not such a fault.
    return PeerFailed(class_, f"{name} in {phase}", told, is_gone=name == "AcceleratorError" and phase != "capture")


def is_over(pidfd: int, limit_s: float = 0.0) -> bool:
    """The process has ended, or does within the limit."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(limit_s * 1000))


@dataclass
class Peer:
    """One child. Everything that it sends is checked here; what breaks the protocol counts as a crash of the child."""

    name: str
    channel: Channel
    pidfd: int
    device: torch.device
    arena: Arena | None = None
    doorbell: native.Doorbell | None = None
    heap: Heap = field(default_factory=lambda: Heap(0, 0, 0))
    is_ready: bool = False
    is_frozen: bool = False
    armed: int = 0
    _read: tuple[bytes, int, list[Any]] | None = None
    """The last reply, the number of its calls, and their outputs: a graph answers each time with the same ones."""
    why_gone: str = "the process ended before it answered"

    def close(self) -> None:
        """Forget the child and free its arena; the process is ended by its zygote."""
        self.channel.close()
        if self.doorbell is not None:
            self.doorbell.close()
        if self.arena is not None:
            self.arena.close()
        self.doorbell = self.arena = self._read = None
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def end(self) -> None:
        """Kill the child and wait until it is gone, so that its GPU memory is free; at most ten seconds."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        is_over(self.pidfd, 10.0)

    def is_alive(self) -> bool:
        return not is_over(self.pidfd)

    # --- messages ---

    def ask(
        self,
        message: Json,
        expected: str,
        limit_ms: float,
        contents: dict[str, bytes] | None = None,
        *,
        fds: dict[str, int] | None = None,
        takes: tuple[str, ...] = (),
    ) -> Message:
        """Send, and wait for the report of this kind. PeerFailed for everything else that can happen.

        takes: the descriptors that the report may have, which are the caller's to take or close.
        """
        try:
            self.channel.send(message, fds, contents)
            return self._report(expected, limit_ms, takes)
        except ChannelClosed:
            raise self.gone() from None
        except ProtocolError as error:
            raise PeerFailed("crash", f"the process broke the protocol: {error}", is_gone=True) from None
        except ValueError as error:  # raised by send(): the long part of a message comes from the task
            raise TaskTooLong(f"what the task says of its inputs is too long: {error}") from None

    def _report(self, expected: str, limit_ms: float, takes: tuple[str, ...]) -> Message:
        end = time.monotonic() + limit_ms / 1000
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        poll.register(self.pidfd, select.POLLIN)
        awake = time.monotonic() + (AWAKE_S if self.device.type == "cuda" else 0.0)
        while True:
            left_ms = max(0.0, end - time.monotonic()) * 1000
            ready = [fd for fd, _ in poll.poll(0 if time.monotonic() < awake else left_ms)]
            if self.channel.fileno() in ready:
                return self._checked(self.channel.receive(0), expected, takes)
            if self.pidfd in ready:
                raise self.gone()
            if time.monotonic() >= end:
                raise PeerFailed("timeout", f"no answer within {limit_ms / 1000:g} s", is_gone=True)

    def _checked(self, message: Message, expected: str, takes: tuple[str, ...]) -> Message:
        """The report. Unexpected descriptors are closed: they would stay open for as long as we run."""
        try:
            event = message.text("ev")
            if event == "failed":
                raise failure(message.text("phase"), message.body.get("error"))
            if event != expected:
                raise ProtocolError(f"{event[:40]!r} where {expected!r} was due")
            if not set(message.fds) <= set(takes):
                raise ProtocolError(f"{expected!r} came with descriptors")
        except BaseException:
            message.close()
            raise
        return message

    def gone(self) -> PeerFailed:
        """The exception to raise if the process has ended."""
        return PeerFailed("crash", self.why_gone, is_gone=True)

    # --- memory ---

    def give_arena(self, size: int, heap: Heap) -> None:
        """Make an arena and hand it over; once for each child."""
        try:
            self.arena = Arena.make(self.device, size)
            fd = native.Doorbell.create()
        except native.NativeError as error:
            raise NotTheCandidate(f"no arena of {size} bytes for {self.name}: {error}") from None
        self.heap = heap
        self.doorbell = native.Doorbell(fd)
        message = {"op": "arena", "size": self.arena.size, "heap": vars(heap)}
        try:
            self.ask(message, "mapped", PROMPT_MS, fds={"arena": self.arena.fd, "doorbell": fd})
        finally:
            os.close(fd)

    # --- modules ---

    def load(self, source: bytes, entry: str, role: str, cache: str | None, limit_ms: float) -> None:
        message = {"op": "load", "entry": entry, "role": role, "cache": cache}
        self.ask(message, "loaded", limit_ms, {"source": source})

    def load_plan(self, images: bytes, source: bytes, foreign: str, limit_ms: float) -> None:
        """A plan with its kernels' images (executor/archive.py) in the place of a module. source: the kernels' text.

        foreign: what kernels that are not the candidate's may do, as in a policy.
        """
        message = {"op": "load_plan", "foreign": foreign}
        self.ask(message, "loaded", limit_ms, {"images": images, "source": source})

    def renew(self) -> str | None:
        """After a plan: everything that it made is gone, the arena too, and another plan may be given. Else why not,
        and the process is to be ended."""
        if self.armed:
            return "bells are due"
        try:
            self.ask({"op": "renew"}, "renewed", RENEW_MS)
        except PeerFailed as failure:
            return str(failure.error["text"])
        if self.doorbell is not None:
            self.doorbell.close()
        if self.arena is not None:
            self.arena.close()
        self.doorbell = self.arena = self._read = None
        return None

    def build(
        self,
        model: str,
        seed: int,
        *,
        init: Json | None,
        overrides: Json,
        tell_state: bool,
        limit_ms: float,
        vary: bool = False,
        compiles: bool = False,
        dtype: str | None = None,
    ) -> list[Json]:
        """Construct a model; the state's notes where asked for (they are only asked of a reference).

        vary: parameters that the constructor makes constant get other values (weights.py). compiles: torch.compile
        gets it, and compiles when inputs are bound. dtype: of its floating-point parameters; None: as they are.
        """
        message = {
            "op": "build",
            "model": model,
            "seed": seed,
            "init": init,
            "overrides": overrides,
            "tell_state": tell_state,
            "vary": vary,
            "dtype": dtype,
        }
        if compiles:
            message["compile"] = True
        report = self.ask(message, "built", limit_ms, takes=("state",))
        try:
            return _list_of(report, "state") if tell_state else []
        except ProtocolError as error:
            raise PeerFailed("crash", f"the process broke the protocol: {error}", is_gone=True) from None
        finally:
            report.close()

    def copy_state(self, model: str, state: list[Json], limit_ms: float) -> None:
        self.ask({"op": "state", "model": model}, "copied", limit_ms, {"state": json.dumps(state).encode()})

    def make_inputs(
        self, seeds: list[int], overrides: Json, offset: int, stride: int, *, dtype: str | None = None
    ) -> Any:
        """A reference's get_inputs() into its arena, for each seed, stride bytes apart: the tree of the first one.

        Its tensors have offsets; the others are alike.
        """
        message = {
            "op": "inputs",
            "seed": seeds[0],
            "more": seeds[1:],
            "overrides": overrides,
            "offset": offset,
            "stride": stride,
            "dtype": dtype,
        }
        return self.ask(message, "inputs", PROMPT_MS).body.get("inputs")

    def bind(
        self,
        set_: int,
        model: str,
        inputs: Any,
        *,
        sets: int = 1,
        stride: int = 0,
        limit_ms: float = PROMPT_MS,
        tf32: bool = False,
        runs: Sequence[Run] | None = None,
        places: Sequence[int] | None = None,
        seed: int | None = None,
        empty: str | None = None,
        pause_ns: int | None = None,
        training: bool | None = None,
        how: str | None = None,
        hows: Sequence[str] | None = None,
        bells: int = 0,
    ) -> None:
        """Binds a call of the model to each of `sets` sets from set_ on, whose inputs lie stride bytes further each.

        runs: of each set its own dtype and tf32.
        places: how many strides behind these inputs each set's lie; None: as many as it is behind set_.
        empty: "kernel", which has the GPU for pause_ns, or "nothing"; None: a call of the model.
        training: the mode that the model is put into before each call; None: it stays as it is.
        how: of a plan: "silent", none of the candidate's kernels is launched; on a GPU "guarded", with guard zones, or
        "by steps", which steps_ns() asks about.
        hows: the same of each set, "" for None.
        bells: the child is armed for as many, without events.
        """
        message = {
            "op": "bind",
            "set": set_,
            "sets": sets,
            "stride": stride,
            "model": model,
            "inputs": inputs,
            "tf32": tf32,
            "seed": seed,
            "empty": empty,
            "pause_ns": pause_ns,
            "training": training,
            "how": how,
            "bells": bells,
        }
        if runs is not None:
            message["runs"] = [{"dtype": run.dtype, "tf32": run.tf32} for run in runs]
        if places is not None:
            message["places"] = list(places)
        if hows is not None:
            message["hows"] = list(hows)
        self.ask(message, "bound", limit_ms)
        self.armed += bells

    def capture(self, set_: int, calls: int, limit_ms: float, *, first: int = 0, seeded: bool = False) -> None:
        """Bind to this set all that calls of sets from `first` on queue: one call queues it, and answers with a list.

        seeded: with the numbers that their seed gives, each time.
        """
        message = {"op": "capture", "set": set_, "calls": calls, "first": first, "seeded": seeded}
        self.ask(message, "captured", limit_ms)

    def steps_ns(self, model: str) -> tuple[list[float], float]:
        """Nanoseconds of each of the first steps of the last call by steps, and of all of its steps."""
        told = self.ask({"op": "steps", "model": model}, "steps", PROMPT_MS).body
        found, all_ns = told.get("ns"), told.get("all_ns")
        if isinstance(found, list) and isinstance(all_ns, int) and all(type(ns) is int for ns in found):
            return [float(ns) for ns in found], float(all_ns)
        raise PeerFailed("crash", "the process broke the protocol: its steps' times are no numbers", is_gone=True)

    # --- calls ---

    def arm(self, bells: int, *, events: bool = False, wash: bool = False, gate_ns: int = 0, repeats: int = 1) -> None:
        """Have the child answer this many bells from now on; it waits for the first when this returns.

        wash: with a cold L2 cache. gate_ns: the GPU waits, so long at most, until all of a bell is queued. Both go
        before the first event, and need events. repeats: so often each bell's calls are made; the last outputs count.
        """
        message = {
            "op": "arm",
            "bells": bells,
            "events": events,
            "wash": wash,
            "gate_ns": gate_ns,
            "repeats": repeats,
        }
        self.ask(message, "armed", PROMPT_MS)
        self.armed += bells

    def call(self, set_: int, limit_ms: float) -> Any:
        """One call, its outputs as views of the arena. PeerFailed when it raised, died, lied or took too long."""
        return self.call_sets(set_, 1, limit_ms)[0]

    def call_sets(self, first: int, calls: int, limit_ms: float) -> list[Any]:
        """The same of as many sets, in one bell: none of their outputs, where one call raises."""
        assert self.doorbell is not None
        if self.armed == 0:
            self.arm(1)
        self.armed -= 1
        bell = self.doorbell.ring(first, calls, 256)
        self.await_answer(bell, limit_ms)
        return self.outputs_of(calls)

    def await_answer(self, bell: int, limit_ms: float) -> None:
        assert self.doorbell is not None
        spin_ns = SPIN_NS if self.device.type == "cuda" else 0  # the child computes on the cores that this would take
        try:
            self.doorbell.await_answer(bell, self.pidfd, spin_ns, int(limit_ms * 1e6))
        except native.ChildDiedError:
            raise self.gone() from None
        except native.BellTimeoutError:
            raise PeerFailed("timeout", f"the call did not return within {limit_ms / 1000:g} s", is_gone=True) from None

    def outputs_of(self, calls: int) -> list[Any]:
        """The reply in the page for each call of a bell, every tensor checked against the arena's bounds."""
        assert self.doorbell is not None
        try:
            data, _ = self.doorbell.read_reply()
            is_ok = self.doorbell.claims().status == DOORBELL_OK
            if is_ok and self._read is not None and self._read[:2] == (data, calls):
                return self._read[2]
            reply = json.loads(data)
            if not isinstance(reply, dict):
                raise ValueError("no object")
            if not is_ok or "error" in reply:
                raise failure("call", reply.get("error"))
            told = [reply.get("outputs")] if calls == 1 else reply.get("calls")
            if not isinstance(told, list) or len(told) != calls:
                raise ValueRefused(f"no outputs of {calls} calls")
            found = [values.decode(outputs, self._output, "forward()") for outputs in told]
        except ValueRefused as error:
            raise PeerFailed("crash", f"the process told a false output: {error}", is_gone=True) from None
        except (ValueError, AttributeError, RecursionError, native.NativeError):
            raise PeerFailed("crash", "the process wrote a reply that is none", is_gone=True) from None
        self._read = data, calls, found
        return found

    def _output(self, note: TensorNote) -> torch.Tensor:
        assert self.arena is not None
        return values.marked(self.arena.view(note), note.marks)

    def is_in_heap(self, tensor: torch.Tensor) -> bool:
        assert self.arena is not None
        start = int(tensor.data_ptr()) - self.arena.pointer
        end = start + TensorNote.of(tensor).span_bytes
        return self.heap.offset <= start and end <= self.heap.offset + self.heap.size

    # --- freezing ---

    def freeze(self) -> None:
        """Stop the child and its descendants: the pidfd is that of the init above the process that computes.

        One that cannot be stopped (a process waits in vfork, say) is ended, and fails at the next request.
        """
        if self.is_frozen or not self.is_alive():
            return
        try:
            native.stop(self.pidfd)
        except native.ChildDiedError:
            pass
        except native.NativeError as error:
            self.why_gone = f"the process could not be stopped, and was ended: {error.strerror}"
            self.end()
        self.is_frozen = True

    def thaw(self) -> None:
        if self.is_frozen and self.is_alive():
            with contextlib.suppress(native.ChildDiedError):
                native.cont(self.pidfd)
        self.is_frozen = False


def _list_of(report: Message, name: str) -> list[Json]:
    try:
        found = json.loads(report.take(name, WORKER_DETAIL_MAX))
    except (ValueError, RecursionError):
        raise ProtocolError(f"{name} is no JSON") from None
    if not isinstance(found, list):
        raise ProtocolError(f"{name} is no list")
    return found
