"""A CUDA device that is not there: the one place that answers for it.

Used by compile children (tensors are fake, every launch ends after the compile) and, for the surface of
`torch.cuda`, by children that run on the interpreter (cpu_device.py). `TargetDriver` is what triton asks
instead of its own driver; `install_torch_cuda` replaces the functions of `torch.cuda` that would need a GPU.
Nothing here decides a verdict: the child that it runs in belongs to the candidate.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
import triton
import triton.testing
from torch._subclasses import fake_tensor
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget

WARP_SIZE: Final = 32
BASE_ADDRESS: Final = 0x7F00_0000_0000
"""Where every fake storage begins: aligned as torch's allocator and the arenas align (256 bytes and more)."""


@dataclass(frozen=True)
class Device:
    """The properties of a board. Memory and caches in bytes, clocks in kHz."""

    name: str
    capability: int
    multiprocessors: int
    memory: int
    l2_cache: int
    shared_block: int
    """Most shared memory that one block can ask for."""
    shared_multiprocessor: int
    threads_multiprocessor: int
    clock: int
    memory_clock: int
    memory_bus: int
    """Width in bits."""


# One common board for each compute capability; figures from the vendor's data sheets and programming guide.
DEVICES: Final[dict[int, Device]] = {
    device.capability: device
    for device in (
        Device("Tesla V100", 70, 80, 32 << 30, 6 << 20, 98304, 98304, 2048, 1530000, 877000, 4096),
        Device("Tesla T4", 75, 40, 16 << 30, 4 << 20, 65536, 65536, 1024, 1590000, 5001000, 256),
        Device("NVIDIA A100", 80, 108, 80 << 30, 40 << 20, 166912, 167936, 2048, 1410000, 1593000, 5120),
        Device("NVIDIA A10", 86, 72, 24 << 30, 6 << 20, 101376, 102400, 1536, 1695000, 6251000, 384),
        Device("NVIDIA L40S", 89, 142, 48 << 30, 96 << 20, 101376, 102400, 1536, 2520000, 9001000, 384),
        Device("NVIDIA H200", 90, 132, 141 << 30, 60 << 20, 232448, 233472, 2048, 1980000, 3201000, 6144),
        Device("NVIDIA B200", 100, 148, 180 << 30, 126 << 20, 232448, 233472, 2048, 1965000, 3996000, 8192),
        Device("RTX PRO 6000", 120, 188, 96 << 30, 128 << 20, 101376, 102400, 1536, 2430000, 14001000, 512),
    )
}


class UnknownTarget(ValueError):
    """The configured target is none that can be answered for."""


def parse_target(target: str) -> Device:
    """The board for "cuda:90"."""
    backend, _, capability = target.partition(":")
    if backend != "cuda" or not capability.isdigit() or int(capability) not in DEVICES:
        known = ", ".join(f"cuda:{number}" for number in sorted(DEVICES))
        raise UnknownTarget(f"compile target {target!r} is not known; known are {known}")
    return DEVICES[int(capability)]


def constant(value: Any) -> Callable[..., Any]:
    """A function, or a method, with this answer to anything."""
    return lambda *_, **__: value


# --- triton ---


def _utils(device: Device) -> SimpleNamespace:
    """The interface of triton's native driver module. Nothing is loaded."""
    properties = {
        "max_shared_mem": device.shared_block,
        "max_num_regs": 65536,
        "multiprocessor_count": device.multiprocessors,
        "warpSize": WARP_SIZE,
        "sm_clock_rate": device.clock,
        "mem_clock_rate": device.memory_clock,
        "mem_bus_width": device.memory_bus,
    }
    return SimpleNamespace(
        get_device_properties=lambda _index: dict(properties),
        load_binary=constant((object(), 0, 0, 0, 1024)),  # module, function, registers, spills, threads of a block
        set_printf_fifo_size=constant(None),
        fill_tma_descriptor=constant(object()),
        cuOccupancyMaxActiveClusters=constant(device.multiprocessors),
    )


class Launcher:
    """Ends a launch after triton has compiled and checked it."""

    launched: Callable[[Any], None] = staticmethod(lambda source: None)
    ahead: Callable[[Any], None] = staticmethod(lambda source: None)
    """A kernel of this source is about to be compiled."""
    build: Callable[[Any, Any], None] = staticmethod(lambda source, metadata: None)

    def __init__(self, source: Any, metadata: Any) -> None:
        self._source = source
        type(self).build(source, metadata)

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, *_arguments: Any) -> None:
        for size in (grid_x, grid_y, grid_z):
            operator.index(size)
        type(self).launched(self._source)


def no_benchmark(_kernel_call: Callable[[], Any], quantiles: Sequence[float] | None = None, **_: Any) -> Any:
    """Stands for triton's benchmark: the same time for every configuration, so that the first is as good as any."""
    return [1.0] * len(quantiles) if quantiles is not None else 1.0


def compile_benchmark(kernel_call: Callable[[], Any], quantiles: Sequence[float] | None = None, **_: Any) -> Any:
    """The same after one call, which compiles."""
    kernel_call()
    return no_benchmark(kernel_call, quantiles)


class TargetDriver:
    """Triton's driver interface for a device that is not there."""

    def __init__(self, device: Device, benchmark: Callable[..., Any]) -> None:
        self.device = device
        self.utils = _utils(device)
        self.launcher_cls = Launcher
        answers = {
            "is_active": True,
            "get_current_target": GPUTarget("cuda", device.capability, WARP_SIZE),
            "get_device_capability": divmod(device.capability, 10),
            "get_current_device": 0,
            "set_current_device": None,
            "get_current_stream": 0,
            "get_active_torch_device": torch.device("cuda", 0),
            "get_device_interface": torch.cuda,
            "get_benchmarker": benchmark,
            "clear_cache": None,
        }
        for name, answer in answers.items():
            setattr(self, name, constant(answer))

    def map_python_to_cpp_type(self, kind: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return str(ty_to_cpp(kind))

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1, dtype=torch.int, device="cuda")


def install_triton_driver(device: Device, benchmark: Callable[..., Any]) -> None:
    driver: Any = TargetDriver(device, benchmark)
    triton.runtime.driver._default = driver
    triton.runtime.driver.set_active(driver)
    triton.testing.do_bench = benchmark
    triton.testing.do_bench_cudagraph = benchmark


# --- torch.cuda ---


class Stream:
    """A stream on which everything is done already."""

    synchronize = wait_stream = wait_event = __exit__ = constant(None)
    query = constant(True)

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.device_index = 0
        self.priority = priority
        self.cuda_stream = 0
        self.stream_id = 0

    def record_event(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self


class Event:
    """An event that takes the host's clock."""

    wait = synchronize = constant(None)
    query = constant(True)

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._at = 0

    def record(self, _stream: Any = None) -> None:
        self._at = time.perf_counter_ns()

    def elapsed_time(self, end: Event) -> float:
        return max(end._at - self._at, 1) / 1e6


class _Selected:
    """`torch.cuda.device(0)` and its like: a context that selects the only device."""

    __enter__ = __exit__ = constant(None)

    def __init__(self, _device: Any = None) -> None:
        self.idx = 0


class _Graph:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA graphs need a GPU")


def not_compiled(model: Any = None, **_: Any) -> Any:
    """`torch.compile`: what it is given, as it is."""
    return model if model is not None else lambda function: function


def torch_properties(device: Device) -> SimpleNamespace:
    major, minor = divmod(device.capability, 10)
    return SimpleNamespace(
        name=device.name,
        major=major,
        minor=minor,
        total_memory=device.memory,
        multi_processor_count=device.multiprocessors,
        max_threads_per_multi_processor=device.threads_multiprocessor,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        warp_size=WARP_SIZE,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=device.shared_block,
        shared_memory_per_multiprocessor=device.shared_multiprocessor,
        L2_cache_size=device.l2_cache,
        clock_rate=device.clock,
        memory_clock_rate=device.memory_clock,
        memory_bus_width=device.memory_bus,
        is_integrated=0,
        is_multi_gpu_board=0,
    )


def install_torch_cuda(device: Device) -> None:
    """Make torch.cuda answer for the device: one GPU, idle, with all of its memory free."""
    properties = torch_properties(device)
    capability = (properties.major, properties.minor)
    stream = Stream()

    @contextlib.contextmanager
    def in_stream(_stream: Any) -> Iterator[None]:
        yield

    answers: dict[str, Any] = {
        "is_available": constant(True),
        "is_initialized": constant(True),
        "is_current_stream_capturing": constant(False),
        "is_bf16_supported": constant(capability >= (8, 0)),
        "is_tf32_supported": constant(capability >= (8, 0)),
        "device_count": constant(1),
        "current_device": constant(0),
        "get_device_capability": constant(capability),
        "get_device_name": constant(device.name),
        "get_device_properties": constant(properties),
        "get_arch_list": constant([f"sm_{device.capability}"]),
        "current_stream": constant(stream),
        "default_stream": constant(stream),
        "stream": in_stream,
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "device": _Selected,
        "device_of": _Selected,
        "_DeviceGuard": _Selected,
        "CUDAGraph": _Graph,
        "graph": _Graph,
        "mem_get_info": constant((device.memory, device.memory)),
        "memory_stats": constant({}),
        "memory_summary": constant(""),
        "get_rng_state": constant(torch.zeros(16, dtype=torch.uint8)),
        "get_rng_state_all": constant([]),
    }
    answers.update(dict.fromkeys(("memory_allocated", "max_memory_allocated"), constant(0)))
    answers.update(dict.fromkeys(("memory_reserved", "max_memory_reserved"), constant(0)))
    for name in (
        "init", "_lazy_init", "set_device", "set_stream", "synchronize", "empty_cache", "ipc_collect",
        "reset_peak_memory_stats", "reset_max_memory_allocated", "manual_seed", "manual_seed_all", "seed",
        "seed_all", "set_rng_state", "set_rng_state_all", "_lazy_call", "set_per_process_memory_fraction",
    ):  # fmt: skip
        answers[name] = constant(None)
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    tensor: Any = torch.Tensor
    tensor.record_stream = constant(None)  # torch's own takes no stream but its own, and asks modes only then
    accelerator: Any = torch.accelerator
    accelerator.device_index = _Selected
    accelerator.is_available = answers["is_available"]
    accelerator.device_count = answers["device_count"]
    accelerator.current_device_index = answers["current_device"]
    accelerator.current_stream = answers["current_stream"]
    for name in ("synchronize", "set_device_index", "set_stream", "empty_cache"):
        setattr(accelerator, name, constant(None))
    nvtx: Any = torch.cuda.nvtx
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(nvtx, name, constant(0))
    raw: Any = torch._C
    raw._cuda_getCurrentRawStream = constant(0)
    raw._cuda_getDevice = constant(0)
    cudnn: Any = torch.backends.cudnn
    cudnn.is_acceptable = constant(False)  # or recurrent layers lay their weights out by a call of the library


# --- fake tensors ---


def fake_address(tensor: Any) -> int:
    """The value of data_ptr(), modulo any alignment that matters: storages are aligned, views may not be."""
    return int(BASE_ADDRESS + tensor.storage_offset() * tensor.element_size())


def _deep_copy(tensor: Any, memo: dict[int, Any]) -> Any:
    """copy.deepcopy() of a fake tensor. Torch's own copies the storage, which is on the device meta."""
    if id(tensor) not in memo:
        copy = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        copy.__dict__.update({name: value for name, value in tensor.__dict__.items() if name == "_is_param"})
        memo[id(tensor)] = copy
    return memo[id(tensor)]


def _move_module(module: torch.nn.Module, function: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
    """Module._apply without its swapping of tensors in place, which fake tensors refuse."""
    if recurse:
        for child in module.children():
            _move_module(child, function)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            moved = function(parameter)
            if moved is not parameter:
                module._parameters[name] = torch.nn.Parameter(moved, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module


_C10_CUDA: Final = 1
_C10_META: Final = 14
"""c10::DeviceType."""


def _set_device_guard() -> None:
    """Give CUDA a device guard that does nothing: the meta device's, from libc10's table of guards.

    A torch built without CUDA has none, and refuses to move even a fake tensor. One built with CUDA has one, and
    would ask it for the number of devices when fake tensors begin: that initialises the driver, which a zygote
    must not.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    table = (ctypes.c_void_p * (_C10_META + 1)).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    table[_C10_CUDA] = table[_C10_META]
    module: Any = torch._C
    module._ensureCUDADeviceGuardSet = lambda: None


def _indexed(value: Any) -> Any:
    """A device that means the GPU, with its index: torch would ask the guard for it."""
    if type(value) is int or (isinstance(value, str | torch.device) and str(value) == "cuda"):
        return torch.device("cuda", 0)
    return value


_PARSERS: Final = (torch.device, torch._C._nn._parse_to)


class IndexedDevices(TorchFunctionMode):
    """Lets `device=0` mean the GPU: torch would look for one that is there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs and type(kwargs.get("device")) is int:
            kwargs = {**kwargs, "device": torch.device("cuda", 0)}
        if func in _PARSERS and args and type(args[0]) is int:
            args = (torch.device("cuda", 0), *args[1:])
        return func(*args, **(kwargs or {}))


def _to(tensor: Any, *arguments: Any, **options: Any) -> Any:
    if arguments:
        arguments = (_indexed(arguments[0]), *arguments[1:])
    if "device" in options:
        options["device"] = _indexed(options["device"])
    return _REAL_TO(tensor, *arguments, **options)


def _cuda(tensor: Any, _device: Any = None, _non_blocking: bool = False, **_: Any) -> Any:
    return _REAL_TO(tensor, torch.device("cuda", 0))


_REAL_TO: Final[Callable[..., Any]] = torch.Tensor.to


def install_fake_tensors() -> None:
    """Let fake CUDA tensors exist without CUDA, with addresses (triton specialises on their alignment)."""
    _set_device_guard()
    module: Any = fake_tensor
    module.init_gpu_context = lambda *_: None
    module.FakeTensorMode.avoid_device_init = property(lambda _self: True)
    module.FakeTensor.data_ptr = fake_address
    module.FakeTensor.__deepcopy__ = _deep_copy
    tensor: Any = torch.Tensor
    tensor.to = _to
    tensor.cuda = _cuda
    tensor.pin_memory = lambda self, *_: self
    torch.nn.Module._apply = _move_module
