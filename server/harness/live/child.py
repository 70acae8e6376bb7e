"""A run child: holds one module, builds it, and calls it when the doorbell rings.

The same program serves a reference and a candidate; what differs is whom the referee believes. Everything in
this process may be the candidate's after `load`: the messages and replies made here are claims. Order of a
life: ready, (describe), arena, load, build, state, bind, arm, bells. proto/worker.md has the messages.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import os
import secrets
import shutil
import time
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from executor.steps import StepError
from shared import loading, native, values
from shared.arena import Arena, Heap, align
from shared.draws import Draws
from shared.values import TensorNote
from shared.wire import (
    CANDIDATE_FILE,
    DOORBELL_OK,
    DOORBELL_RAISED,
    DOORBELL_REPLY_MAX,
    SOURCE_MAX,
    WORKER_DETAIL_MAX,
    Channel,
    ChannelClosed,
    Json,
    Message,
    clean_text,
    error_json,
)

from live import cases, weights

SPIN_NS: Final = 200_000_000
"""How long a child on a GPU spins for its bell before it sleeps: longer than the referee needs between two bells."""
AWAKE_S: Final = 0.002
"""How long it waits for a message without sleeping: a stage asks for many things, one soon after another."""
SPIN_GATED_NS: Final = 1_000_000
"""The same where the GPU waits until all of a bell is queued, so that it does not matter how soon that begins."""
STEPS_TOLD: Final = 100
"""Of a plan, the largest number that a verdict lists."""


def failure_json(cause: BaseException, filename: str) -> Json:
    """ERROR of proto/worker.md."""
    line = getattr(cause, "line", None)  # of a plan's step
    report = error_json(cause, filename, line if type(line) is int else None)
    if isinstance(cause, torch.AcceleratorError):  # the rest is advice for developers of torch
        report["text"] = str(cause).partition("\n")[0]
    elif isinstance(cause, StepError):  # the traceback would be the executor's
        report["text"] = clean_text(cause.what)
    return report


class StepFailed(Exception):
    """A step of this child failed: reported as {"ev": "failed"}, the child goes on."""

    def __init__(self, phase: str, cause: BaseException, filename: str) -> None:
        super().__init__(phase)
        self.phase = phase
        self.report = failure_json(cause, filename)


@dataclass
class Binding:
    """The call that a bell for one set makes."""

    call: Callable[[], Any]
    tf32: bool
    seed: int | None
    is_empty: bool = False
    """It computes nothing: the place of its outputs is not reported."""


class Placer:
    """Puts tensors where the referee can read them: those in the arena's pool stay, others are copied."""

    def __init__(self, arena: Arena, heap: Heap) -> None:
        self._arena = arena
        self._start = heap.offset + heap.pool
        self._next = self._start
        self._end = heap.offset + heap.size
        self._copies: dict[tuple[Any, ...], TensorNote] = {}
        self.copied = False  # since restart()

    def keep(self) -> None:
        """The tensors placed so far (a model's state) stay: later calls place after them."""
        self._start = self._next

    def restart(self) -> None:
        self._next = self._start
        self._copies.clear()
        self.copied = False

    def place(self, tensor: torch.Tensor) -> TensorNote:
        """The note of a tensor that lies in the arena. MemoryError when it does not fit.

        One that is placed again before restart() has one copy: calls that answer in one buffer are seen to do so.
        """
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
        if key not in self._copies:
            self._copies[key] = self._placed(tensor)
        return self._copies[key]

    def _placed(self, tensor: torch.Tensor) -> TensorNote:
        marks = values.marks_of(tensor)
        if tensor.device.type != self._arena.device.type:
            marks |= {values.ON_HOST}
        tensor = tensor.detach().resolve_conj().resolve_neg()
        offset = self._arena.find(tensor) if tensor.device.type == self._arena.device.type else None
        if offset is not None:  # an input, or a part of one, too: the referee shall see it as what it is
            return replace(TensorNote.of(tensor, offset), marks=marks)
        self.copied = True
        tensor = values.without_gaps(tensor)
        note = replace(TensorNote.of(tensor, self._next), marks=marks)
        if self._next + note.span_bytes > self._end:
            raise MemoryError(f"a tensor of {note.span_bytes} bytes does not fit into the arena")
        self._next = align(self._next + note.span_bytes)
        self._arena.view(note).copy_(tensor)
        return note


def _copy_state(model: Any, notes: dict[str, TensorNote], arena: Arena) -> None:
    own = model.state_dict() if isinstance(model, torch.nn.Module) else {}
    with torch.no_grad():
        for name, note in notes.items():
            mine = own.get(name)
            if isinstance(mine, torch.Tensor) and tuple(mine.shape) == note.shape and mine.dtype == note.dtype:
                theirs = arena.view(note)
                if not torch.equal(mine, theirs):
                    mine.copy_(theirs)


class Child:
    def __init__(self, channel: Channel, device: torch.device) -> None:
        self._channel = channel
        self._device = device
        self._stack = ExitStack()  # the pool, while it is in use
        self._pool: Any = None
        self._arena: Arena | None = None
        self._placer: Placer | None = None
        self._draws: Draws | None = None
        self._doorbell: native.Doorbell | None = None
        self._seen = 0
        self._source = ""
        self._filename = cases.REFERENCE_FILE
        self._module: types.ModuleType | None = None
        self._case_modules: dict[tuple[tuple[str, Any], ...], types.ModuleType] = {}  # by their overrides
        self._plan: Any = None  # runs plans, if a plan replaces the module
        self._is_spent = False  # no other plan may be run here
        self._entry = ""
        self._models: dict[str, Any] = {}
        self._compiled: set[str] = set()  # names of models compiled by torch.compile
        self._bindings: dict[int, Binding] = {}
        self._kept: Any = None
        self._told: tuple[Any, ...] = ()
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        self._wash: torch.Tensor | None = None  # overwrites the L2 cache before a timed bell
        self._repeats = 1  # how often a bell's calls are made
        self._gate_ns = 0  # the longest wait of the GPU, before a timed bell, until all of it is queued
        self._ops: dict[str, Callable[[Message], None]] = {
            "arena": self._op_arena,
            "describe": self._op_describe,
            "load": self._op_load,
            "load_plan": self._op_load_plan,
            "renew": self._op_renew,
            "build": self._op_build,
            "state": self._op_state,
            "inputs": self._op_inputs,
            "bind": self._op_bind,
            "capture": self._op_capture,
            "steps": self._op_steps,
            "arm": self._op_arm,
        }

    def run(self) -> None:
        """Serve until `quit` or until the referee is gone."""
        self._channel.send({"ev": "ready"})
        while True:
            try:
                message = self._channel.receive(awake_s=AWAKE_S if self._device.type == "cuda" else 0.0)
            except ChannelClosed:
                return
            op = message.text("op")
            if op == "quit":
                return
            try:
                self._ops[op](message)
            except StepFailed as failure:
                self._channel.send({"ev": "failed", "phase": failure.phase, "error": failure.report})
            finally:
                message.close()

    @contextmanager
    def _step(self, phase: str) -> Iterator[None]:
        """Around a step in which foreign code may raise anything: StepFailed."""
        try:
            yield
        except BaseException as error:
            raise StepFailed(phase, error, self._filename) from None

    # --- memory ---

    def _op_arena(self, message: Message) -> None:
        self._arena = Arena(self._device, message.take_fd("arena"), message.integer("size", 1, 1 << 48), is_import=True)
        heap = message.mapping("heap")
        self._draws = Draws(self._arena)
        self._placer = Placer(self._arena, Heap(heap["offset"], heap["size"], heap["pool"]))
        fd = message.take_fd("doorbell")
        self._doorbell = native.Doorbell(fd)
        os.close(fd)
        if self._device.type == "cuda":
            native.heap_set(self._arena.pointer + heap["offset"], heap["pool"])
            allocator = torch.cuda.memory.CUDAPluggableAllocator(
                str(native.LIBRARY), "harness_arena_malloc", "harness_arena_free"
            )
            self._pool = torch.cuda.MemPool(allocator.allocator())
            self._stack.enter_context(torch.cuda.use_mem_pool(self._pool))
        self._channel.send({"ev": "mapped"})

    def _require(self) -> tuple[Arena, Placer, native.Doorbell]:
        assert self._arena is not None and self._placer is not None and self._doorbell is not None
        return self._arena, self._placer, self._doorbell

    # --- the module ---

    def _op_describe(self, message: Message) -> None:
        source = message.take("source", SOURCE_MAX).decode("utf-8-sig", "replace")
        with self._step("describe"):
            spec = cases.describe(
                source,
                message.optional_text("entry"),
                self._device,
                dynamic_shapes=message.boolean("dynamic_shapes"),
                declared=message.body.get("cases"),
                element_limit=message.body.get("element_limit"),
                placed=torch.cuda.empty_cache if self._device.type == "cuda" else lambda: None,
            )
        if self._device.type == "cuda":  # memory of its own models is not free for its arena
            gc.collect()
            torch.cuda.empty_cache()
        self._tell("described", "spec", spec)

    def _op_load(self, message: Message) -> None:
        data = message.take("source", SOURCE_MAX)
        self._entry = message.text("entry")
        is_reference = message.text("role") == "reference"
        self._filename = cases.REFERENCE_FILE if is_reference else CANDIDATE_FILE
        cache = message.optional_text("cache")
        if cache is not None:
            _copy_cache(Path(cache))
        self._source = data.decode("utf-8-sig", "replace")
        with self._step("import"):
            with self._judged():
                if is_reference:
                    self._module = cases.load_module(self._source)
                else:
                    self._module = loading.load_candidate(data, Path(os.environ["TMPDIR"]))
            if not callable(getattr(self._module, self._entry, None)):
                raise ImportError(f"the source defines no class {self._entry!r}")
        self._channel.send({"ev": "loaded"})

    def _op_load_plan(self, message: Message) -> None:
        """A plan instead of a module: from here on this process runs no code of the candidate's but its kernels."""
        from executor import archive, runner

        self._filename = CANDIDATE_FILE
        with self._step("import"):
            images, source = message.take("images", archive.BYTES_MAX), message.take("source", SOURCE_MAX)
            self._plan = runner.Runner(images, source, self._device, message.text("foreign"))
        self._channel.send({"ev": "loaded"})
        self._plan.preload()  # while the referee draws inputs

    def _op_renew(self, message: Message) -> None:
        """A plan was run on a GPU, and another one may follow: nothing of the first is left, in memory or on the chip.

        Where that is not sure the step fails, and the process is of no more use.
        """
        with self._step("renew"):
            assert self._plan is not None and self._arena is not None and self._doorbell is not None
            if self._is_spent:
                raise RuntimeError("a graph could not be captured")
            self._bindings.clear()
            self._models.clear()
            self._told, self._kept, self._draws, self._placer = (), None, None, None
            is_clean, self._plan = self._plan.close(), None
            self._stack.close()
            self._pool = None
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            module: Any = torch._C
            module._host_emptyCache()  # such as `to("cpu", non_blocking=True)` makes: it would count as the next plan's
            if not is_clean:
                raise RuntimeError("a kernel may have left something in the context's own memory")
            native.heap_set(0, 0)  # nothing of the old one is in use
            native.scrub()
            self._arena.close()
            self._doorbell.close()
            self._arena = self._doorbell = None
            self._seen = 0
        self._channel.send({"ev": "renewed"})

    def _judged(self) -> AbstractContextManager[Any]:
        """Around code that is not ours: without a GPU it believes in one."""
        if self._device.type == "cuda":
            return nullcontext()
        from live import cpu_device

        return cpu_device.torch_function_mode()

    def _case_module(self, overrides: Json) -> types.ModuleType:
        assert self._module is not None
        if not overrides:
            return self._module
        key = tuple(overrides.items())
        if key not in self._case_modules:
            self._case_modules[key] = cases.load_module(self._source, overrides)
        return self._case_modules[key]

    def _op_build(self, message: Message) -> None:
        _, placer, _ = self._require()
        placer.restart()
        name = message.text("model")
        with self._step("build"):
            model = self._construct(message)
            if message.body.get("compile"):
                from live import compiled

                model = compiled.compile_model(model)
                self._compiled.add(name)
            self._models[name] = model
            state = []
            if isinstance(model, torch.nn.Module) and message.boolean("tell_state"):
                for key, item in model.state_dict().items():
                    if isinstance(item, torch.Tensor):
                        state.append({"name": key, **placer.place(item).json()})
                placer.keep()
        self._tell("built", "state", state)

    def _tell(self, event: str, name: str, content: Any) -> None:
        """A report whose content may be larger than a message."""
        self._channel.send({"ev": event}, contents={name: json.dumps(content).encode()})

    def _construct(self, message: Message) -> Any:
        is_varied = bool(message.body.get("vary"))
        if self._plan is not None:
            case, seed = message.text("model").rpartition(".")[0], message.integer("seed", 0, 1 << 62)
            return self._plan.model(case, seed, weights.vary_made if is_varied else None)
        module, init = self._module, message.body.get("init")
        if init is None:
            module = self._case_module(message.mapping("overrides"))
            args, kwargs = cases.init_arguments(module)
        else:
            arena = self._require()[0]
            args = values.decode(init["args"], arena.view)
            kwargs = values.decode(init["kwargs"], arena.view)
        seed = message.integer("seed", 0, 1 << 62)
        _seed(seed)
        with self._device, self._judged(), weights.varied(statistics=init is None) if is_varied else nullcontext():
            model = getattr(module, self._entry)(*args, **kwargs)
        if is_varied:
            weights.vary_rest(model)
        if not isinstance(model, torch.nn.Module):
            return model
        return cases.cast_model(model.to(self._device), message.optional_text("dtype"))

    def _op_state(self, message: Message) -> None:
        """The reference's weights, where name, shape and dtype match and values differ."""
        arena, _, _ = self._require()
        state = json.loads(message.take("state", WORKER_DETAIL_MAX))
        model = self._models[message.text("model")]
        with self._step("state"):
            notes = {item["name"]: TensorNote.parse(item["tensor"], item["name"]) for item in state}
            if self._plan is not None:
                model.load({name: arena.view(note) for name, note in notes.items()})
            else:
                _copy_state(model, notes, arena)
            self._synchronize()
        self._channel.send({"ev": "copied"})

    def _op_inputs(self, message: Message) -> None:
        offset = message.integer("offset", 0, self._require()[0].size)
        seeds = [message.integer("seed", 0, 1 << 62), *(message.body.get("more") or [])]
        stride = message.integer("stride", 0, 1 << 48)
        overrides, dtype = message.mapping("overrides"), message.optional_text("dtype")
        is_own = not overrides and dtype is None
        draws = self._draws
        assert draws is not None

        def draw(seed: int) -> list[Any]:
            _seed(seed)
            with self._judged():
                return list(cases.cast_inputs(list(module.get_inputs()), dtype))

        with self._step("inputs"):
            module = self._case_module(overrides)
            with self._outside_pool(), self._device, torch.no_grad():
                tree, end = draws.put([partial(draw, seed) for seed in seeds], offset, stride, is_own=is_own)
            self._synchronize()
        self._channel.send({"ev": "inputs", "inputs": tree, "end": end})

    @contextmanager
    def _outside_pool(self) -> Iterator[None]:
        """Allocate elsewhere: inputs on their way into a set would fill the pool, and outputs be made behind them."""
        if self._pool is None:
            yield
            return
        self._stack.close()
        try:
            yield
        finally:
            self._stack.enter_context(torch.cuda.use_mem_pool(self._pool))

    # --- calls ---

    def _op_bind(self, message: Message) -> None:
        first = message.integer("set", 0, 255)
        sets = message.integer("sets", 1, 256 - first)
        stride = message.integer("stride", 0, 1 << 48)
        empty, seed = message.optional_text("empty"), message.body.get("seed")
        runs = message.body.get("runs") or [{"dtype": None, "tf32": message.boolean("tf32")}] * sets
        places = message.body.get("places") or range(sets)
        hows = message.body.get("hows") or [message.body.get("how")] * sets
        wide: list[Any] = []
        with self._step("bind"):
            for index, run, place, how in zip(range(sets), runs, places, hows, strict=True):
                if empty is not None:
                    call = self._empty_call(empty, message.body.get("pause_ns"))
                else:
                    call = self._model_call(message, place * stride, run["dtype"], wide, how or None, tf32=run["tf32"])
                self._bindings[first + index] = Binding(call, run["tf32"], seed, empty is not None)
        bells = message.integer("bells", 0, 100_000)
        self._repeats, self._kept = 1, None
        for model in self._models.values() if self._plan is not None and self._device.type == "cuda" else ():
            model.let_go()
        self._channel.send({"ev": "bound"})
        self._answer_bells(bells, is_timed=False)

    def _planned_call(self, model: Any, args: list[Any], how: str | None) -> Callable[[], Any]:
        """A call of a plan; before the first one of a model its state is made and its configurations are tried."""
        with self._outside_pool():
            model.warm_up(args)
        self._synchronize()
        calls = {"silent": "call_silently", "guarded": "call_guarded", "by steps": "call_by_steps"}
        return partial(model if how is None else getattr(model, calls[how]), *args)

    def _model_call(
        self, message: Message, shift: int, dtype: str | None, wide: list[Any], how: str | None, *, tf32: bool
    ) -> Callable[[], Any]:
        """A call of the model of `bind`, on inputs `shift` bytes after those that it names.

        wide: gets the model in fp64, for all calls of this message where it keeps nothing from one to the next.
        """
        arena, _, _ = self._require()

        def view(note: TensorNote) -> torch.Tensor:
            return arena.view(note if note.offset is None else note.moved(note.offset + shift))

        args = values.decode(message.body["inputs"], view)
        model = self._models[message.text("model")]
        if dtype is not None:
            model = wide[0] if wide else _in_fp64(model)
            if not wide and isinstance(model, torch.nn.Module) and next(model.buffers(), None) is None:
                wide.append(model)
            args = cases.cast_untied(args, dtype) if dtype in cases.UNTIED else cases.cast_inputs(args, "float64")
        if message.body.get("training") is not None and isinstance(model, torch.nn.Module):
            model.train(message.boolean("training"))
        if self._plan is not None:
            return self._planned_call(model, args, how)
        call = _Call(model, args)
        if message.text("model") in self._compiled:
            self._compile(call, tf32=tf32)
        return partial(_rounding, call) if dtype == "rounded" else call

    def _compile(self, call: _Call, *, tf32: bool) -> None:
        """Off the clock, on copies of the inputs, and else under what a bell's call will find."""
        from live import compiled

        with self._outside_pool():
            copies = compiled.copies(call.inputs)
        _set_tf32(tf32)
        with self._judged():
            compiled.warm_up(_Call(call.model, copies))
        self._synchronize()

    def _empty_call(self, kind: str, pause_ns: int | None) -> Callable[[], Any]:
        """Nothing, an empty kernel, or one that has the GPU for so long."""
        one = torch.zeros(1, device=self._device)
        if kind == "nothing":
            return lambda: one
        if pause_ns is None:
            return one.zero_
        wait = _spin
        if self._device.type == "cuda":
            native.pause_setup()
            wait = native.pause
        wait(1)  # a kernel's first launch takes longer

        def call() -> Any:
            wait(pause_ns)
            return one

        return call

    def _op_capture(self, message: Message) -> None:
        """The calls of some sets, bound to another set as one: a CUDA graph, or in turn where there is no GPU."""
        first = message.integer("first", 0, 255)
        bindings = [self._bindings[first + index] for index in range(message.integer("calls", 1, 128))]
        self._kept = None
        with self._step("capture"):
            call = self._graph(bindings) if self._device.type == "cuda" else _in_turn(bindings)
        seed = bindings[0].seed if message.boolean("seeded") else None
        self._bindings[message.integer("set", 0, 255)] = Binding(call, bindings[0].tf32, seed, bindings[0].is_empty)
        self._channel.send({"ev": "captured"})

    def _graph(self, bindings: list[Binding]) -> Callable[[], Any]:
        """The work of these calls, recorded once and queued again by each call; outputs lie in the arena's pool."""
        graph = torch.cuda.CUDAGraph()
        _set_tf32(bindings[0].tf32)
        # A pool that allocations are routed to already cannot be a graph's.
        with self._outside_pool(), torch.no_grad():
            try:
                with torch.cuda.graph(graph, pool=self._pool.id, capture_error_mode="thread_local"):
                    outputs = _in_turn(bindings)()
            except BaseException:
                self._is_spent = True  # torch may be left in the middle of a capture
                torch.cuda.set_stream(torch.cuda.default_stream())
                _leave_capture(self._device, self._pool.id)
                raise
            self._synchronize()

        def replay() -> Any:
            graph.replay()
            return outputs

        return replay

    def _op_steps(self, message: Message) -> None:
        """The time of each step of the last call of a plan that was made by steps."""
        model = self._models[message.text("model")]
        took = model.steps_ns() if self._plan is not None and self._device.type == "cuda" else []
        self._channel.send({"ev": "steps", "ns": took[:STEPS_TOLD], "all_ns": sum(took)})

    def _op_arm(self, message: Message) -> None:
        """Answer this many bells. No message is read meanwhile."""
        is_timed = message.boolean("events") and self._device.type == "cuda"
        if is_timed and self._events is None:
            self._events = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        self._repeats = message.integer("repeats", 1, 100_000)
        if is_timed:
            self._prepare_wash(message)
        bells = message.integer("bells", 1, 100_000)
        self._kept = None  # to free n outputs takes its time: not on the clock
        self._channel.send({"ev": "armed"})
        self._answer_bells(bells, is_timed=is_timed)

    def _answer_bells(self, bells: int, *, is_timed: bool) -> None:
        doorbell = self._require()[2]
        spin_ns = SPIN_GATED_NS if is_timed and self._gate_ns else SPIN_NS if self._device.type == "cuda" else 0
        for _ in range(bells):
            bell = doorbell.wait(self._seen, spin_ns)
            self._seen = bell.number
            try:
                events_ns, host_ns = self._answer(doorbell, bell, is_timed)
                status = DOORBELL_OK
            except BaseException as error:
                events_ns, host_ns, status = 0, 0, DOORBELL_RAISED
                self._told = ()
                self._write_error(doorbell, error)
            doorbell.answer(bell.number, status, events_ns, host_ns)

    def _prepare_wash(self, message: Message) -> None:
        self._gate_ns = message.integer("gate_ns", 0, 1_000_000_000)
        if self._gate_ns:
            native.gate_setup()
        if not message.boolean("wash"):
            self._wash = None
        elif self._wash is None:
            with self._outside_pool():
                size = 2 * torch.cuda.get_device_properties(self._device).L2_cache_size
                self._wash = torch.empty(size, dtype=torch.uint8, device=self._device)

    def _go_cold(self) -> None:
        """Queue what has the GPU wait while a timed bell is queued, and leaves it a cold cache."""
        if self._gate_ns:
            native.gate(self._gate_ns)
        if self._wash is not None:
            self._wash.zero_()

    def _answer(self, doorbell: native.Doorbell, bell: native.Bell, is_timed: bool) -> tuple[int, int]:
        """Make the calls, keep all their outputs, reply: nanoseconds by events (0: none) and by the host's clock."""
        self._kept = None
        bindings = [self._bindings[(bell.set + index) % max(1, bell.sets)] for index in range(bell.calls)]
        kept: list[Any] = []
        with torch.no_grad():
            if is_timed and self._events is not None:
                self._go_cold()
                self._events[0].record()
            started_ns = time.monotonic_ns()
            for binding in bindings * self._repeats:
                _set_tf32(binding.tf32)
                if binding.seed is not None:
                    _seed(binding.seed)
                with self._judged():
                    kept.append(binding.call())
            host_ns = time.monotonic_ns() - started_ns
            if is_timed and self._events is not None:
                self._events[1].record()
                if self._gate_ns:
                    native.gate_open()
        kept = kept[-len(bindings) :]
        self._kept = kept
        self._synchronize()
        self._reply(doorbell, kept, is_empty=bindings[0].is_empty)
        if not is_timed or self._events is None:
            return 0, host_ns
        return int(self._events[0].elapsed_time(self._events[1]) * 1e6), host_ns

    def _reply(self, doorbell: native.Doorbell, kept: list[Any], *, is_empty: bool) -> None:
        """Report the places of the outputs of each call; empty ones, and unchanged places, are not reported."""
        _, placer, _ = self._require()
        told = tuple(map(_identity, kept)) if self._device.type == "cuda" else ()
        told = told if all(told) else ()
        if is_empty or (told and told == self._told):
            return
        placer.restart()
        outputs = [values.encode(value, placer.place, "forward()") for value in kept]
        reply = json.dumps({"outputs": outputs[0]} if len(outputs) == 1 else {"calls": outputs}).encode()
        if len(reply) > DOORBELL_REPLY_MAX:
            raise ValueError(f"the outputs' description of {len(reply)} bytes is over {DOORBELL_REPLY_MAX}")
        self._synchronize()
        doorbell.write_reply(reply)
        self._told = () if placer.copied else told

    def _write_error(self, doorbell: native.Doorbell, error: BaseException) -> None:
        report = {"error": failure_json(error, self._filename), "phase": "call"}
        doorbell.write_reply(json.dumps(report).encode()[:DOORBELL_REPLY_MAX])

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


def _in_fp64(model: Any) -> Any:
    return copy.deepcopy(model).double() if isinstance(model, torch.nn.Module) else model


class _Call:
    def __init__(self, model: Any, args: list[Any]) -> None:
        self.model = model
        self.inputs = args

    def __call__(self) -> Any:
        return self.model(*self.inputs)


def _rounding(call: _Call) -> Any:
    from live.rounding import Rounding

    with Rounding(secrets.randbits(62)):
        return call()


def _spin(ns: int) -> None:
    """As native.pause(), without a GPU."""
    end_ns = time.monotonic_ns() + ns
    while time.monotonic_ns() < end_ns:
        pass


def _in_turn(bindings: list[Binding]) -> Callable[[], Any]:
    def call() -> Any:
        return [binding.call() for binding in bindings]

    return call


def _identity(value: Any) -> tuple[Any, ...]:
    """Equal for two outputs in the same place with the same shape; () if that cannot be compared simply."""
    if type(value) is torch.Tensor:
        return (value.data_ptr(), value.shape, value.stride(), value.dtype)
    if type(value) in (tuple, list):
        parts = tuple(map(_identity, value))
        return (type(value), *parts) if all(parts) else ()
    return ()


_SEEDERS: Final[list[Callable[[int], Any]]] = [torch.default_generator.manual_seed]


def _seed(seed: int) -> None:
    """As torch.manual_seed(), which for each kind of device that is not there keeps a traceback: 0.3 ms a time."""
    for seeder in _SEEDERS:
        seeder(seed)


def _leave_capture(device: torch.device, pool: Any) -> None:
    """Behind one that failed torch goes on to send allocations to its pool, and takes no seed for random numbers."""
    index = device.index or 0
    with contextlib.suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(index, pool)
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(generator.clone_state())


def _set_tf32(allowed: bool) -> None:
    if torch.backends.cuda.matmul.allow_tf32 != allowed:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    if torch.backends.cudnn.allow_tf32 != allowed:  # on by default where the other is off
        torch.backends.cudnn.allow_tf32 = allowed


def _copy_cache(source: Path) -> None:
    """The compile stage's artefacts, copied into this child's own cache: Triton writes into folders that it reads."""
    target = Path(os.environ["TRITON_CACHE_DIR"])
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)


def _prime(device: torch.device) -> None:
    """Makes what a candidate would wait for: kernels of torch's, the libraries of products, and their memory for each
    stream, which in a plan's own pool would outlast the plan.

    A pool's child does this before it has a candidate.
    """
    graphs: Any = torch.cuda.graph
    graphs.default_capture_stream = torch.cuda.Stream()
    for stream in (torch.cuda.current_stream(), graphs.default_capture_stream):
        with torch.cuda.stream(stream):
            one = torch.ones(64, 64, device=device)
            torch.nn.functional.linear(one, one @ one, one[0]).sum().item()
            torch.equal(one, one.clone())  # of one tensor with itself it asks no kernel


def main(channel: Channel, device: str) -> None:
    """Called in the forked and confined child, before any CUDA context is there."""
    where = torch.device("cpu")
    if device.startswith("cuda"):
        where = torch.device("cuda", 0)
        torch.cuda.init()
        _SEEDERS.extend(generator.manual_seed for generator in torch.cuda.default_generators)
        native.gpu_init(0)
        _prime(where)
    else:
        from live import cpu_device

        cpu_device.install()
    Child(channel, where).run()
