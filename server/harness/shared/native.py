"""The C helper library from Python (native/*.h has each call's contract).

Thin on purpose: a call that fails raises NativeError with the library's own words, nothing else is added. The
library is ../libharness.so of the harness' directory; VERIFIERD_LIBHARNESS names another file.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import json
import os
import signal
import stat
from collections.abc import Iterable, Sequence
from ctypes import c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shared.wire import DOORBELL_OK, DOORBELL_REPLY_MAX

if TYPE_CHECKING:
    import torch


class NativeError(OSError):
    """A library call failed: errno and the library's text."""


class ChildDiedError(NativeError):
    """The process died before it answered."""


class BellTimeoutError(NativeError):
    """Nothing happened within the time allowed."""


_ERRORS: dict[int, type[NativeError]] = {errno.ESRCH: ChildDiedError, errno.ETIMEDOUT: BellTimeoutError}


def _find_library() -> Path:
    named = os.environ.get("VERIFIERD_LIBHARNESS")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "libharness.so"


LIBRARY: Final = _find_library()
"""Found once: a child's environment is another."""


_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "harness_error": (c_char_p, []),
    "harness_now_ns": (c_int64, []),
    "harness_arena_memfd": (c_int, [c_uint64]),
    "harness_map": (c_void_p, [c_int, c_uint64]),
    "harness_unmap": (None, [c_void_p, c_uint64]),
    "harness_doorbell_create": (c_int, []),
    "harness_doorbell_map": (c_void_p, [c_int]),
    "harness_doorbell_unmap": (None, [c_void_p]),
    "harness_doorbell_wait": (c_int, [c_void_p, c_uint32, c_int64, c_int64, c_void_p]),
    "harness_reply_write": (c_int, [c_void_p, c_char_p, c_size_t]),
    "harness_doorbell_answer": (None, [c_void_p, c_uint32, c_uint32, c_uint64, c_uint64]),
    "harness_doorbell_ring": (c_uint32, [c_void_p, c_uint32, c_uint32, c_uint32]),
    "harness_doorbell_await": (c_int, [c_void_p, c_uint32, c_int, c_int64, c_int64]),
    "harness_doorbell_claims": (None, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "harness_reply_read": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "harness_heap_set": (c_int, [c_uint64, c_uint64]),
    "harness_place_set": (c_int, [c_uint64, c_uint64]),
    "harness_gpu_init": (c_int, [c_int]),
    "harness_gpu_pci_bus_id": (c_int, [c_void_p, c_uint32]),
    "harness_gpu_arena_create": (c_int, [c_uint64, c_void_p, c_void_p, c_void_p, c_void_p]),
    "harness_gpu_arena_import": (c_int, [c_int, c_uint64, c_void_p, c_void_p]),
    "harness_gpu_arena_free": (c_int, [c_uint64, c_uint64, c_uint64]),
    "harness_gpu_fill32": (c_int, [c_uint64, c_uint32, c_uint64]),
    "harness_gpu_copy": (c_int, [c_uint64, c_uint64, c_uint64]),
    "harness_gpu_sync": (c_int, []),
    "harness_gpu_flush_setup": (c_int, [c_uint64]),
    "harness_gpu_flush": (c_int, []),
    "harness_canary_setup": (c_int, []),
    "harness_canary_run": (c_int, [c_uint32, c_void_p]),
    "harness_scrub": (c_int, []),
    "harness_pause_setup": (c_int, []),
    "harness_pause": (c_int, [c_uint64]),
    "harness_gate_setup": (c_int, []),
    "harness_gate": (c_int, [c_uint64]),
    "harness_gate_open": (c_int, []),
    "harness_gather_setup": (c_int, [c_uint32]),
    "harness_gather_set": (c_int, [c_void_p, c_void_p, c_uint32]),
    "harness_gather_read": (c_int, [c_void_p, c_uint32]),
    "harness_image_load": (c_int, [c_char_p, c_char_p, c_uint32, c_void_p]),
    "harness_image_free": (c_int, [c_uint64]),
    "harness_launch": (c_int, [c_void_p, c_uint64, c_void_p, c_uint32]),
    "harness_tensor_map": (c_int, [c_void_p, c_void_p]),
    "harness_clock_call": (c_int, [c_void_p, c_void_p]),
    "harness_clock_finish": (c_int, [c_void_p, c_void_p]),
    "harness_nvml_open": (c_int, [c_char_p]),
    "harness_nvml_driver": (c_int, [c_void_p, c_uint32]),
    "harness_nvml_state": (c_int, [c_void_p]),
    "harness_stats_stop": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int]),
    "harness_stats_judge": (c_int, [c_void_p, c_void_p, c_size_t, c_double, c_double, c_void_p]),
    "harness_zygote_unshare": (c_int, []),
    "harness_zygote_guard": (None, [c_int]),
    "harness_die_with_parent": (c_int, []),
    "harness_close_to_others": (c_int, []),
    "harness_pid_namespace_begin": (c_int, []),
    "harness_pid_namespace_end": (c_int, [c_int]),
    "harness_watch": (c_int, [c_int, c_char_p, c_uint64, c_uint64, c_void_p]),
    "harness_stop": (c_int, [c_int]),
    "harness_cont": (c_int, [c_int]),
    "harness_pin": (c_int, [c_int, c_void_p, c_uint32]),
    "harness_cores_of": (c_int, [c_int, c_void_p, c_uint32]),
    "harness_sandbox_enter": (c_int, [c_void_p, c_void_p, c_size_t]),
    "harness_sandbox_probe": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "harness_sandbox_wants_pid_namespace": (c_int, [c_uint64]),
    "harness_signal_nobody": (c_int, []),
}


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


_lib = _load()


def error_text() -> str:
    text: bytes = _lib.harness_error()
    return text.decode("utf-8", "replace")


def _checked(code: int) -> int:
    if code < 0:
        raise _ERRORS.get(-code, NativeError)(-code, error_text())
    return code


def _pointer(address: int | None) -> int:
    if not address:
        raise NativeError(errno.EINVAL, error_text())
    return address


def now_ns() -> int:
    """CLOCK_MONOTONIC, nanoseconds."""
    return int(_lib.harness_now_ns())


def arena_memfd(size: int) -> int:
    """A sealed memfd of size bytes; the descriptor is the caller's."""
    return _checked(_lib.harness_arena_memfd(size))


@dataclass(frozen=True)
class Bell:
    """One ring, as the child sees it: call on set, set + 1, ... modulo sets, `calls` times."""

    number: int
    set: int
    calls: int
    sets: int


@dataclass(frozen=True)
class Claims:
    """A child's values in its answer. Shown, compared, never believed."""

    status: int
    generation: int
    events_ns: int
    host_ns: int


class Mapping:
    """size bytes of a sealed memfd, mapped; address is valid until close()."""

    def __init__(self, fd: int, size: int) -> None:
        self.size = size
        self.address = _pointer(_lib.harness_map(fd, size))

    def close(self) -> None:
        if self.address:
            _lib.harness_unmap(self.address, self.size)
            self.address = 0

    def view(self) -> memoryview:
        """The bytes; do not use it after close()."""
        return memoryview((ctypes.c_ubyte * self.size).from_address(self.address)).cast("B")


class Doorbell:
    """The page between the referee and one child; each process uses its own end's calls."""

    def __init__(self, fd: int) -> None:
        """Map it; the descriptor stays the caller's and may be closed."""
        self._page = _pointer(_lib.harness_doorbell_map(fd))
        self._buffer = ctypes.create_string_buffer(DOORBELL_REPLY_MAX)
        self._words = (c_uint32 * 4)()

    @staticmethod
    def create() -> int:
        """A new page's descriptor; it is the caller's."""
        return _checked(_lib.harness_doorbell_create())

    @property
    def address(self) -> int:
        return self._page

    def close(self) -> None:
        if self._page:
            _lib.harness_doorbell_unmap(self._page)
            self._page = 0

    # the child's end

    def wait(self, seen: int, spin_ns: int, timeout_ns: int = -1) -> Bell:
        """The next bell after `seen`. BellTimeoutError when none came; a negative timeout waits for ever."""
        deadline = now_ns() + timeout_ns
        while True:
            left = max(0, deadline - now_ns()) if timeout_ns >= 0 else -1
            code = _lib.harness_doorbell_wait(self._page, seen, spin_ns, left, self._words)
            if code != -errno.EINTR:  # else Python's signal handlers run between two calls
                break
        _checked(code)
        return Bell(self._words[0], self._words[1], self._words[2], self._words[3])

    def write_reply(self, reply: bytes) -> None:
        _checked(_lib.harness_reply_write(self._page, reply, len(reply)))

    def answer(self, bell: int, status: int = DOORBELL_OK, events_ns: int = 0, host_ns: int = 0) -> None:
        _lib.harness_doorbell_answer(self._page, bell, status, events_ns, host_ns)

    # the referee's end

    def ring(self, set_: int, calls: int, sets: int) -> int:
        """The number of the bell, for await_answer()."""
        return int(_lib.harness_doorbell_ring(self._page, set_, calls, sets))

    def await_answer(self, bell: int, pidfd: int, spin_ns: int, timeout_ns: int) -> None:
        """ChildDiedError, BellTimeoutError."""
        _checked(_lib.harness_doorbell_await(self._page, bell, pidfd, spin_ns, timeout_ns))

    def claims(self) -> Claims:
        status, generation, events, host = c_uint32(), c_uint32(), c_uint64(), c_uint64()
        _lib.harness_doorbell_claims(
            self._page, ctypes.byref(status), ctypes.byref(generation), ctypes.byref(events), ctypes.byref(host)
        )
        return Claims(status.value, generation.value, events.value, host.value)

    def read_reply(self) -> tuple[bytes, int]:
        """The reply, copied out, and its generation (read before the bytes)."""
        generation = c_uint32()
        n = _checked(_lib.harness_reply_read(self._page, self._buffer, DOORBELL_REPLY_MAX, ctypes.byref(generation)))
        return ctypes.string_at(self._buffer, n), generation.value


# --- a child's allocations (native/heap.h) ---


def heap_set(base: int, size: int) -> None:
    """Serve torch's pool from these addresses; base is a multiple of 512."""
    _checked(_lib.harness_heap_set(base, size))


def place_set(base: int, size: int) -> None:
    """Serve the next blocks of a pool over harness_place_malloc() from here; base is a multiple of 512."""
    _checked(_lib.harness_place_set(base, size))


# --- the GPU (native/gpu.h) ---


def gpu_init(ordinal: int) -> None:
    """Make the device's primary context (torch shares it) current."""
    _checked(_lib.harness_gpu_init(ordinal))


def gpu_arena_create(size: int) -> tuple[int, int, int, int]:
    """(descriptor, address, actual size, handle) of memory that a process with the descriptor may map.

    The descriptor is the caller's; actual size and handle are for gpu_arena_free().
    """
    fd, address, actual, handle = c_int(-1), c_uint64(), c_uint64(), c_uint64()
    _checked(
        _lib.harness_gpu_arena_create(
            size, ctypes.byref(fd), ctypes.byref(address), ctypes.byref(actual), ctypes.byref(handle)
        )
    )
    return fd.value, address.value, actual.value, handle.value


def gpu_arena_import(fd: int, size: int) -> tuple[int, int]:
    """(address, handle) of another process' arena of that actual size. The descriptor stays the caller's."""
    address, handle = c_uint64(), c_uint64()
    _checked(_lib.harness_gpu_arena_import(fd, size, ctypes.byref(address), ctypes.byref(handle)))
    return address.value, handle.value


def gpu_arena_free(address: int, size: int, handle: int) -> None:
    """Unmap and let go; the memory is free once every process has."""
    _checked(_lib.harness_gpu_arena_free(address, size, handle))


def gpu_fill32(address: int, pattern: int, size: int) -> None:
    """Queued on the default stream; address and size are multiples of 4."""
    _checked(_lib.harness_gpu_fill32(address, pattern, size))


def gpu_copy(to: int, source: int, size: int) -> None:
    """Device to device, queued on the default stream."""
    _checked(_lib.harness_gpu_copy(to, source, size))


def gpu_sync() -> None:
    _checked(_lib.harness_gpu_sync())


class _Image(ctypes.Structure):
    _fields_ = [("module", c_uint64), ("function", c_uint64), ("spill_bytes", c_int32)]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("function", c_uint64),
        ("grid", c_uint32 * 3),
        ("threads", c_uint32),
        ("cluster", c_uint32),
        ("shared_bytes", c_uint32),
        ("is_cooperative", c_uint32),
        ("is_overlapping", c_uint32),
    ]


class _TensorMap(ctypes.Structure):
    _fields_ = [
        ("address", c_uint64),
        ("rank", c_uint32),
        ("type", c_int32),
        ("swizzle", c_int32),
        ("fill", c_int32),
        ("shape", c_uint64 * 5),
        ("stride_bytes", c_uint64 * 5),
        ("box", c_uint32 * 5),
    ]


@dataclass(frozen=True)
class Image:
    """A kernel that is loaded; image_free(module) ends it."""

    module: int
    function: int
    spill_bytes: int  # local memory of one thread


def image_load(image: bytes, name: str, shared_bytes: int) -> Image:
    """A cubin's kernel, loaded into the current context; shared_bytes: dynamic, as each launch will ask for."""
    c = _Image()
    _checked(_lib.harness_image_load(image, name.encode(), shared_bytes, ctypes.byref(c)))
    return Image(c.module, c.function, c.spill_bytes)


def image_free(module: int) -> None:
    _checked(_lib.harness_image_free(module))


@dataclass(frozen=True)
class LaunchShape:
    """All of a launch but its grid and its arguments: threads of a block, blocks of a cluster, dynamic shared bytes."""

    function: int
    threads: int
    cluster: int
    shared_bytes: int
    is_cooperative: bool
    is_overlapping: bool


def launch(shape: LaunchShape, grid: tuple[int, int, int], arguments: list[bytes], stream: int) -> None:
    """Queue one launch. arguments: the kernel's parameters in order, each as it lies in memory."""
    c = _Launch(
        shape.function,
        (c_uint32 * 3)(*grid),
        shape.threads,
        shape.cluster,
        shape.shared_bytes,
        int(shape.is_cooperative),
        int(shape.is_overlapping),
    )
    kept = [_aligned(argument) for argument in arguments]
    pointers = (c_void_p * max(1, len(kept)))(*(address for _, address in kept))
    _checked(_lib.harness_launch(ctypes.byref(c), stream, pointers, len(kept)))


def _aligned(data: bytes) -> tuple[Any, int]:
    """A copy at an address that is a multiple of 64, as a tensor map needs: what holds it, and where it is."""
    room = ctypes.create_string_buffer(len(data) + 64)
    address = (ctypes.addressof(room) + 63) // 64 * 64
    ctypes.memmove(address, data, len(data))
    return room, address


def tensor_map(
    address: int,
    *,
    type_: int,
    swizzle: int,
    fill: int,
    shape: Sequence[int],
    stride_bytes: Sequence[int],
    box: Sequence[int],
) -> bytes:
    """128 bytes that describe a tensor to the memory accelerator. Sizes: innermost dimension first, elements;
    stride_bytes: of the second dimension on."""
    c = _TensorMap(address, len(shape), type_, swizzle, fill)
    for into, values in ((c.shape, shape), (c.stride_bytes, stride_bytes), (c.box, box)):
        into[: len(values)] = list(values)
    room, at = _aligned(bytes(128))
    _checked(_lib.harness_tensor_map(ctypes.byref(c), at))
    return ctypes.string_at(at, 128) if room else b""


def flush_setup(size: int = 0) -> None:
    """Before gpu_flush(); 0: twice the L2 cache. Again with no more is fine."""
    _checked(_lib.harness_gpu_flush_setup(size))


def gpu_flush() -> None:
    """Wash the L2 cache and wait until that is done."""
    _checked(_lib.harness_gpu_flush())


def canary_setup() -> None:
    """Before canary_run(). Again is fine."""
    _checked(_lib.harness_canary_setup())


def canary_run(steps: int) -> int:
    """A known kernel of `steps` steps, alone: nanoseconds from its launch to its end, by the host's clock."""
    ns = c_int64()
    _checked(_lib.harness_canary_run(steps, ctypes.byref(ns)))
    return ns.value


def scrub() -> None:
    """Overwrite what kernels have left on the chip, once all of this process's have ended (native/scrub.h)."""
    _checked(_lib.harness_scrub())


def pause_setup() -> None:
    """Before pause(). Again is fine."""
    _checked(_lib.harness_pause_setup())


def pause(ns: int) -> None:
    """Queue a kernel on the default stream that does nothing for so long by the GPU's clock; 1 or more."""
    _checked(_lib.harness_pause(ns))


def gate_setup() -> None:
    """Before gate(). Again is fine."""
    _checked(_lib.harness_gate_setup())


def gate(most_ns: int) -> None:
    """Queue a kernel on the default stream that ends once gate_open() is called, or so long after its start. What was
    to persist in the L2 cache may be washed away from now on."""
    _checked(_lib.harness_gate(most_ns))


def gate_open() -> None:
    """For all gates so far."""
    _checked(_lib.harness_gate_open())


_WORD = 8
"""Bytes that the gather reads at once, at most: an element of 16 (complex128) is two such words."""


def gather_setup(most: int) -> None:
    """For gathers of at most `most` elements. It may be called again with no more."""
    _checked(_lib.harness_gather_setup(2 * most))


def gather_set_pointers(addresses: torch.Tensor, width: int) -> None:
    """The addresses of the next gathers: elements of 1, 2, 4, 8 or 16 bytes there (int64, on the host)."""
    import torch

    if addresses.element_size() != 8 or addresses.device.type != "cpu" or not addresses.is_contiguous():
        raise ValueError("the addresses must be a contiguous int64 tensor on the host")
    if width > _WORD:
        words = torch.arange(0, width, _WORD, dtype=torch.int64)
        addresses, width = (addresses[:, None] + words).reshape(-1), _WORD
    n = addresses.numel()
    widths = (c_uint32 * n)(*[width] * n)
    _checked(_lib.harness_gather_set(addresses.data_ptr(), widths, n))


def gather_read(n: int, dtype: torch.dtype) -> torch.Tensor:
    """The last gather's elements, on the host."""
    import torch

    words = max(1, dtype.itemsize // _WORD)
    slots = torch.zeros(n * words, dtype=torch.int64)
    _checked(_lib.harness_gather_read(slots.data_ptr(), n * words))
    return slots.view(torch.uint8).view(n, words * _WORD)[:, : dtype.itemsize].contiguous().view(dtype).reshape(n)


# --- the clock (native/timer.h) ---


class _Clock(ctypes.Structure):
    """struct harness_clock."""

    _fields_ = (
        ("page", c_void_p),
        ("spin_ns", c_int64),
        ("timeout_ns", c_int64),
        ("pidfd", c_int32),
        ("set", c_uint32),
        ("calls", c_uint32),
        ("sets", c_uint32),
        ("expected_generation", c_uint32),
        ("head_steps", c_uint32),
        ("bell", c_uint32),
        ("status", c_uint32),
        ("generation", c_uint32),
        ("events_ns", c_uint64),
        ("host_ns", c_uint64),
        ("head_ns", c_int64),
        ("started_ns", c_int64),
        ("answered_ns", c_int64),
        ("ended_ns", c_int64),
    )


class ClockCall:
    """One bell, timed from the ring to the end of the gather of what gather_set_pointers() named."""

    MOVED = 1

    def __init__(
        self,
        doorbell: Doorbell,
        set_: int,
        pidfd: int,
        spin_ns: int,
        timeout_ns: int,
        expected_generation: int,
        head_steps: int = 0,
    ) -> None:
        """expected_generation: that of the reply which the addresses come from; -1: none.

        head_steps: of a canary that is launched before the ring, and at whose end the clock starts; 0: none.
        """
        self._doorbell = doorbell  # keeps the page mapped
        self._ns = c_int64()
        self.elapsed_ns = 0
        """From the ring, or the end of its canary, to the end of the gather; to the answer where the call raised."""
        self._c = _Clock(
            page=doorbell.address,
            spin_ns=spin_ns,
            timeout_ns=timeout_ns,
            pidfd=pidfd,
            set=set_,
            calls=1,
            sets=1,
            expected_generation=expected_generation & 0xFFFFFFFF,
            head_steps=head_steps,
        )

    def run(self, calls: int = 1, sets: int = 1) -> bool:
        """Ring, await, gather. ChildDiedError, BellTimeoutError.

        True: the reply is not that of expected_generation, the clock runs on: read it, gather_set_pointers(),
        finish(). A call that raised (the page's claims say so) is not gathered.
        """
        self._c.calls, self._c.sets = calls, sets
        code = _checked(_lib.harness_clock_call(ctypes.byref(self._c), ctypes.byref(self._ns)))
        self.elapsed_ns = self._ns.value if code == 0 else self.answered_ns
        return code == self.MOVED

    def finish(self) -> None:
        """After run() said True: gather and stop the clock."""
        _checked(_lib.harness_clock_finish(ctypes.byref(self._c), ctypes.byref(self._ns)))
        self.elapsed_ns = self._ns.value

    @property
    def head_ns(self) -> int:
        """From the launch of the canary before the ring to its end; 0 where there was none."""
        return int(self._c.head_ns)

    @property
    def answered_ns(self) -> int:
        """From the start of the clock to the answer."""
        return int(self._c.answered_ns - self._c.started_ns)


# --- statistics (native/stopping.h, common/statistics.h) ---

STOP_GO_ON, STOP_NARROW, STOP_ALL, STOP_SPENT = range(4)
MEASURED, INCONCLUSIVE, TOO_SMALL = range(3)


class _StopRule(ctypes.Structure):
    _fields_ = (
        ("least", c_uint64),
        ("most", c_uint64),
        ("every", c_uint64),
        ("narrow", c_double),
        ("is_fixed", c_int32),
    )


def _doubles(samples: Sequence[float]) -> ctypes.Array[c_double]:
    return (c_double * len(samples))(*samples)


@dataclass(frozen=True)
class StopRule:
    """When a timing has enough pairs: `least` and `most` of them, checked every `every` pairs, or once narrow."""

    least: int
    most: int
    every: int
    narrow: float
    is_fixed: bool

    def decide(self, reference: Sequence[float], candidate: Sequence[float], *, is_spent: bool) -> int:
        """STOP_GO_ON, STOP_NARROW, STOP_ALL or STOP_SPENT after these pairs of times."""
        n = min(len(reference), len(candidate))
        c = _StopRule(self.least, self.most, self.every, self.narrow, int(self.is_fixed))
        return _checked(
            _lib.harness_stats_stop(ctypes.byref(c), _doubles(reference), _doubles(candidate), n, int(is_spent))
        )


def judge_samples(
    reference: Sequence[float], candidate: Sequence[float], smallest: float, wide: float
) -> tuple[int, float]:
    """MEASURED, INCONCLUSIVE or TOO_SMALL, and the interval's half width on the logarithmic scale (or NaN)."""
    half_width = c_double()
    n = min(len(reference), len(candidate))
    outcome = _checked(
        _lib.harness_stats_judge(_doubles(reference), _doubles(candidate), n, smallest, wide, ctypes.byref(half_width))
    )
    return outcome, half_width.value


# --- NVML (native/nvml.h) ---

_NVML_UNKNOWN = 2**32 - 1
_NVML_PIDS_MAX = 64


class _NvmlState(ctypes.Structure):
    """struct harness_nvml_state."""

    _fields_ = (
        ("throttle_reasons", c_uint64),
        ("sm_clock_mhz", c_uint32),
        ("mem_clock_mhz", c_uint32),
        ("temp_c", c_uint32),
        ("power_mw", c_uint32),
        ("ecc_errors", c_uint32),
        ("n_processes", c_uint32),
        ("pids", c_uint32 * _NVML_PIDS_MAX),
    )


def driver_version() -> str:
    """The driver's own, such as "580.65.06"."""
    out = ctypes.create_string_buffer(96)
    _checked(_lib.harness_nvml_driver(out, len(out)))
    return out.value.decode()


@functools.cache
def _open_nvml() -> None:
    """Once: for the GPU of gpu_init()."""
    name = ctypes.create_string_buffer(32)
    _checked(_lib.harness_gpu_pci_bus_id(name, len(name)))
    _checked(_lib.harness_nvml_open(name))


def nvml_state() -> dict[str, Any]:
    """Clocks, temperature and the processes on the GPU of gpu_init(). None: the GPU does not provide that figure."""
    _open_nvml()
    c = _NvmlState()
    _checked(_lib.harness_nvml_state(ctypes.byref(c)))
    state: dict[str, Any] = {name: getattr(c, name) for name, _ in _NvmlState._fields_ if name != "pids"}
    for name, value in state.items():
        if value == _NVML_UNKNOWN:
            state[name] = None
    state["pids"] = list(c.pids[: min(state["n_processes"] or 0, _NVML_PIDS_MAX)])
    return state


# --- processes and the sandbox (native/process.h, native/sandbox.h, docs/sandbox.md) ---

_REPORT_MAX = 8192


class _Sandbox(ctypes.Structure):
    """struct harness_sandbox."""

    _fields_ = (
        ("scratch", c_char_p),
        ("uid", c_int64),
        ("memory_bytes", c_uint64),
        ("file_bytes", c_uint64),
        ("files", c_uint64),
        ("processes", c_uint64),
        ("layers", c_uint64),
        ("zygote", c_uint64),
        ("has_gpus", c_uint64),
        ("may_connect", c_uint64),
        ("keep", ctypes.POINTER(c_int)),
        ("n_keep", c_uint64),
        ("hidden", ctypes.POINTER(c_char_p)),
        ("shown", ctypes.POINTER(c_char_p)),
    )


@dataclass(frozen=True)
class SandboxSettings:
    """The limits and rights of one child. 0 bytes, files or processes: no limit of ours."""

    scratch: Path  # its own directory, absolute; becomes its current directory
    uid: int | None = None  # own uid and gid, where the zygote runs as root
    memory_bytes: int = 0  # RLIMIT_DATA
    file_bytes: int = 0  # RLIMIT_FSIZE
    files: int = 512  # of one process; torch and a CUDA context hold some hundred
    processes: int = 4096  # threads count too
    has_gpus: bool = False  # /dev/nvidia* may be used
    may_connect: bool = False  # to sockets of this machine: for trusted programs alone
    keep: tuple[int, ...] = ()  # descriptors in addition to 0, 1, 2
    hidden: tuple[Path, ...] = ()  # directories shown empty, but for scratch
    shown: tuple[Path, ...] = ()  # and for these directories below them


@dataclass(frozen=True)
class SandboxPlan:
    """The layers that the host has, found once by a zygote, for its children."""

    layers: int
    zygote: int
    report: dict[str, str]  # layer -> "on" or "absent: why"


def _path_list(paths: tuple[Path, ...]) -> ctypes.Array[c_char_p]:
    return (c_char_p * (len(paths) + 1))(*[os.fsencode(path) for path in paths], None)


def _sandbox(settings: SandboxSettings, layers: int, zygote: int) -> _Sandbox:
    return _Sandbox(
        scratch=os.fsencode(settings.scratch),
        uid=-1 if settings.uid is None else settings.uid,
        memory_bytes=settings.memory_bytes,
        file_bytes=settings.file_bytes,
        files=settings.files,
        processes=settings.processes,
        layers=layers,
        zygote=zygote,
        has_gpus=settings.has_gpus,
        may_connect=settings.may_connect,
        keep=(c_int * max(1, len(settings.keep)))(*settings.keep),
        n_keep=len(settings.keep),
        hidden=_path_list(settings.hidden),
        shown=_path_list(settings.shown),
    )


def _layers(report: ctypes.Array[ctypes.c_char]) -> dict[str, str]:
    layers: dict[str, str] = json.loads(report.value.decode("utf-8", "replace"))
    return layers


def isolate_zygote() -> int:
    """Go on as the init of a new PID namespace; the caller stays behind as its guard and never returns.

    Single-threaded, before big imports (the guard keeps the memory of earlier ones). Returns SandboxPlan.zygote: 1 done
    as root, 2 in a new user namespace, 0 the host allows neither, and the caller itself goes on.
    """
    mode = _checked(_lib.harness_zygote_unshare())
    if mode == 0:
        return 0
    pid = os.fork()
    if pid != 0:
        _lib.harness_zygote_guard(pid)
    die_with_parent()
    return mode


def closed_ancestors(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The topmost directories on the way to these paths that a stranger's uid cannot pass, such as a home's 0700.

    With them in SandboxSettings.hidden and the paths in .shown, a child reaches the paths and nothing else there.
    """
    closed: set[Path] = set()
    for path in paths:
        for directory in (*reversed(path.parents), path):
            if directory.is_dir() and not directory.stat().st_mode & stat.S_IXOTH:
                closed.add(directory)
                break
    return tuple(sorted(closed))


def probe_sandbox(settings: SandboxSettings, zygote: int) -> SandboxPlan:
    """Try every layer in a short-lived fork, with a scratch directory and uid such as children get."""
    report = ctypes.create_string_buffer(_REPORT_MAX)
    layers = c_uint64()
    c = _sandbox(settings, 0, zygote)
    _checked(_lib.harness_sandbox_probe(ctypes.byref(c), ctypes.byref(layers), report, _REPORT_MAX))
    return SandboxPlan(layers.value, zygote, _layers(report))


def fork_child(plan: SandboxPlan) -> int:
    """os.fork(), the child being the init of its own PID namespace where the plan says so."""
    if not _lib.harness_sandbox_wants_pid_namespace(plan.layers):
        return os.fork()
    namespace = _checked(_lib.harness_pid_namespace_begin())
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            _checked(_lib.harness_pid_namespace_end(namespace))
    return pid


def enter_sandbox(settings: SandboxSettings, plan: SandboxPlan) -> dict[str, str]:
    """Give up everything, in a forked child, before foreign code. After a NativeError the process must exit.

    Closes every descriptor but 0, 1, 2 and `keep`: Python objects that own one must not be closed afterwards.
    """
    report = ctypes.create_string_buffer(_REPORT_MAX)
    c = _sandbox(settings, plan.layers, plan.zygote)
    _checked(_lib.harness_sandbox_enter(ctypes.byref(c), report, _REPORT_MAX))
    return _layers(report)


def check_readable(settings: SandboxSettings, plan: SandboxPlan, paths: Iterable[Path]) -> None:
    """NativeError naming the first of these paths that a child in this sandbox cannot read.

    An interpreter that others may not reach would otherwise fail somewhere in every child.
    """
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    pid = fork_child(plan)
    if pid == 0:
        try:
            enter_sandbox(replace(settings, keep=(write_end,)), plan)
            needs = ((path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK) for path in paths)
            closed = next((str(path) for path, mode in needs if not os.access(path, mode)), "")
        except OSError as error:
            closed = str(error)
        os.write(write_end, closed.encode("utf-8", "replace"))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        closed = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    if closed or status != 0:
        raise NativeError(
            errno.EACCES,
            f"children of uid {settings.uid} cannot read {closed or 'what they need'}: use an interpreter and a "
            "directory that others may read, or start as an ordinary user",
        )


def die_with_parent() -> None:
    """SIGKILL when the parent dies."""
    _checked(_lib.harness_die_with_parent())


def close_to_others() -> None:
    """For the init above foreign code, which shares its uid: no reaching its memory or descriptors through /proc."""
    _checked(_lib.harness_close_to_others())


def signal_nobody() -> None:
    """From now on this process can signal only itself."""
    _checked(_lib.harness_signal_nobody())


CORES_MOST: Final = 1024
"""Of a machine: what a set of cores has room for."""


def pin(pidfd: int, cores: Iterable[int]) -> int:
    """Let a stopped process and all below it run on these cores only: how many threads that are."""
    wanted = sorted(cores)
    return _checked(_lib.harness_pin(pidfd, (c_int32 * len(wanted))(*wanted), len(wanted)))


def cores_of(pidfd: int) -> list[int]:
    """The cores on which a process may run now."""
    found = (c_int32 * CORES_MOST)()
    return list(found[: _checked(_lib.harness_cores_of(pidfd, found, CORES_MOST))])


def stop(pidfd: int) -> int:
    """Freeze a child and all below it, and wait until they are still. The number of processes."""
    return _checked(_lib.harness_stop(pidfd))


def cont(pidfd: int) -> int:
    """Let them run again."""
    return _checked(_lib.harness_cont(pidfd))


# --- what a child holds (native/watch.h) ---

EXCESSES = (None, "memory", "disk", "descriptors")
"""The excesses that watch() reports, by the library's number."""


def kill_group(pid: int) -> None:
    """Kill the processes that a child not yet reaped started and left: all of them are in its process group.

    A PID namespace ends with its init. Without one no process leaves the group (seccomp.c), and the number is the
    child's own until it is reaped.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class _Usage(ctypes.Structure):
    """struct harness_usage."""

    _fields_ = (
        ("memory_bytes", c_uint64),
        ("disk_bytes", c_uint64),
        ("files", c_uint64),
        ("descriptors", c_uint64),
        ("processes", c_uint64),
    )


@dataclass(frozen=True)
class Usage:
    """The use by a child and its descendants, and the limit that is exceeded: one of EXCESSES."""

    excess: str | None
    memory_bytes: int
    disk_bytes: int
    files: int
    descriptors: int
    processes: int


def watch(pidfd: int, scratch: Path, memory_bytes: int, disk_bytes: int) -> Usage:
    """ChildDiedError when it is dead. 0 bytes: no limit."""
    c = _Usage()
    code = _checked(_lib.harness_watch(pidfd, os.fsencode(scratch), memory_bytes, disk_bytes, ctypes.byref(c)))
    return Usage(EXCESSES[code], c.memory_bytes, c.disk_bytes, c.files, c.descriptors, c.processes)
