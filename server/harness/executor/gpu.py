"""Plans on a GPU: operators by torch, kernels from their images, alternatives by their time.

This process runs no code of a candidate's but its kernels. It holds no seed and no expected answer.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
from shared import native, plan, values

from executor.guards import Guards
from executor.launch import Compiled, Kernel, LaunchRefused
from executor.replay import Replay, poisoned
from executor.steps import After, Allows, StepError, tensors_of

DEVICE_CALLS: Final = (b"vprintf", b"malloc", b"__assertfail")
"""Names in an image of what writes to the context's queue of prints, and to its heap."""
INTEGERS: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
TRIALS: Final = 5
"""Timed runs of an alternative, after one that is not."""


class Kernels:
    """The kernels of one plan, each loaded when it is launched first. close() unloads them."""

    def __init__(self, found: plan.Plan, images: Mapping[int, Compiled]) -> None:
        self._plan = found
        self._images = images
        self._loaded: dict[int, Kernel] = {}
        self.leaves_traces = False
        """A kernel was loaded that may have left something in memory of the context's own."""

    def close(self) -> None:
        for kernel in self._loaded.values():
            kernel.close()
        self._loaded.clear()

    def has(self, index: int) -> bool:
        """Whether the compiler made an image of it: configurations that do not compile are left out."""
        return index in self._images

    def get(self, index: int) -> Kernel:
        """LaunchRefused if there is no image; NativeError if the device refuses it."""
        if index not in self._loaded:
            if index not in self._images:
                raise LaunchRefused("the kernel has no image")
            signature = [(name, kind) for name, kind in self._plan.kernels[index].signature]
            self._loaded[index] = kernel = Kernel(self._images[index], signature)
            self.leaves_traces |= kernel.image.spill_bytes > 0 or any(
                name in self._images[index].image for name in DEVICE_CALLS
            )
        return self._loaded[index]


class Model(Replay):
    """One trace of a plan, as a model that is called: what run children do with a module."""

    def __init__(
        self, trace: plan.Trace, kernels: Kernels, device: torch.device, *, allows: Allows, prepares: Allows
    ) -> None:
        """allows and prepares: operators of a call, and of the steps before (executor/replay.py). StepError."""
        super().__init__(trace, device, self._launch, self._choose, allows=allows, prepares=prepares)
        self._kernels = kernels
        self._scratch: list[torch.Tensor] = []
        self._guards: Guards | None = None  # of the last call that had some
        self._device = device
        self._is_silent = False
        self._zeroed: list[tuple[torch.Tensor, torch.Tensor]] = []  # integers, for a silent call's sake, and where
        self._marks: list[torch.cuda.Event] = []  # of the last call that was made step by step
        self._has_launched = False  # a kernel, in this call
        self._fronts: list[torch.cuda.Event] = []  # behind which a launch of this call may overlap what is in front
        self._chosen: dict[int, int] = {}
        self._is_resized = any(isinstance(step, plan.Call) and "resize" in step.op for step in trace.steps)
        self._has_choices = any(isinstance(step, plan.Choose) for step in trace.steps)

    def __call__(self, *inputs: Any) -> Any:
        """One call, queued. inputs: positional, as forward() gets them."""
        self._scratch.clear()
        self.let_go()
        return self.call(inputs)

    def call(self, inputs: Any, guards: Guards | None = None, after: After | None = None) -> Any:
        """As Replay.call(). In a graph of several calls none begins before all launches of the one in front have ended:
        what a launch overlaps may end behind it, and the next call would wait for the last launch alone."""
        self._has_launched = False
        self._fronts.clear()
        found = super().call(inputs, guards, after)
        for front in self._fronts:
            torch.cuda.current_stream().wait_event(front)
        return found

    def warm_up(self, inputs: list[Any]) -> None:
        """Make the state, and find the fastest alternatives on copies of these inputs; a second call does nothing.

        Memory that is left unwritten is NaN meanwhile, whatever an earlier plan had left there. So it is afterwards in
        the state, whatever the alternatives did.
        """
        with poisoned():
            self.prepare()
            if self._has_choices and not self._chosen:
                kept = [(memory, memory.clone()) for memory in self.memory()]
                self(*values.changed(inputs, torch.clone))
                for memory, before in kept:
                    memory.copy_(before)

    def call_guarded(self, *inputs: Any) -> Any:
        """The same with zones around each tensor (executor/guards.py), where the memory has room for copies.

        OutOfBounds where a kernel wrote into one. After the first call: the choice of an alternative is made.
        """
        if not self._is_resized:
            self._scratch.clear()
            self._guards = Guards(self._device)
            try:
                return self.call(inputs, self._guards)
            except torch.OutOfMemoryError:
                pass  # and with the exception go the copies
        return self(*inputs)

    def let_go(self) -> None:
        """Of the memory of a guarded call's answer."""
        self._guards = None

    def call_by_steps(self, *inputs: Any) -> Any:
        """The same with two events before the first step and one after each; steps_ns() returns the differences."""
        self._scratch.clear()
        self.let_go()
        self._marks = []
        self._mark()
        self._mark()
        return self.call(inputs, after=self._mark)

    def _mark(self) -> None:
        self._marks.append(torch.cuda.Event(enable_timing=True))
        self._marks[-1].record()

    def steps_ns(self) -> list[int]:
        """Nanoseconds of each operator and launch of the last call by steps, in order, without an event's own time.

        The device is idle.
        """
        nothing_ns, *took_ns = (int(a.elapsed_time(b) * 1e6) for a, b in itertools.pairwise(self._marks))
        return [max(0, ns - nothing_ns) for ns in took_ns]

    def call_silently(self, *inputs: Any) -> Any:
        """The same with none of the candidate's kernels launched. What nothing wrote is NaN; of integers that a kernel
        would have had it is 0, since a step may take them for indices, and a false one ends the context."""
        self._is_silent = True
        try:
            with poisoned():
                return self(*inputs)
        finally:
            self._is_silent = False
            self._give_back_integers()

    def _give_back_integers(self) -> None:
        """What was zeroed may be the state's, or an input that is the greatest integer everywhere."""
        for tensor, unwritten in self._zeroed:
            tensor.masked_fill_(unwritten & (tensor == 0), torch.iinfo(tensor.dtype).max)
        self._zeroed.clear()

    # --- launches ---

    def _room(self, size: int) -> torch.Tensor:
        self._scratch.append(torch.empty(size, dtype=torch.uint8, device=self._device))
        return self._scratch[-1]

    def _launch(self, step: plan.Launch, grid: tuple[int, int, int], args: tuple[Any, ...]) -> None:
        if self._is_silent:
            found = ((tensor, _make_indices(tensor)) for tensor in tensors_of(args))
            self._zeroed += [(tensor, unwritten) for tensor, unwritten in found if unwritten is not None]
            return
        try:
            kernel = self._kernels.get(step.kernel)
            if kernel.compiled.launch_pdl and self._has_launched and torch.cuda.is_current_stream_capturing():
                self._fronts.append(torch.cuda.Event())
                self._fronts[-1].record()
            kernel.launch(grid, args, self._room, overlaps=not kernel.compiled.launch_pdl or self._has_launched)
        except LaunchRefused as refused:
            raise StepError(step.line, str(refused)) from None
        self._has_launched |= 0 not in grid

    def _choose(self, step: plan.Choose, run: Callable[[int], None]) -> None:
        """The quickest alternative, found at its first call and run from then on.

        That call runs it many times on one state, so that its answers are of no use: prepare() comes first.
        """
        if id(step) not in self._chosen:
            self._chosen[id(step)] = self._quickest(step, run)
        run(self._chosen[id(step)])

    def _quickest(self, step: plan.Choose, run: Callable[[int], None]) -> int:
        took: dict[int, float] = {}
        failed: StepError | None = None
        for index, alternative in enumerate(step.alternatives):
            if not all(self._kernels.has(kernel) for kernel in plan.kernels_of(alternative.steps)):
                continue
            try:
                took[index] = self._time(partial(run, index))
            except (StepError, native.NativeError) as error:
                failed = error if isinstance(error, StepError) else StepError(step.line, str(error))
        if not took:
            raise failed or StepError(step.line, "no configuration of this kernel compiles")
        return min(took, key=lambda index: took[index])

    def _time(self, run: Callable[[], None]) -> float:
        run()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(TRIALS + 1)]
        events[0].record()
        for event in events[1:]:
            run()
            event.record()
        events[-1].synchronize()
        return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events))


def _make_indices(tensor: torch.Tensor) -> torch.Tensor | None:
    """Make zeros of integers that nothing has written. Where these were; None: nowhere. Waits for the device."""
    if tensor.dtype not in INTEGERS or 0 in (*tensor.shape, *tensor.stride()):
        return None
    unwritten = tensor == torch.iinfo(tensor.dtype).max
    if not bool(unwritten.any()):
        return None
    tensor.masked_fill_(unwritten, 0)
    return unwritten
