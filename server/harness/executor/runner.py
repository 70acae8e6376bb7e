"""A plan with its images, as the run child keeps it: one model for each case that is judged."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, Final

import torch
from shared import native, operators, plan

from executor import archive
from executor.launch import LaunchRefused
from executor.replay import Vary
from executor.steps import StepError

PRELOADED_MOST: Final = 8
FOREIGN: Final[tuple[operators.Foreign, ...]] = ("movement", "library", "any")


class Uncallable:
    """In a model's place where forward() of a case could not be traced: a call ends as that did."""

    def __init__(self, refusal: plan.Refusal) -> None:
        self._refusal = refusal

    def load(self, weights: dict[str, torch.Tensor]) -> frozenset[str]:
        return frozenset()

    def let_go(self) -> None:
        """It holds nothing."""

    def warm_up(self, inputs: list[Any]) -> None:
        """StepError."""
        raise StepError(self._refusal.line, self._refusal.reason)


class Runner:
    """Makes models of a plan's traces. The compiler has refused what the policy does not allow; so does this."""

    def __init__(self, images: bytes, source: bytes, device: torch.device, foreign: str) -> None:
        """images: executor/archive.py. source: the candidate's text, from which the interpreter takes kernels without
        a GPU. ArchiveError, PlanError, or ValueError."""
        if foreign not in FOREIGN:
            raise ValueError(f"foreign is one of {', '.join(FOREIGN)}, not {foreign!r}")
        self._plan, self._images = archive.unpack(images)
        self._source = source
        self._device = device
        self._foreign = foreign
        self._kernels: Any = None  # loaded, on a GPU
        self._functions: Any = None  # taken from the source, without one

    def preload(self) -> None:
        """Load the kernels, on a GPU, where they are few: it takes longer than a call. What fails here fails again."""
        if self._device.type != "cuda" or len(self._images) > PRELOADED_MOST:
            return
        kernels = self._all_kernels()
        for index in self._images:
            with contextlib.suppress(LaunchRefused, native.NativeError):
                kernels.get(index)

    def _all_kernels(self) -> Any:
        from executor import gpu

        if self._kernels is None:
            self._kernels = gpu.Kernels(self._plan, self._images)
        return self._kernels

    def close(self) -> bool:
        """Unload the kernels. Whether nothing is left of them but what native.scrub() takes away. On a GPU only."""
        if self._kernels is None:
            return True
        self._kernels.close()
        return not self._kernels.leaves_traces

    def model(self, case: str, seed: int, vary: Vary | None = None) -> Any:
        """The model of a case, constructed with this seed. ValueError: the plan has no trace of it. StepError.

        Of a case for which forward() had no trace it is one that cannot be called.
        """
        try:
            trace = self._plan.trace(case)
        except KeyError:
            return self._untraced(case)
        made = self._make(trace)
        made.construct(seed, vary)
        return made

    def _untraced(self, case: str) -> Uncallable:
        refusal = next((one for one in self._plan.refusals if one.case == case), None)
        if refusal is None:
            raise ValueError(f"the plan has no trace of the case {case!r}")
        if refusal.kind in ("import", "construct"):
            raise StepError(refusal.line, refusal.reason)
        return Uncallable(refusal)

    def _make(self, trace: plan.Trace) -> Any:
        allows = partial(operators.permits, foreign=self._foreign)
        prepares = partial(operators.permits, foreign="any")
        if self._device.type != "cuda":
            return self._interpreted(trace, allows)
        from executor import gpu

        return gpu.Model(trace, self._all_kernels(), self._device, allows=allows, prepares=prepares)

    def _interpreted(self, trace: plan.Trace, allows: Any) -> Any:
        from compiler import extract

        from executor import interpreter

        if self._functions is None:
            self._functions = extract.Functions(extract.Source(self._source), self._plan.functions, self._plan.kernels)
        lost = self._plan.judged_kernels() - self._images.keys()  # others need no image here, and have none
        turn = self._plan.traces.index(trace)
        return interpreter.Model(trace, self._functions, self._plan.kernels, allows=allows, lost=lost, turn=turn)
