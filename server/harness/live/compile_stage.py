"""The compile stage: a plan by the tracer (trace()), or, of what is judged live, its kernels (judge()).

Runs in a one-shot child that belongs to the candidate: what it reports is a claim. For the kernels it imports, builds
and runs `forward` on fake tensors, every launch turned into a compile. The kernels that it leaves in the cache
directory are what the GPU child finds, and what the inspect stage reads. Triton does everything it would do on a GPU
(binding, specialising, compiling, checking resources) but the launch itself, because the driver it asks is the stub of
fake_cuda.py. See docs/compile.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
import triton
import triton.language as tl
from compiler.errors import kernel_error
from shared import fake_cuda, inductor, kernel_cache, loading, native, wire
from shared.plan import OTHER
from torch._subclasses.fake_tensor import FakeTensorMode
from tracer import trace as tracer
from tracer.recorder import FAKE_LIMITS
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

OTHER_CASES_MAX: Final = 5
OTHER_CASES_S: Final = 10.0
"""How many cases other than the task's own are compiled ahead, and how long all of them may take: in the fork that runs
with the task's own case, and once more after it."""

CONFIGS_MAX: Final = 64
"""Configurations of one autotuned kernel that are compiled here; others are compiled when the GPU child uses them."""

FINAL: Final = ("import", "timeout", "oom")
"""Refusals of the tracer that a process which computes would meet, too: the classes of the verdict."""

REPORTED_KERNELS_MAX: Final = 100
REPORTED_TEXT_MAX: Final = 2048


@dataclass
class Compiled:
    """One kernel, as often as it was compiled."""

    name: str
    compiles: int = 0
    failures: int = 0
    nanoseconds: int = 0
    error: wire.Json | None = None

    def json(self) -> wire.Json:
        return {
            "name": wire.clean_text(self.name, 256),
            "outcome": "fail" if self.compiles == self.failures else "pass",
            "compiles": self.compiles,
            "failures": self.failures,
            "error": None if self.error is None else shorten(self.error),
            "ms": round(self.nanoseconds / 1e6, 3),
        }


@dataclass
class Record:
    """The compilations that triton was asked for, and their exceptions."""

    kernels: dict[str, Compiled] = field(default_factory=dict)
    raised: list[BaseException] = field(default_factory=list)
    errors: dict[int, wire.Json] = field(default_factory=dict)
    """By identity of what was raised; `raised` keeps the identities from being used again."""
    launches: int = 0
    flags: set[str] = field(default_factory=set)

    def kernel(self, name: str) -> Compiled:
        return self.kernels.setdefault(name, Compiled(name))

    def note(self, error: BaseException, kernel: Any) -> wire.Json:
        """Remember that the exception means that the kernel does not compile."""
        self.raised.append(error)
        self.errors[id(error)] = kernel_error(error, kernel)
        return self.errors[id(error)]


class Failure(Exception):
    """The stage ends here: the class of the verdict, and why."""

    def __init__(self, kind: str, error: wire.Json) -> None:
        super().__init__(kind)
        self.kind = kind
        self.error = error


def shorten(error: wire.Json) -> wire.Json:
    return {**error, "text": wire.clean_text(error["text"], REPORTED_TEXT_MAX)}


# --- watching triton ---


def watch_compiler(record: Record) -> None:
    """Note each compilation, for any caller, and let its exception pass."""
    package: Any = triton.compiler
    compile_really: Callable[..., Any] = package.compile

    def compile_and_note(src: Any, *arguments: Any, **options: Any) -> Any:
        kernel = getattr(src, "fn", None)
        noted = record.kernel(str(getattr(src, "name", "?")))
        begun = time.monotonic_ns()
        noted.compiles += 1
        fake_cuda.Launcher.ahead(src)
        try:
            return compile_really(src, *arguments, **options)
        except Exception as error:
            noted.failures += 1
            noted.error = record.note(error, kernel)
            raise
        finally:
            noted.nanoseconds += time.monotonic_ns() - begun

    package.compile = compile_and_note


def watch_resources(record: Record) -> None:
    """Note kernels that compile but ask for more than the device has: Triton finds that out before a launch."""
    kernel_class: Any = triton.compiler.CompiledKernel
    begin_really: Callable[[Any], None] = kernel_class._init_handles

    def begin_and_note(kernel: Any) -> None:
        try:
            begin_really(kernel)
        except OutOfResources as error:
            noted = record.kernel(str(kernel.name))
            noted.failures += 1
            noted.error = record.note(error, getattr(kernel.src, "fn", None))
            raise

    kernel_class._init_handles = begin_and_note


def watch_launches(record: Record) -> None:
    def launched(_source: Any) -> None:
        record.launches += 1

    fake_cuda.Launcher.launched = staticmethod(launched)


def _types(source: Any) -> str | None:
    """The types of the arguments, from which a launcher is made. None: it needs more than these."""
    signature = getattr(source, "signature", None)
    types = str(list(signature.values())) if isinstance(signature, dict) else "tensordesc"
    return None if "tensordesc" in types else types


class _NoMetadata:
    """Of a kernel that is not compiled: a launcher needs nothing of it if there are no tensor descriptors."""

    def __getattr__(self, name: str) -> None:
        return None


def build_launchers(record: Record) -> None:
    """Where there is a CUDA driver: also build the small library that a GPU child launches each kernel with.

    It takes the C compiler 0.2 s and needs no more than the arguments' types: a fork begins with it when a kernel is
    about to be compiled, and leaves it in the cache.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    from triton.backends.nvidia.driver import CudaLauncher

    begun: dict[str, int] = {}

    def ahead(source: Any) -> None:
        types = _types(source)
        if types is None or types in begun:
            return
        begun[types] = os.fork()
        if begun[types] == 0:
            try:
                with contextlib.suppress(BaseException):  # met again by build()
                    CudaLauncher(source, _NoMetadata())
            finally:
                os._exit(0)

    def build(source: Any, metadata: Any) -> None:
        pid = begun.get(_types(source) or "", 0)
        if pid > 0:
            _reap(pid)
        try:
            CudaLauncher(source, metadata)
        except (RuntimeError, OSError, subprocess.CalledProcessError):
            record.flags.add("launcher_not_built")

    fake_cuda.Launcher.ahead = staticmethod(ahead)
    fake_cuda.Launcher.build = staticmethod(build)


def bound_autotuner(record: Record, workers: int) -> None:
    """Compile at most CONFIGS_MAX configurations of an autotuned kernel, side by side where there are cores."""
    prune_really: Callable[..., Any] = Autotuner.prune_configs

    def prune(tuner: Any, arguments: dict[str, Any]) -> Any:
        found = list(prune_really(tuner, arguments))
        if len(found) > CONFIGS_MAX:
            record.flags.add("autotune_bounded")
        found = found[:CONFIGS_MAX]
        _compile_side_by_side(tuner, found, arguments, workers)
        return found

    Autotuner.prune_configs = prune


def _compile_side_by_side(tuner: Any, configs: list[Any], arguments: dict[str, Any], workers: int) -> None:
    """Fill the cache from forks. A failure there is met again, and reported, by the tuner itself."""
    workers = min(workers, len(configs))
    if workers < 2:
        return
    pids = []
    for index in range(workers):
        pid = os.fork()
        if pid == 0:
            _compile_share(tuner, configs[index::workers], arguments)
        pids.append(pid)
    for pid in pids:
        _reap(pid)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # the candidate may have
        os.waitpid(pid, 0)


def _compile_share(tuner: Any, configs: list[Any], arguments: dict[str, Any]) -> None:
    try:
        native.signal_nobody()
        for config in configs:
            with contextlib.suppress(Exception):
                tuner.fn.run(**tuner.nargs, **arguments, **config.all_kwargs())
    finally:
        os._exit(0)


def autotune_workers() -> int:
    """A quarter of the cores, at most four: other children compile at the same time."""
    return max(1, min(4, len(os.sched_getaffinity(0)) // 4))


# --- the stage ---


def _kind_of(error: BaseException, otherwise: str) -> str:
    out_of_memory = "can't allocate memory" in str(error) if isinstance(error, RuntimeError) else False
    return "oom" if isinstance(error, MemoryError) or out_of_memory else otherwise


def _is_caused_by_fakes(error: BaseException) -> bool:
    """Whether fake tensors, not the candidate, are at fault, however deep the cause lies."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, FAKE_LIMITS):
            return True
        link = link.__cause__ or link.__context__
    return False


def _import(source: bytes, scratch: Path) -> ModuleType:
    try:
        return loading.load_candidate(source, scratch)
    except BaseException as error:
        raise Failure(_kind_of(error, "import"), wire.error_json(error)) from error


def _build(module: ModuleType, entry: str, case: tracer.Case) -> Any:
    try:
        return tracer.build(module, entry, case)
    except tracer.Endless:
        raise
    except BaseException as error:
        if _is_caused_by_fakes(error):
            raise
        raise Failure(_kind_of(error, "import"), wire.error_json(error)) from error


def _compile_failure(error: BaseException, record: Record) -> Failure | None:
    """The failure that the exception means when a kernel did not compile, else None."""
    link: BaseException | None = error
    while link is not None:
        if any(link is known for known in record.raised):
            break
        link = link.__cause__ or link.__context__
    return None if link is None else Failure("compile", record.errors[id(link)])


def _run_case(module: ModuleType, entry: str, case: tracer.Case, record: Record) -> BaseException | None:
    """Build and call once. The exception that fake tensors or the call ended with, None when it returned."""
    try:
        model = _build(module, entry, case)
        model(*tracer.inputs_of(case))
    except (Failure, tracer.Endless):
        raise
    except BaseException as error:
        failure = _compile_failure(error, record)
        if failure is not None:
            raise failure from error
        if _kind_of(error, "") == "oom":
            raise Failure("oom", wire.error_json(error)) from error
        return error
    return None


def unreached(module: ModuleType, record: Record) -> list[str]:
    """Kernels of the module that were not compiled: not those that only serve as functions of another one."""
    found: dict[str, Any] = {}
    for item in vars(module).values():
        while hasattr(item, "fn") and not isinstance(item, JITFunction):
            item = item.fn
        if isinstance(item, JITFunction) and item.__module__ == module.__name__:
            found[item.__name__] = item
    helpers = {name for name in found for other in found.values() if other.__name__ != name and f"{name}(" in other.src}
    return sorted(set(found) - set(record.kernels) - helpers)


@contextlib.contextmanager
def fake_world() -> Iterator[None]:
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True), fake_cuda.IndexedDevices():
        yield


@contextlib.contextmanager
def _side_by_side(run: Callable[[], None]) -> Iterator[None]:
    """In a fork, if there are cores for it; it ends with the block. Its result is the cache that it leaves.

    Both call the candidate. Damage that one does to processes that it can name must not reach the other by chance.
    """
    pid = os.fork() if autotune_workers() > 1 else -1
    if pid == 0:
        try:
            native.signal_nobody()
            fake_cuda.Launcher.ahead = fake_cuda.Launcher.build = staticmethod(lambda *_: None)
            run()
        finally:
            os._exit(0)
    yield
    if pid > 0:
        _reap(pid)


def compile_ahead(module: ModuleType, entry: str, others: Sequence[tracer.Case]) -> None:
    """Compile for the smaller and other sizes too, so that no GPU waits for it. Decides nothing.

    A candidate may well not work at a size that is not the task's own.
    """
    with contextlib.suppress(Exception, tracer.Endless), tracer.at_most(OTHER_CASES_S, signal.ITIMER_REAL):
        for case in others:
            with contextlib.suppress(Exception):
                _run_case(module, entry, case, Record())


def judge(source: bytes, request: tracer.Request, scratch: Path, record: Record) -> wire.Json:
    """The report, outcome pass or fail."""
    entry, (own, *others) = request.entry, request.cases
    others = [case for case in others if not case.name.startswith(OTHER)][:OTHER_CASES_MAX]
    deferred: BaseException | None = None
    try:
        with fake_world():
            module = _import(source, scratch)
            with _side_by_side(lambda: compile_ahead(module, entry, others)):
                deferred = _run_case(module, entry, own, record)
            report = _report(record, None, deferred, unreached(module, record))
            if deferred is None:
                compile_ahead(module, entry, others)
    except Failure as failure:
        return _report(record, failure, None, [])
    return report


def _report(record: Record, failure: Failure | None, deferred: BaseException | None, missed: list[str]) -> wire.Json:
    flags = set(record.flags)
    if deferred is not None:
        flags.add("compile_deferred")
    if record.launches == 0 and failure is None:
        flags.add("no_launch")
    return {
        "ev": "result",
        "outcome": "pass" if failure is None else "fail",
        "class": None if failure is None else failure.kind,
        "launches": record.launches,
        "kernels": [kernel.json() for kernel in list(record.kernels.values())[:REPORTED_KERNELS_MAX]],
        "unreached": [wire.clean_text(name, 256) for name in missed[:REPORTED_KERNELS_MAX]],
        "error": None if failure is None else failure.error,
        "flags": sorted(flags),
        "deferred": None if deferred is None else shorten(wire.error_json(deferred)),
    }


def prepare(target: str, cache: Path) -> Record:
    """Put the stub in triton's and torch's place, and the cache where the request wants it, over the zygote's own."""
    device = fake_cuda.parse_target(target)
    record = Record()
    kernel_cache.install(cache, kernel_cache.LayeredCache.layers, adopts=True)
    fake_cuda.install_triton_driver(device, fake_cuda.compile_benchmark)
    fake_cuda.install_torch_cuda(device)
    fake_cuda.install_fake_tensors()
    inductor.install_guards()
    watch_compiler(record)
    watch_resources(record)
    watch_launches(record)
    build_launchers(record)
    bound_autotuner(record, autotune_workers())
    return record


def trace(source: bytes, request: tracer.Request, scratch: Path, *, binds: bool) -> tuple[wire.Json, bytes | None]:
    """The report, and the plan if there is one. What forward() raises is left to a real call; what has no end is not.

    There is none, either, where a case that judges (binds: other sizes do) cannot be traced.
    """
    traced = tracer.trace(source, request, scratch)
    report: wire.Json = {"ev": "result", "outcome": "pass"}
    lost = [one for one in traced.refusals if one.kind == "untraced" and not one.case.startswith(OTHER)]
    if traced.plan is None or (binds and lost):
        first = traced.refusals[0] if traced.plan is None else lost[0]
        kind = {"construct": "import"}.get(first.kind, first.kind)
        report["error"] = {"type": kind, "text": wire.clean_text(first.reason, 4096), "line": first.line or None}
        report["outcome"], report["class"] = ("fail", kind) if kind in FINAL else ("untraced", None)
        return report, None
    return report, traced.plan


def main(channel: wire.Channel, scratch: Path) -> None:
    """One request, one report."""
    request = channel.receive()
    if request.text("op") != "compile":
        raise wire.ProtocolError(f"a compile child was asked for {request.text('op')!r}")
    source, spec = request.take("source", wire.SOURCE_MAX), wire.decode(request.take("spec", wire.WORKER_DETAIL_MAX))
    wanted = tracer.Request.of(request.text("target"), request.text("entry"), spec["cases"])
    if request.body.get("trace") is True:
        binds = bool(spec.get("dynamic_shapes") or spec.get("tiny_declared"))
        report, plan = trace(source, wanted, scratch, binds=binds)
        channel.send(report, contents={} if plan is None else {"plan": plan})
        return
    record = prepare(wanted.target, Path(request.text("cache")))
    channel.send(fit(judge(source, wanted, scratch, record)))


def fit(report: wire.Json) -> wire.Json:
    """A report that fits one packet: details go first, the verdict stays."""
    reductions: tuple[wire.Json, ...] = ({"kernels": []}, {"deferred": None}, {"unreached": []})
    for less in reductions:
        if len(wire.encode(report)) <= wire.WORKER_MESSAGE_MAX:
            break
        report = {**report, **less, "cut": True}
    return report


# --- before the fork ---


@triton.jit
def _warm_kernel(source, target, size, width: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.arange(0, width)
    mask = rows < size
    block = tl.load(source + rows[:, None] * width + rows[None, :], mask=mask[:, None], other=0.0)
    product = tl.dot(block, tl.trans(block))
    highest = tl.max(product, axis=1)
    tl.store(target + rows, tl.sum(tl.exp(product - highest[:, None]), axis=1), mask=mask)


class _WarmModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(32, 32)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs = self.linear(inputs.contiguous().view(-1, 32)).reshape(-1, 32).to(torch.float32)
        output = torch.empty(32, device=inputs.device)
        _warm_kernel[(triton.cdiv(32, 32),)](inputs, output, inputs.shape[0], width=32)
        return torch.zeros_like(output) + output


def prime(target: str) -> None:
    """Import and fill what the first compile would pay for, by compiling a kernel of ours."""
    importlib.import_module("torch._dynamo")
    device = fake_cuda.parse_target(target)
    fake_cuda.install_triton_driver(device, fake_cuda.compile_benchmark)
    fake_cuda.install_torch_cuda(device)
    fake_cuda.install_fake_tensors()
    with fake_world():
        with torch.device("cuda"):
            model = _WarmModel().to("cuda")
        model(torch.empty(32, 32, device="cuda"))
