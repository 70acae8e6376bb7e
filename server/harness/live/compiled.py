"""A reference under torch.compile: the other baseline, in a child of its own.

The child is like every other, and the protocol is the same; what it holds is the task's reference, and its answers
are compared with the uncompiled one's before its times count. Compiling happens when inputs are bound, which is
never on the clock. The mode is torch.compile's default: no autotuning of templates, no CUDA graphs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

BACKEND = "inductor"


class NothingCompiled(Exception):
    """torch.compile left all of the model as it was: its times would be eager's under another name."""


def compile_model(model: Any) -> Any:
    """The model, to be compiled in place when it is first called; for a callable that is not a module, another one."""
    from torch._inductor import config

    config.compile_threads = 1  # in this process: a pool of its own would outlast the call
    config.fallback_random = True  # dropout draws what eager draws
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(os.environ["TMPDIR"]) / "inductor"))
    if isinstance(model, torch.nn.Module):
        model.compile(backend=BACKEND, dynamic=False)
        return model
    return torch.compile(model, backend=BACKEND, dynamic=False)


def copies(inputs: list[Any]) -> list[Any]:
    """The same with tensors of their own: a reference may change what it is given."""
    from torch.utils import _pytree

    found: list[Any] = _pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, inputs)
    return found


def warm_up(call: Callable[[], Any]) -> None:
    """Compile by a first call. NothingCompiled, or what torch.compile raises."""
    from torch._dynamo.utils import counters

    with torch.no_grad():
        call()
    if not counters["stats"]["unique_graphs"]:
        raise NothingCompiled("torch.compile found no graph in the reference")
