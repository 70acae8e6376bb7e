"""The C helper library (native/*.h tells each call's contract), seen from Python.

Thin on purpose: a call that fails raises NativeError with the library's own words, nothing else is added. The
library is ../libharness.so beside the harness' directory; VERIFIERD_LIBHARNESS names another file.
"""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
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
