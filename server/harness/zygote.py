"""A zygote: imports once, primes, and forks a confined child for each request (proto/worker.md).

It stays single-threaded and without CUDA, runs no foreign code, and is the init of its own PID namespace
where the host allows one: when it ends, everything that its children ever started ends too. Each child is the
init of a namespace below it, so that one SIGKILL ends a child with all that it started.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pwd
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import prime
from shared import native, wire

ROLES: Final = {"static": ("ast", "inspect"), "compile": ("compile", "build"), "run": ("run", "sanitize")}
FOREIGN_ROLES: Final = ("compile", "build", "run", "sanitize")
"""Roles in which foreign code runs, or is compiled."""

PROCESSES: Final = 256
"""Processes and threads of a child with a uid of its own: what a compiler needs on many cores, and few enough that
a fork bomb is killed within a second or two."""

KILL_WAIT_S: Final = 10.0
"""How long a killed child may take to be gone before the zygote gives up on it (it may hang in a driver)."""

WATCH_S: Final = 0.1
"""The least time between two looks at the children."""
WATCH_SHARE: Final = 0.1
"""The largest share of the zygote's time that the looks may take: else they are rarer."""

WATCH_ROOM: Final = 1.25
"""A child with its descendants may use this much more than the limit of one process: an allocation beyond that limit
gets an error that names it, and only a child that avoids the limit is killed."""

PROBE_UID: Final = 65534
"""Stands for the children's uids when layers are probed: any other than root's."""

HARNESS_FAILED: Final = 70
"""Exit status of a child whose set-up failed; its message comes over the error pipe."""


def log(level: str, text: str, **more: Any) -> None:
    """One JSON line on stderr, as the daemon's own logs."""
    print(json.dumps({"level": level, "from": "zygote", "text": text, **more}), file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Spawn:
    """A request for a child."""

    child: str
    role: str
    scratch: Path
    uid: int | None
    memory_bytes: int
    file_bytes: int
    scratch_bytes: int
    cgroup: Path | None

    @staticmethod
    def parse(message: wire.Message, roles: tuple[str, ...]) -> Spawn:
        role = message.text("role")
        if role not in roles:
            raise wire.ProtocolError(f"role must be one of {', '.join(roles)}, not {role!r}")
        scratch = Path(message.text("scratch"))
        if not scratch.is_absolute():
            raise wire.ProtocolError(f"scratch must be an absolute path, not {str(scratch)!r}")
        limits = wire.Message(message.mapping("limits"))
        uid = None if message.body.get("uid") is None else message.integer("uid", 1, 1 << 31)
        return Spawn(
            child=message.text("child"),
            role=role,
            scratch=scratch,
            uid=uid,
            memory_bytes=limits.integer("memory_bytes", 0, 1 << 62),
            file_bytes=limits.integer("file_bytes", 0, 1 << 62),
            scratch_bytes=limits.integer("scratch_bytes", 0, 1 << 62),
            cgroup=None if (cgroup := message.optional_text("cgroup")) is None else Path(cgroup),
        )


@dataclass
class Child:
    """A child that was forked and not yet reaped."""

    request: Spawn
    pid: int
    pidfd: int
    error_pipe: int
    over: str | None = None
    """The resource, one of native.EXCESSES, for whose use it was killed."""

    @property
    def name(self) -> str:
        return self.request.child


class Zygote:
    def __init__(
        self,
        channel: wire.Channel,
        kind: str,
        device: str,
        plan: native.SandboxPlan,
        base: Path,
        private: tuple[Path, ...] = (),
    ) -> None:
        self._channel = channel
        self._private = private
        self._kind = kind
        self._roles = ROLES[kind]
        self._device = device
        self._plan = plan
        self._base = base
        self._children: dict[str, Child] = {}
        self._libcuda = prime.load_libcuda() if kind != "static" else None
        self._watch_at = 0.0

    def serve(self) -> None:
        """Until the channel closes. Then every child is killed."""
        try:
            while True:
                self._reap()
                if self._wait():
                    self._handle(self._channel.receive(0.0))
        except wire.ChannelClosed:
            return
        finally:
            for child in list(self._children.values()):
                self._kill(child)

    def _wait(self) -> bool:
        """Until there is a message (true) or a child has ended."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        for child in self._children.values():
            poll.register(child.pidfd, select.POLLIN)
        while True:
            found = poll.poll(self._watch())
            if found:
                return any(fd == self._channel.fileno() for fd, _ in found)

    def _handle(self, message: wire.Message) -> None:
        try:
            op = message.text("op")
            if op == "spawn":
                self._spawn(message)
            elif op == "kill":
                child = self._children.get(message.text("child"))
                if child is not None:
                    self._kill(child)
            else:
                raise wire.ProtocolError(f"unknown op {op!r}")
        finally:
            message.close()

    def _spawn(self, message: wire.Message) -> None:
        name = message.text("child")
        try:
            request = Spawn.parse(message, self._roles)
            if name in self._children:
                raise wire.ProtocolError(f"child {name!r} is there already")
            child = self._fork(request, message.take_fd("channel"), message.take_fd("output"))
        except (wire.ProtocolError, prime.UnsafeFork, OSError) as error:
            self._exited(name, None, None, None, error=f"{type(error).__name__}: {error}")
            if isinstance(error, prime.UnsafeFork):
                raise
            return
        self._children[name] = child
        self._channel.send({"ev": "spawned", "child": name, "pid": child.pid}, {"pidfd": child.pidfd})

    def _fork(self, request: Spawn, channel_fd: int, output_fd: int) -> Child:
        try:
            prime.guard(self._libcuda)
            error_read, error_write = os.pipe2(os.O_CLOEXEC)
            pid = native.fork_child(self._plan)
            if pid == 0:
                self._become(request, channel_fd, output_fd, error_write)
        finally:
            os.close(channel_fd)
            os.close(output_fd)
        os.close(error_write)
        return Child(request, pid, os.pidfd_open(pid), error_read)

    def _become(self, request: Spawn, channel_fd: int, output_fd: int, error_fd: int) -> None:
        """In the child: confine, then serve the role. Never returns."""
        self._children.clear()  # a candidate should not find on the heap what else is judged, and where
        try:
            _redirect(output_fd)
            if request.cgroup is not None:
                (request.cgroup / "cgroup.procs").write_text("0")
            settings = replace(
                sandbox_settings(request.scratch, request.uid, self._base, self._device, self._private),
                may_connect=request.role == "sanitize",
                memory_bytes=request.memory_bytes,
                file_bytes=request.file_bytes,
                keep=(channel_fd, error_fd),
            )
            native.enter_sandbox(settings, self._plan)
            os.umask(0o077)
            if self._kind == "static":
                prime.own_directories(request.scratch)  # it runs nothing that would draw random numbers
            else:
                prime.child_environment(request.scratch, self._base)
                prime.reseed()
            if request.role in FOREIGN_ROLES and os.getpid() == 1:
                _stay_as_init(error_fd, os.fork())
        except BaseException:
            _tell(error_fd, {"error": traceback.format_exc()[-4096:]})
            os._exit(HARNESS_FAILED)
        if request.role in FOREIGN_ROLES:
            os.close(error_fd)
        status = HARNESS_FAILED
        try:
            run_role(request.role, wire.Channel(channel_fd), request.scratch, self._device)
            status = 0
        except BaseException:
            with contextlib.suppress(BaseException):
                traceback.print_exc()
            if request.role not in FOREIGN_ROLES:
                _tell(error_fd, {"error": traceback.format_exc()[-4096:]})
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(status)

    # --- watching ---

    def _watch(self) -> float | None:
        """Kill children that use too much. Milliseconds until the next check; None: there is no child to check."""
        watched = [c for c in self._children.values() if c.request.role in FOREIGN_ROLES and c.over is None]
        if not watched:
            return None
        now = time.monotonic()
        if now >= self._watch_at:
            began = time.process_time()  # of its own: on a busy machine more time passes than it takes
            for child in watched:
                self._look_at(child)
            now = time.monotonic()
            self._watch_at = now + max(WATCH_S, (time.process_time() - began) / WATCH_SHARE)
        return max(1.0, (self._watch_at - now) * 1000)

    def _look_at(self, child: Child) -> None:
        request = child.request
        try:
            limit = int(request.memory_bytes * WATCH_ROOM)
            usage = native.watch(child.pidfd, request.scratch, limit, request.scratch_bytes)
        except native.NativeError:
            return  # it has ended; that is reported when it is reaped
        if usage.excess is None:
            return
        child.over = usage.excess
        log("info", "killed: it holds too much", child=child.name, **asdict(usage))
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    # --- endings ---

    def _kill(self, child: Child) -> None:
        """SIGKILL to the child and all that it started, and its report."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        native.kill_group(child.pid)  # at once, also where no PID namespace ends with it
        end = time.monotonic() + KILL_WAIT_S
        poll = select.poll()
        poll.register(child.pidfd, select.POLLIN)
        while not poll.poll(WATCH_S * 1000):
            if time.monotonic() > end:
                log("error", "a killed child does not end", child=child.name, pid=child.pid)
                return
            self._watch()  # its going may take a second, in which others are not left alone
        self._reap()

    def _reap(self) -> None:
        """Report each child that has ended; take leave of orphans that ended up here."""
        while True:
            try:
                waited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if waited is None:
                return
            child = next((child for child in self._children.values() if child.pid == waited.si_pid), None)
            if child is not None:
                native.kill_group(child.pid)
            _, status, usage = os.wait4(waited.si_pid, 0)
            if child is not None:
                self._report(child, status, usage)

    def _report(self, child: Child, status: int, usage: Any) -> None:
        del self._children[child.name]
        note = _note(child.error_pipe)
        os.close(child.error_pipe)
        os.close(child.pidfd)
        told = note.get("status")
        if isinstance(told, int):
            status = told
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        error = note.get("error")
        text = error if isinstance(error, str) else None
        self._exited(child.name, code, killer, usage, error=text, over=child.over)

    def _exited(
        self,
        name: str,
        code: int | None,
        killer: int | None,
        usage: Any,
        *,
        error: str | None,
        over: str | None = None,
    ) -> None:
        cpu_ms = 0 if usage is None else round((usage.ru_utime + usage.ru_stime) * 1000)
        self._channel.send(
            {
                "ev": "exited",
                "child": name,
                "code": code,
                "signal": killer,
                "max_rss_kb": 0 if usage is None else usage.ru_maxrss,
                "cpu_ms": cpu_ms,
                "over": over,
                "error": None if error is None else wire.clean_text(error, 4096),
            }
        )


def _tell(fd: int, note: wire.Json) -> None:
    """A line for the zygote, over the error pipe."""
    with contextlib.suppress(OSError, ValueError):
        os.write(fd, wire.encode(note))


def _stay_as_init(error_fd: int, worker: int) -> None:
    """In the init of a child's PID namespace: wait for the worker, report how it ended, and end. Returns in the worker.

    The kernel ignores most signals that an init causes itself: foreign code that runs as one could not crash as it
    does elsewhere. Everything else in the namespace ends with this process.
    """
    if worker == 0:
        return
    native.close_to_others()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # processes of its namespace can send it only handled signals
    os.closerange(0, error_fd)
    os.closerange(error_fd + 1, 256)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == worker:
            _tell(error_fd, {"status": status})
            os._exit(0)


def _note(pipe: int) -> wire.Json:
    """The message that the harness's own code in a child left in the pipe, before anything foreign ran there."""
    os.set_blocking(pipe, False)
    try:
        data = os.read(pipe, 16384)
        return wire.decode(data) if data else {}
    except (BlockingIOError, wire.ProtocolError):
        return {}


def _redirect(output_fd: int) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.close(null)


def run_role(role: str, channel: wire.Channel, scratch: Path, device: str) -> None:
    """The function of the child. Only stages named here can be requested."""
    programs: dict[str, tuple[str, tuple[Any, ...]]] = {
        "ast": ("static.ast_stage", ()),
        "compile": ("live.compile_stage", (scratch,)),
        "build": ("compiler.stage", (scratch,)),
        "inspect": ("static.inspect_stage", ()),
        "sanitize": ("executor.sanitize", (scratch,)),
        "run": ("live.child", (device,)),
    }
    module, arguments = programs[role]
    importlib.import_module(module).main(channel, *arguments)


def sandbox_settings(
    scratch: Path, uid: int | None, base: Path, device: str, private: tuple[Path, ...] = ()
) -> native.SandboxSettings:
    """The settings of every child; with GPUs, if it computes on one.

    Homes and other directories that its uid may not pass are hidden, but for what it needs: what Python imports, and
    the root of all scratch directories, where compile caches lie. Where it has no uid of its own, it may pass all that
    the daemon's user may: then the user's home is hidden, and so are the private directories.
    """
    has_gpus = device != "cpu"
    needed = (*import_directories(base), scratch.parent)
    hidden = native.closed_ancestors(needed)
    if uid is not None:
        return native.SandboxSettings(
            scratch=scratch, uid=uid, has_gpus=has_gpus, hidden=hidden, shown=needed, processes=PROCESSES
        )
    home = home_directory()
    needed = (*needed, *tool_directories(home))
    hidden = outermost({*hidden, *private, home}, needed)
    return native.SandboxSettings(scratch=scratch, has_gpus=has_gpus, hidden=hidden, shown=needed)


def outermost(directories: set[Path], shown: Sequence[Path]) -> tuple[Path, ...]:
    """Those of them to hide, from the top: none below another, unless that shows it again, and none that is shown."""
    found = {path.resolve() for path in directories if is_directory(path)} - {Path("/"), *shown}
    return tuple(
        sorted(path for path in found if not found & set(path.parents) or any(place in path.parents for place in shown))
    )


def is_directory(path: Path) -> bool:
    """Path.is_dir() raises where the way there may not be passed."""
    try:
        return path.is_dir()
    except PermissionError:
        return False


def home_directory() -> Path:
    """The user's; "/" of one that has none."""
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve()
    except KeyError:
        return Path("/")


def tool_directories(home: Path) -> tuple[Path, ...]:
    """What lies there of what a child starts and loads: compilers, CUDA, libraries."""
    names = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV")
    found = {Path(part) for name in names for part in os.environ.get(name, "").split(":") if part.startswith("/")}
    compiler = Path(os.environ.get("CC", "cc"))
    found |= {compiler.parent} if compiler.is_absolute() else set()
    return tuple(sorted(path for path in found if home in path.parents and is_directory(path)))


def import_directories(base: Path) -> tuple[Path, ...]:
    """Where a child may have to read: the interpreter, its modules, the harness, the zygote's own directory."""
    named = (sys.prefix, sys.base_prefix, *sys.path, str(Path(__file__).parent), str(base))
    found = {Path(name).absolute() for name in named}
    found |= {path.resolve() for path in found} | {Path(sys.executable).resolve().parent}
    found = {path for path in found if path.is_dir()}
    return tuple(sorted(path for path in found if not found & set(path.parents)))


def probe(base: Path, mode: int, device: str, private: tuple[Path, ...] = ()) -> native.SandboxPlan:
    """The layers that the host can give to children, tried with a scratch directory and a uid such as they get.

    NativeError also if such a child could not read the files that it imports.
    """
    scratch = base / "probe"
    scratch.mkdir()
    settings = sandbox_settings(scratch, PROBE_UID if os.geteuid() == 0 else None, base, device, private)
    plan = native.probe_sandbox(settings, mode)
    native.check_readable(settings, plan, (Path(sys.executable), Path(os.__file__), *import_directories(base)))
    return plan


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="zygote")
    parser.add_argument("--kind", choices=tuple(ROLES), required=True)
    parser.add_argument("--device", required=True, help="cpu or cuda:N")
    parser.add_argument("--target", required=True, help="what kernels are compiled for, as cuda:90")
    parser.add_argument("--fd", type=int, required=True, help="the channel to the daemon")
    parser.add_argument("--private", action="append", default=[], help="a file whose directory no child may look into")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    sys.dont_write_bytecode = True
    os.umask(0o022)
    channel = wire.Channel(options.fd)
    mode = native.isolate_zygote()
    base = Path(tempfile.mkdtemp(prefix="verifierd-zygote-"))
    base.chmod(0o755)
    private = tuple(Path(name).resolve().parent for name in options.private)
    try:
        prime.set_environment(options.kind, options.device, base)
        prime.prime(options.kind, options.device, options.target)
        plan = probe(base, mode, options.device, private)
        prime.freeze()
        channel.send(
            {
                "ev": "ready",
                "kind": options.kind,
                "versions": prime.versions(options.kind),
                "sandbox": {"layers": plan.report},
            }
        )
        Zygote(channel, options.kind, options.device, plan, base, private).serve()
    except wire.ChannelClosed:
        return 0
    except (wire.ProtocolError, prime.UnsafeFork, native.NativeError) as error:
        log("error", f"{type(error).__name__}: {error}")
        return 1
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
