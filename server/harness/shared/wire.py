"""The worker protocol's transport (proto/worker.md): packets of JSON with descriptors, and sealed memfds.

A receiver checks the size, then parses, then checks types and ranges. A violation of the protocol raises
ProtocolError; a closed channel ChannelClosed. Nothing here depends on the meaning of a message.
"""

from __future__ import annotations

import array
import fcntl
import json
import math
import os
import select
import socket
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

# The same figures stand in proto/worker.h; tests/unit/test_wire.py compares the two.
WORKER_MESSAGE_MAX: Final = 60 * 1024
WORKER_FDS_MAX: Final = 8
WORKER_DETAIL_MAX: Final = 1024 * 1024
WORKER_ERROR_TEXT_MAX: Final = 8 * 1024
DOORBELL_BYTES: Final = 128 * 1024
DOORBELL_REPLY_MAX: Final = 64 * 1024
DOORBELL_OK: Final = 0
DOORBELL_RAISED: Final = 1

SOURCE_MAX: Final = 1024 * 1024
"""Largest source text, in bytes (EXTRACT_MAX in common/extract.h)."""

CANDIDATE_FILE: Final = "candidate.py"
"""The name of a candidate's file in every message."""

_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

Json = dict[str, Any]
_T = TypeVar("_T")


class ProtocolError(Exception):
    """The other end sent something that the protocol does not allow."""


def cores(text: str) -> tuple[int, ...]:
    """The cores of a command line: "13,14,15"; none: any will do."""
    return tuple(int(part) for part in text.split(",")) if text else ()


class ChannelClosed(Exception):
    """The other end is gone."""


def _refuse_constant(text: str) -> NoReturn:
    raise ProtocolError(f"{text} is no JSON number")


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> Json:
    found: Json = {}
    for key, value in pairs:
        if key in found:
            raise ProtocolError(f"key {key!r} appears twice")
        found[key] = value
    return found


def decode(data: bytes) -> Json:
    """One JSON object; duplicate keys, NaN, and anything that is not an object are refused."""
    try:
        found = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse_constant,
            object_pairs_hook=_object_without_duplicates,
        )
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ProtocolError(f"a message must be an object, not {type(found).__name__}")
    return found


def encode(message: Mapping[str, Any]) -> bytes:
    """ValueError for NaN and infinities, which JSON does not have. Halves of characters become "?"."""
    return json.dumps(message, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


@dataclass(frozen=True)
class Message:
    """One packet: its object, and the descriptors that came with it, by name.

    The descriptors belong to the message until they are taken; close() closes those that are left.
    """

    body: Json
    fds: dict[str, int] = field(default_factory=dict)

    def text(self, key: str) -> str:
        return self._typed(key, str)

    def optional_text(self, key: str) -> str | None:
        return None if self.body.get(key) is None else self.text(key)

    def integer(self, key: str, least: int, most: int) -> int:
        found = self._typed(key, int)
        if isinstance(found, bool) or not least <= found <= most:
            raise ProtocolError(f"{key} must be an integer from {least} to {most}, not {found!r}")
        return found

    def boolean(self, key: str) -> bool:
        return self._typed(key, bool)

    def mapping(self, key: str) -> Json:
        found: Json = self._typed(key, dict)
        return found

    def items(self, key: str) -> list[Any]:
        found: list[Any] = self._typed(key, list)
        return found

    def _typed(self, key: str, kind: type[_T]) -> _T:
        if key not in self.body:
            raise ProtocolError(f"{key} is missing")
        found = self.body[key]
        if not isinstance(found, kind):
            raise ProtocolError(f"{key} must be {kind.__name__}, not {type(found).__name__}")
        return found

    def take_fd(self, name: str) -> int:
        """The caller closes it."""
        if name not in self.fds:
            raise ProtocolError(f"no descriptor called {name!r} came with the message")
        return self.fds.pop(name)

    def take(self, name: str, most: int) -> bytes:
        """The content of the sealed memfd of this name, which is closed. ProtocolError as from read_memfd()."""
        fd = self.take_fd(name)
        try:
            return read_memfd(fd, most)
        finally:
            os.close(fd)

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)
        self.fds.clear()


class Channel:
    """One end of a SOCK_SEQPACKET pair. Owns the descriptor. One thread at a time."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(True)
        if self._socket.type != socket.SOCK_SEQPACKET:
            raise ProtocolError(f"descriptor {fd} is no SOCK_SEQPACKET socket")

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(
        self,
        message: Mapping[str, Any],
        fds: Mapping[str, int] | None = None,
        contents: Mapping[str, bytes] | None = None,
    ) -> None:
        """Waits while the other end is slow. The descriptors stay the caller's; contents go as sealed memfds.

        ValueError for a message that is too large or has NaN; ChannelClosed if the other end is closed.
        """
        made: dict[str, int] = {}
        try:
            for name, data in (contents or {}).items():
                made[name] = make_memfd(data, name)
            self._send(message, {**(fds or {}), **made})
        finally:
            for fd in made.values():
                os.close(fd)

    def _send(self, message: Mapping[str, Any], named: Mapping[str, int]) -> None:
        if len(named) > WORKER_FDS_MAX:
            raise ValueError(f"{len(named)} descriptors in one message, at most {WORKER_FDS_MAX} are allowed")
        data = encode({**message, "fds": list(named)} if named else message)
        if len(data) > WORKER_MESSAGE_MAX:
            raise ValueError(f"message of {len(data)} bytes, at most {WORKER_MESSAGE_MAX} are allowed")
        rights = array.array("i", named.values())
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if named else []
        try:
            self._socket.sendmsg([data], control)
        except (BrokenPipeError, ConnectionResetError):
            raise ChannelClosed("the other end of the channel is gone") from None

    def receive(self, timeout: float | None = None, *, awake_s: float = 0.0) -> Message:
        """The next message. timeout in seconds, None: for ever. awake_s: so long it is waited for without sleeping.

        TimeoutError, ChannelClosed at the end, ProtocolError (its descriptors are closed then).
        """
        if not self.is_due_within(awake_s) and not self.wait(timeout):
            raise TimeoutError("no message within the time allowed")
        space = socket.CMSG_SPACE(WORKER_FDS_MAX * array.array("i").itemsize)
        try:
            data, control, flags, _ = self._socket.recvmsg(WORKER_MESSAGE_MAX + 1, space, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            raise ChannelClosed("the other end of the channel is gone") from None
        received = _descriptors(control)
        try:
            return _message(data, flags, received)
        except BaseException:
            for fd in received:
                os.close(fd)
            raise

    def is_due_within(self, awake_s: float) -> bool:
        """wait() without sleeping, which sees a message some 50 us sooner."""
        end = time.monotonic() + awake_s
        while time.monotonic() < end:
            if self.wait(0):
                return True
        return False

    def wait(self, timeout: float | None) -> bool:
        """True once there is something to receive (the end counts), False when the time is over."""
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000.0))


def _descriptors(control: Iterable[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def _message(data: bytes, flags: int, received: list[int]) -> Message:
    if not data and not received:
        raise ChannelClosed("the other end of the channel is gone")
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(data) > WORKER_MESSAGE_MAX:
        raise ProtocolError(f"message over {WORKER_MESSAGE_MAX} bytes or {WORKER_FDS_MAX} descriptors")
    body = decode(data)
    names = body.pop("fds", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ProtocolError("fds must be a list of names")
    if len(names) != len(received) or len(set(names)) != len(names):
        raise ProtocolError(f"fds names {names!r}, but {len(received)} descriptors came")
    return Message(body, dict(zip(names, received, strict=True)))


def make_memfd(data: bytes, name: str = "message") -> int:
    """A sealed memfd with these bytes, its offset at 0. The caller closes it."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_memfd(fd: int, limit: int) -> bytes:
    """All the bytes of a sealed memfd; the descriptor stays the caller's, its offset is not used.

    ProtocolError if it is not a sealed memfd (its bytes could change under us) or larger than limit bytes.
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise ProtocolError("descriptor is no memfd") from None
    if seals & fcntl.F_SEAL_WRITE == 0 or seals & fcntl.F_SEAL_SHRINK == 0:
        raise ProtocolError("memfd is not sealed against changes")
    size = os.fstat(fd).st_size
    if size > limit:
        raise ProtocolError(f"memfd of {size} bytes, at most {limit} are allowed")
    parts: list[bytes] = []
    done = 0
    while done < size:
        part = os.pread(fd, size - done, done)
        if not part:
            raise ProtocolError("memfd ended early")
        parts.append(part)
        done += len(part)
    return b"".join(parts)


def finite(value: Any) -> Any:
    """The same with null for NaN and the infinities, for which JSON has no number: jansson would refuse the whole."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def clean_text(text: str, limit: int = WORKER_ERROR_TEXT_MAX) -> str:
    """Text that any JSON reader accepts, at most limit bytes of UTF-8; a longer one loses its middle."""
    data = text.replace("\0", "\\0").encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode("utf-8")
    mark = b"\n[... cut ...]\n"
    head = (limit - len(mark)) // 2
    tail = limit - len(mark) - head
    return (
        data[:head].decode("utf-8", "ignore")
        + mark.decode("ascii")
        + data[len(data) - tail :].decode("utf-8", "ignore")
    )


_CAUSES_MAX: Final = 16


def error_line(error: BaseException, filename: str) -> int | None:
    """The line of the file called filename where it went wrong, or None.

    It is the innermost frame in that file, of the innermost cause that has one.
    """
    if isinstance(error, SyntaxError) and _is_file(error.filename, filename):
        return error.lineno
    line = None
    link: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if link is None:
            break
        for frame in traceback.walk_tb(link.__traceback__):
            if _is_file(frame[0].f_code.co_filename, filename):
                line = frame[1]
        link = link.__cause__
    return line


def error_json(error: BaseException, filename: str = CANDIDATE_FILE, line: int | None = None) -> Json:
    """ERROR of proto/worker.md: the traceback from the first frame in filename on, without the harness's own.

    filename is compared by its last part. line, if given, goes before what the traceback says. The
    exception's own code (__str__) may be the candidate's: call this only where such code may run.
    """
    name = type(error).__name__
    if line is None:
        line = error_line(error, filename)
    return {"type": clean_text(name, 128), "text": clean_text(_describe(error, filename)), "line": line}


def _is_file(path: str | None, filename: str) -> bool:
    return path is not None and path.rpartition("/")[2] == filename


def _describe(error: BaseException, filename: str) -> str:
    try:
        shown = traceback.TracebackException.from_exception(error, lookup_lines=True, capture_locals=False)
        _drop_outer_frames(shown, filename, set())
        return "".join(shown.format()).strip()
    except Exception as second:
        return f"{type(error).__name__} (its own text could not be made: {type(second).__name__})"


def _drop_outer_frames(shown: traceback.TracebackException, filename: str, seen: set[int]) -> None:
    if id(shown) in seen:
        return
    seen.add(id(shown))
    inside = [index for index, frame in enumerate(shown.stack) if _is_file(frame.filename, filename)]
    kept = list(shown.stack)[inside[0] :] if inside else []
    kept = [frame for frame in kept if not _is_file(frame.filename, "inspect.py")]
    kept = [frame for index, frame in enumerate(kept) if _is_file(frame.filename, filename) or index + 2 >= len(kept)]
    for frame in kept:
        if _is_file(frame.filename, filename):
            frame.filename = filename
    shown.stack = traceback.StackSummary.from_list(kept)
    if isinstance(getattr(shown, "filename", None), str) and _is_file(shown.filename, filename):
        shown.filename = filename
    for other in (shown.__cause__, shown.__context__):
        if other is not None:
            _drop_outer_frames(other, filename, seen)
