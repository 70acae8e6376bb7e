"""The C helper library (native/*.h tells each call's contract), seen from Python.

Thin on purpose: a call that fails raises NativeError with the library's own words, nothing else is added. The
library is ../libharness.so beside the harness' directory; VERIFIERD_LIBHARNESS names another file.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

DOORBELL_REPLY_MAX = 64 * 1024
STATUS_OK = 0
STATUS_RAISED = 1


class NativeError(OSError):
    """A library call failed: errno and the library's text."""


class ChildDiedError(NativeError):
    """The process died before it answered."""


class BellTimeoutError(NativeError):
    """Nothing happened within the time allowed."""


_ERRORS: dict[int, type[NativeError]] = {errno.ESRCH: ChildDiedError, errno.ETIMEDOUT: BellTimeoutError}


def library_path() -> Path:
    named = os.environ.get("VERIFIERD_LIBHARNESS")
    return Path(named) if named else Path(__file__).resolve().parent.parent / "libharness.so"


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
    "harness_doorbell_answer": (None, [c_void_p, c_uint32, c_uint32, c_uint64]),
    "harness_doorbell_ring": (c_uint32, [c_void_p, c_uint32, c_uint32, c_uint32]),
    "harness_doorbell_await": (c_int, [c_void_p, c_uint32, c_int, c_int64, c_int64]),
    "harness_doorbell_claims": (None, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "harness_reply_read": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "harness_heap_set": (c_int, [c_uint64, c_uint64]),
    "harness_heap_used": (c_uint64, []),
    "harness_heap_peak": (c_uint64, []),
    "harness_heap_spilled": (c_uint64, []),
    "harness_heap_reset_peak": (None, []),
    "harness_arena_malloc": (c_void_p, [c_ssize_t, c_int, c_void_p]),
    "harness_arena_free": (None, [c_void_p, c_ssize_t, c_int, c_void_p]),
    "harness_gpu_init": (c_int, [c_int, c_int]),
    "harness_gpu_get_info": (c_int, [c_void_p]),
    "harness_gpu_arena_create": (c_int, [c_uint64, c_void_p, c_void_p, c_void_p, c_void_p]),
    "harness_gpu_arena_import": (c_int, [c_int, c_uint64, c_void_p, c_void_p]),
    "harness_gpu_arena_free": (c_int, [c_uint64, c_uint64, c_uint64]),
    "harness_gpu_fill32": (c_int, [c_uint64, c_uint32, c_uint64]),
    "harness_gpu_copy": (c_int, [c_uint64, c_uint64, c_uint64]),
    "harness_gpu_sync": (c_int, []),
    "harness_gpu_mem_info": (c_int, [c_void_p, c_void_p]),
    "harness_gpu_flush_setup": (c_int, [c_uint64]),
    "harness_gpu_flush": (c_int, []),
    "harness_gather_setup": (c_int, [c_uint32]),
    "harness_gather_set": (c_int, [c_void_p, c_void_p, c_uint32]),
    "harness_gather_run": (c_int, []),
    "harness_gather_read": (c_int, [c_void_p, c_uint32]),
    "harness_clock_call": (c_int, [c_void_p, c_void_p]),
    "harness_clock_finish": (c_int, [c_void_p, c_void_p]),
    "harness_nvml_open": (c_int, [c_char_p]),
    "harness_nvml_driver": (c_int, [c_void_p, c_uint32]),
    "harness_nvml_state": (c_int, [c_void_p]),
    "harness_zygote_unshare": (c_int, []),
    "harness_zygote_guard": (None, [c_int]),
    "harness_die_with_parent": (c_int, []),
    "harness_pid_namespace_begin": (c_int, []),
    "harness_pid_namespace_end": (c_int, [c_int]),
    "harness_stop": (c_int, [c_int]),
    "harness_cont": (c_int, [c_int]),
    "harness_sandbox_enter": (c_int, [c_void_p, c_void_p, c_size_t]),
    "harness_sandbox_probe": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "harness_sandbox_wants_pid_namespace": (c_int, [c_uint64]),
}


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_path()))
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
    """What a child says of its answer. Shown, compared, never believed."""

    status: int
    generation: int
    events_ns: int


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

    def answer(self, bell: int, status: int = STATUS_OK, events_ns: int = 0) -> None:
        _lib.harness_doorbell_answer(self._page, bell, status, events_ns)

    # the referee's end

    def ring(self, set_: int, calls: int, sets: int) -> int:
        """The number of the bell, for await_answer()."""
        return int(_lib.harness_doorbell_ring(self._page, set_, calls, sets))

    def await_answer(self, bell: int, pidfd: int, spin_ns: int, timeout_ns: int) -> None:
        """ChildDiedError, BellTimeoutError."""
        _checked(_lib.harness_doorbell_await(self._page, bell, pidfd, spin_ns, timeout_ns))

    def claims(self) -> Claims:
        status, generation, events = c_uint32(), c_uint32(), c_uint64()
        _lib.harness_doorbell_claims(
            self._page, ctypes.byref(status), ctypes.byref(generation), ctypes.byref(events)
        )
        return Claims(status.value, generation.value, events.value)

    def read_reply(self) -> tuple[bytes, int]:
        """The reply, copied out, and its generation (read before the bytes)."""
        generation = c_uint32()
        n = _checked(
            _lib.harness_reply_read(self._page, self._buffer, DOORBELL_REPLY_MAX, ctypes.byref(generation))
        )
        return self._buffer.raw[:n], generation.value


# --- a child's allocations (native/heap.h) ---

ALLOC_FUNCTION = "harness_arena_malloc"  # for torch.cuda.memory.CUDAPluggableAllocator(library_path(), …)
FREE_FUNCTION = "harness_arena_free"


def heap_set(base: int, size: int) -> None:
    """Serve torch's pool from these addresses; base is a multiple of 512."""
    _checked(_lib.harness_heap_set(base, size))


@dataclass(frozen=True)
class HeapFigures:
    used: int  # bytes of the heap in use
    spilled: int  # bytes that the driver had to give
    peak: int  # most of both together


def heap_figures() -> HeapFigures:
    return HeapFigures(_lib.harness_heap_used(), _lib.harness_heap_spilled(), _lib.harness_heap_peak())


def heap_reset_peak() -> None:
    _lib.harness_heap_reset_peak()


# --- the GPU (native/gpu.h) ---


class _GpuInfo(ctypes.Structure):
    """struct harness_gpu_info."""

    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("uuid", ctypes.c_char * 48),
        ("pci_bus_id", ctypes.c_char * 32),
        ("memory_bytes", c_uint64),
        ("l2_bytes", c_uint64),
        ("major", c_int32),
        ("minor", c_int32),
        ("sm_count", c_int32),
        ("driver_cuda", c_int32),
    )


@dataclass(frozen=True)
class GpuInfo:
    name: str
    uuid: str
    pci_bus_id: str
    memory_bytes: int
    l2_bytes: int
    capability: str  # "9.0"
    sm_count: int
    driver_cuda: int  # 13000: the driver speaks CUDA 13.0


@dataclass(frozen=True)
class GpuArena:
    """GPU memory that can be shared; size is its actual size, handle belongs to gpu_arena_free()."""

    address: int
    size: int
    handle: int


def gpu_init(ordinal: int, spinning: bool = False) -> None:
    """Make the device's primary context (torch shares it) current; spinning: the host spins for the GPU."""
    _checked(_lib.harness_gpu_init(ordinal, int(spinning)))


def gpu_info() -> GpuInfo:
    c = _GpuInfo()
    _checked(_lib.harness_gpu_get_info(ctypes.byref(c)))
    return GpuInfo(
        name=c.name.decode(),
        uuid=c.uuid.decode(),
        pci_bus_id=c.pci_bus_id.decode(),
        memory_bytes=c.memory_bytes,
        l2_bytes=c.l2_bytes,
        capability=f"{c.major}.{c.minor}",
        sm_count=c.sm_count,
        driver_cuda=c.driver_cuda,
    )


def gpu_arena_create(size: int) -> tuple[GpuArena, int]:
    """At least size bytes, and the descriptor that lets a child map them (the caller closes it once sent)."""
    fd, address, actual, handle = c_int(-1), c_uint64(), c_uint64(), c_uint64()
    _checked(
        _lib.harness_gpu_arena_create(
            size, ctypes.byref(fd), ctypes.byref(address), ctypes.byref(actual), ctypes.byref(handle)
        )
    )
    return GpuArena(address.value, actual.value, handle.value), fd.value


def gpu_arena_import(fd: int, size: int) -> GpuArena:
    """Map another process' arena; size is its actual size. The descriptor stays the caller's."""
    address, handle = c_uint64(), c_uint64()
    _checked(_lib.harness_gpu_arena_import(fd, size, ctypes.byref(address), ctypes.byref(handle)))
    return GpuArena(address.value, size, handle.value)


def gpu_arena_free(arena: GpuArena) -> None:
    _checked(_lib.harness_gpu_arena_free(arena.address, arena.size, arena.handle))


def gpu_fill32(address: int, pattern: int, size: int) -> None:
    """Queued on the default stream; address and size are multiples of 4."""
    _checked(_lib.harness_gpu_fill32(address, pattern, size))


def gpu_copy(to: int, source: int, size: int) -> None:
    """Device to device, queued on the default stream."""
    _checked(_lib.harness_gpu_copy(to, source, size))


def gpu_sync() -> None:
    _checked(_lib.harness_gpu_sync())


def gpu_mem_info() -> tuple[int, int]:
    """Bytes free and in all."""
    free, total = c_uint64(), c_uint64()
    _checked(_lib.harness_gpu_mem_info(ctypes.byref(free), ctypes.byref(total)))
    return free.value, total.value


def gpu_flush_setup(size: int = 0) -> None:
    """Once, before gpu_flush(); 0: twice the L2 cache."""
    _checked(_lib.harness_gpu_flush_setup(size))


def gpu_flush() -> None:
    """Wash the L2 cache and wait until that is done."""
    _checked(_lib.harness_gpu_flush())


def gather_setup(most: int) -> None:
    _checked(_lib.harness_gather_setup(most))


def gather_set(addresses: Sequence[int], widths: Sequence[int]) -> None:
    """What the next gathers read: widths of 1, 2, 4 or 8 bytes at addresses aligned to them."""
    if len(addresses) != len(widths):
        raise ValueError(f"{len(addresses)} addresses and {len(widths)} widths")
    n = len(addresses)
    _checked(_lib.harness_gather_set((c_uint64 * n)(*addresses), (c_uint32 * n)(*widths), n))


def gather_run() -> None:
    """Gather now, outside the clock."""
    _checked(_lib.harness_gather_run())


def gather_read(n: int) -> list[int]:
    """The last gather's elements as unsigned integers, upper bytes zero."""
    out = (c_uint64 * n)()
    _checked(_lib.harness_gather_read(out, n))
    return list(out)


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
        ("bell", c_uint32),
        ("status", c_uint32),
        ("generation", c_uint32),
        ("events_ns", c_uint64),
        ("started_ns", c_int64),
        ("answered_ns", c_int64),
        ("ended_ns", c_int64),
    )


@dataclass(frozen=True)
class Timed:
    """One bell's time: ns from the ring to the end of the gather. moved and raised: see Clock.call()."""

    ns: int
    answered_ns: int  # of it, until the answer
    events_ns: int  # the child's claim
    generation: int
    moved: bool
    raised: bool


class Clock:
    """Times bells of one child; the gather's addresses are set beforehand by gather_set()."""

    MOVED = 1
    RAISED = 2

    def __init__(self, doorbell: Doorbell, pidfd: int, spin_ns: int, timeout_ns: int) -> None:
        self._doorbell = doorbell  # keeps the page mapped
        self._c = _Clock(page=doorbell.address, spin_ns=spin_ns, timeout_ns=timeout_ns, pidfd=pidfd)
        self._ns = c_int64()

    def call(self, set_: int, calls: int, sets: int, expected_generation: int) -> Timed:
        """Ring, await, gather. ChildDiedError, BellTimeoutError.

        moved: the reply is not that of expected_generation, and the clock still runs: read it, gather_set(),
        then finish(). raised: the child says that its call failed; nothing was gathered.
        """
        c = self._c
        c.set, c.calls, c.sets, c.expected_generation = set_, calls, sets, expected_generation
        code = _checked(_lib.harness_clock_call(ctypes.byref(c), ctypes.byref(self._ns)))
        return self._timed(code)

    def finish(self) -> Timed:
        """After moved: gather and stop the clock."""
        return self._timed(_checked(_lib.harness_clock_finish(ctypes.byref(self._c), ctypes.byref(self._ns))))

    def _timed(self, code: int) -> Timed:
        c = self._c
        return Timed(
            ns=self._ns.value if code == 0 else c.answered_ns - c.started_ns,
            answered_ns=c.answered_ns - c.started_ns,
            events_ns=c.events_ns,
            generation=c.generation,
            moved=code == self.MOVED,
            raised=code == self.RAISED,
        )


# --- NVML (native/nvml.h) ---

_NVML_UNKNOWN = 2**32 - 1
_NVML_PIDS_MAX = 64


class _NvmlState(ctypes.Structure):
    """struct harness_nvml_state."""

    _fields_ = (
        ("throttle_reasons", c_uint64),
        ("mem_used_bytes", c_uint64),
        ("mem_total_bytes", c_uint64),
        ("sm_clock_mhz", c_uint32),
        ("mem_clock_mhz", c_uint32),
        ("sm_clock_max_mhz", c_uint32),
        ("temp_c", c_uint32),
        ("power_mw", c_uint32),
        ("n_processes", c_uint32),
        ("pids", c_uint32 * _NVML_PIDS_MAX),
    )


@dataclass(frozen=True)
class NvmlState:
    """None: the GPU does not tell that figure."""

    throttle_reasons: int
    mem_used_bytes: int
    mem_total_bytes: int
    sm_clock_mhz: int | None
    mem_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    temp_c: int | None
    power_mw: int | None
    n_processes: int | None
    pids: tuple[int, ...]


def nvml_open(pci_bus_id: str) -> None:
    """Choose the GPU: gpu_info().pci_bus_id."""
    _checked(_lib.harness_nvml_open(pci_bus_id.encode()))


def nvml_driver() -> str:
    out = ctypes.create_string_buffer(96)
    _checked(_lib.harness_nvml_driver(out, len(out)))
    return out.value.decode()


def nvml_state() -> NvmlState:
    c = _NvmlState()
    _checked(_lib.harness_nvml_state(ctypes.byref(c)))

    def told(figure: int) -> int | None:
        return None if figure == _NVML_UNKNOWN else figure

    n = told(c.n_processes)
    return NvmlState(
        throttle_reasons=c.throttle_reasons,
        mem_used_bytes=c.mem_used_bytes,
        mem_total_bytes=c.mem_total_bytes,
        sm_clock_mhz=told(c.sm_clock_mhz),
        mem_clock_mhz=told(c.mem_clock_mhz),
        sm_clock_max_mhz=told(c.sm_clock_max_mhz),
        temp_c=told(c.temp_c),
        power_mw=told(c.power_mw),
        n_processes=n,
        pids=tuple(c.pids[: min(n or 0, _NVML_PIDS_MAX)]),
    )


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
        ("keep", ctypes.POINTER(c_int)),
        ("n_keep", c_uint64),
        ("readable", ctypes.POINTER(c_char_p)),
        ("writable", ctypes.POINTER(c_char_p)),
        ("hidden", ctypes.POINTER(c_char_p)),
    )


@dataclass(frozen=True)
class SandboxSettings:
    """What one child may have. 0 bytes, files or processes: no limit of ours."""

    scratch: Path  # its own directory, absolute; becomes its current directory
    uid: int | None = None  # own uid and gid, where the zygote runs as root
    memory_bytes: int = 0  # RLIMIT_DATA
    file_bytes: int = 0  # RLIMIT_FSIZE
    files: int = 4096
    processes: int = 4096  # threads count too
    keep: tuple[int, ...] = ()  # descriptors beside 0, 1, 2
    readable: tuple[Path, ...] = ()  # empty: everything that the uid may read
    writable: tuple[Path, ...] = ()  # beside scratch
    hidden: tuple[Path, ...] = ()  # directories shown empty; scratch below one stays


@dataclass(frozen=True)
class SandboxPlan:
    """What the host has, found once by a zygote, for its children."""

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
        keep=(c_int * max(1, len(settings.keep)))(*settings.keep),
        n_keep=len(settings.keep),
        readable=_path_list(settings.readable),
        writable=_path_list(settings.writable),
        hidden=_path_list(settings.hidden),
    )


def _layers(report: ctypes.Array[ctypes.c_char]) -> dict[str, str]:
    layers: dict[str, str] = json.loads(report.value.decode("utf-8", "replace"))
    return layers


def isolate_zygote() -> int:
    """Go on as the init of a new PID namespace; the caller stays behind as its guard and never returns.

    Single-threaded, before big imports (the guard keeps what is there). Returns SandboxPlan.zygote: 1 done as
    root, 2 in a new user namespace, 0 the host allows neither, and the caller itself goes on.
    """
    mode = _checked(_lib.harness_zygote_unshare())
    if mode == 0:
        return 0
    pid = os.fork()
    if pid != 0:
        _lib.harness_zygote_guard(pid)
    _checked(_lib.harness_die_with_parent())
    return mode


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


def stop(pidfd: int) -> int:
    """Freeze a child and all below it, and wait until they are still. The number of processes."""
    return _checked(_lib.harness_stop(pidfd))


def cont(pidfd: int) -> int:
    """Let them run again."""
    return _checked(_lib.harness_cont(pidfd))
