"""Lets a machine without a GPU act as if it had one: the one place that maps cuda to cpu.

Candidates say `device="cuda"`, `.cuda()`, `x.is_cuda`, `torch.cuda.synchronize()`; under Triton's interpreter
all of it means the host. Two parts:

- `install()` once, before code is loaded: `torch.cuda` answers as a board of the table would (fake_cuda.py),
  and Triton's driver is a stub whose benchmark takes an autotuner's first configuration.
- `torch_function_mode()` around the code that is judged: every call of torch inside it has its devices mapped,
  and every tensor reports that it is on cuda:0. Outside it torch reports the host, which is where outputs are read.

No verdict depends on this; in the worst case a candidate deceives itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch._decomp
import torch._meta_registrations
import torch._refs  # a later import would find patched names in its annotations
import torch.utils._device
import torch.utils.dlpack
from shared import fake_cuda, inductor
from torch.overrides import TorchFunctionMode
from triton.runtime import interpreter

TARGET: Final = "cuda:90"
"""Which board the interpreter's children believe in."""

CPU: Final = torch.device("cpu")
CUDA: Final = torch.device("cuda", 0)


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _mapped(value: Any) -> Any:
    """The value with a cuda device, or a cuda tensor type's name, replaced."""
    if isinstance(value, str) and value.startswith("torch.cuda."):
        return value.replace("torch.cuda.", "torch.", 1)
    return CPU if _is_cuda(value) else value


def _itself(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor


def _getter(name: str) -> Any:
    return getattr(torch.Tensor, name).__get__


def _device(*args: Any, **kwargs: Any) -> torch.device:
    """`torch.device("cuda")` stays what it is: code compares it with what tensors say."""
    return CUDA if len(args) == 1 and type(args[0]) is int else torch.device(*args, **kwargs)


# The answers of a tensor about itself inside the mode, and of torch about devices.
_ANSWERS: Final[dict[Any, Callable[..., Any]]] = {
    _getter("is_cuda"): fake_cuda.constant(True),
    _getter("device"): fake_cuda.constant(CUDA),
    torch.device: _device,
    torch.Tensor.get_device: fake_cuda.constant(0),
    torch.Tensor.cuda: _itself,
    torch.Tensor.pin_memory: _itself,
    torch.Tensor.is_pinned: fake_cuda.constant(True),
}

# Their first argument after the tensor may be a device index.
_TAKES_INDEX: Final = frozenset({torch.Tensor.to})


class CudaIsCpu(TorchFunctionMode):
    """Maps devices in the arguments of every torch function."""

    def __torch_function__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        answer = _ANSWERS.get(func)
        if answer is not None:
            return answer(*args, **(kwargs or {}))
        if func in _TAKES_INDEX and len(args) > 1 and type(args[1]) is int:
            args = (args[0], CPU, *args[2:])
        options = dict(kwargs or {})
        options.pop("pin_memory", None)
        device = options.get("device")
        if device is not None and (_is_cuda(device) or type(device) is int):
            options["device"] = CPU
        return func(*[_mapped(item) for item in args], **options)


def torch_function_mode() -> CudaIsCpu:
    """A context for the judged code: import, construction and calls."""
    return CudaIsCpu()


class _DeviceContext(torch.utils._device.DeviceContext):
    """`with torch.device("cuda")` and `torch.set_default_device`: below our mode, so it maps by itself."""

    def __init__(self, device: Any) -> None:
        super().__init__(CPU if type(device) is int else _mapped(device))


def _seed(seed: int) -> None:
    """Not torch.manual_seed(), which calls this."""
    torch.default_generator.manual_seed(seed)


_REAL_GENERATOR: Final[Any] = torch.Generator


class _Generator(torch.Generator):
    """A type and no function: what torch imports later has annotations such as `torch.Generator | None`."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _REAL_GENERATOR(_mapped(device))


def _shown(name: str, really: Any) -> Any:
    """A function of torch's that modes do not see, in their sight."""

    def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.overrides.has_torch_function((tensor,)):
            return torch.overrides.handle_torch_function(call, (tensor,), tensor, *args, **kwargs)
        return really(tensor, *args, **kwargs)

    call.__name__ = name
    return call


def _show_capsules() -> None:
    """Memory that leaves torch by DLPack is seen by whichever function it was lent."""
    places: tuple[tuple[Any, str], ...] = (
        (torch._C, "_to_dlpack"),
        (torch._C, "_to_dlpack_versioned"),
        (torch.utils.dlpack, "to_dlpack"),
        (torch, "to_dlpack"),
    )
    for module, name in places:
        if hasattr(module, name):
            setattr(module, name, _shown("to_dlpack", getattr(module, name)))


def _not_interpreted(source: Any) -> None:
    """For launches that reach the stub of the driver: nothing would compute, and the output would be refused."""
    raise NotImplementedError(f"Triton's interpreter, which runs kernels without a GPU, cannot run {source.name}")


def _tuple_grids() -> None:
    """The interpreter takes tuples for grids; Triton itself any sequence."""
    executor: Any = interpreter.GridExecutor
    really = executor.__init__

    def begin(self: Any, fn: Any, arg_names: Any, grid: Any, *more: Any, **options: Any) -> None:
        if callable(grid):
            asked = grid

            def grid(meta: Any) -> tuple[Any, ...]:
                return tuple(asked(meta))

        else:
            grid = tuple(grid)
        really(self, fn, arg_names, grid, *more, **options)

    executor.__init__ = begin


def install() -> None:
    """Patch torch.cuda and Triton's driver for the rest of the process."""
    device = fake_cuda.parse_target(TARGET)
    fake_cuda.install_torch_cuda(device)
    fake_cuda.install_triton_driver(device, fake_cuda.no_benchmark)
    utils: Any = torch.utils._device
    utils.DeviceContext = _DeviceContext
    inductor.install_guards()
    module: Any = torch
    module.Generator = _Generator
    module.compile = fake_cuda.not_compiled
    module.cuda.manual_seed = _seed
    module.cuda.manual_seed_all = _seed
    launcher: Any = fake_cuda.Launcher
    launcher.launched = staticmethod(_not_interpreted)
    _tuple_grids()
    _show_capsules()
