"""A program that executor/sanitize.py starts under a tool of compute-sanitizer: it runs a plan once for each case.

Its answers are not compared. It prints a line of JSON for each case that it completed, {"case": NAME}, and one at the
end, {"end": null or why not all cases were run}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from shared import native, operators, plan, values

from executor import archive, gpu
from executor.steps import StepError

SEED = 1


class _Model(gpu.Model):
    """Times under a tool mean nothing: of the configurations it takes the first that compiles."""

    def _quickest(self, step: plan.Choose, run: Callable[[int], None]) -> int:
        for index, alternative in enumerate(step.alternatives):
            if all(self._kernels.has(kernel) for kernel in plan.kernels_of(alternative.steps)):
                return index
        raise StepError(step.line, "no configuration of this kernel compiles")

    def _room(self, size: int) -> torch.Tensor:
        """Written: how a kernel uses its own scratch is Triton's doing, and initcheck does not see all of that."""
        return super()._room(size).zero_()


def _run(folder: Path, limit_s: float) -> str | None:
    """Why not all cases were run; None: they were."""
    end = time.monotonic() + limit_s
    torch.cuda.init()
    native.gpu_init(0)
    device = torch.device("cuda", 0)
    found, images = archive.unpack((folder / "images").read_bytes())
    kernels = gpu.Kernels(found, images)
    allows = partial(operators.permits, foreign="any")  # the compiler has refused what the policy does
    inputs: dict[str, list[Any]] = torch.load(folder / "inputs", weights_only=True)
    why = None
    for case, args in inputs.items():
        if case not in {trace.case for trace in found.traces}:
            continue
        if time.monotonic() > end:
            return f"there was no time for the case {case} and larger ones"
        try:
            model = _Model(found.trace(case), kernels, device, allows=allows, prepares=allows)
            model.construct(SEED)
            model(*values.to_device(args, device))
            torch.cuda.synchronize()
            _tell({"case": case})
        except StepError as error:  # a kernel may not have been compiled for a case that is not guaranteed
            why = why or f"the case {case}: {error}"
        except Exception as error:
            text = str(error).partition("\n")[0]
            return f"the case {case} ended with {type(error).__name__}: {text}"
    return why


def _tell(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


def main() -> int:
    try:
        why = _run(Path(sys.argv[1]), float(sys.argv[2]))
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    _tell({"end": why})
    return 0


if __name__ == "__main__":
    sys.exit(main())
