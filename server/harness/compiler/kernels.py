"""A plan's kernels, compiled: from the functions' text to images in the cache.

Each kernel that the cache does not have is compiled in a fork: what the compiler does to its own process (LLVM ends it
for some kernels) is then that kernel's error. Forks share the list between them, and tell over a pipe what they begin
and how it ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import selectors
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
import triton
from shared import fake_cuda, plan, wire
from static import inspect_stage
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas_version
from triton.compiler import ASTSource
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.cache import triton_key
from triton.runtime.errors import OutOfResources, PTXASError

from compiler import libdevice
from compiler.check import CompilerRefusal
from compiler.errors import kernel_error
from compiler.extract import DTYPES, Functions, Source, constant, function_refs
from compiler.images import Cache, Image

VERSION: Final = 1
"""Of what an image is, beyond what Triton makes of its key."""

PRUNED: Final = (OutOfResources, CompileTimeAssertionFailure, PTXASError)
"""What Triton's autotuner passes over."""

SCALARS: Final = frozenset(f"{sign}{bits}" for sign in "iu" for bits in (1, 8, 16, 32, 64))
TYPE: Final = re.compile(r"(\*k?)?(?P<scalar>\w+)|tensordesc<(?P<element>\w+)\[\d+(, ?\d+)*\]>", re.A)
TENSOR_MEMORY_MAX: Final = 512
"""Columns, as Triton has it."""


@dataclass(frozen=True)
class KernelError:
    """A kernel that does not compile."""

    kernel: int
    """Its index in the plan."""
    error: wire.Json
    """type, text and the candidate's line."""
    is_pruned: bool
    """Whether an autotuner goes on without it."""


@dataclass(frozen=True)
class Dropped:
    """An alternative of an autotuned launch that is not there, since its kernel does not compile."""

    config: str
    line: int
    error: KernelError


@dataclass(frozen=True)
class Images:
    """What became of a plan's kernels."""

    images: tuple[Image | None, ...]
    """By the plan's index. None: it does not compile."""
    dropped: tuple[Dropped, ...]
    failure: KernelError | None
    """The first kernel without which the plan cannot be run."""
    compiled: int
    """How many were not in the cache."""


# --- what is compiled ---


def _is_type(kind: str) -> bool:
    """Whether Triton has the type, by its name in a signature: it evaluates more than it has."""
    if kind == "constexpr":
        return True
    match = TYPE.fullmatch(kind)
    return match is not None and (match["scalar"] or match["element"]) in SCALARS | set(DTYPES)


def _types(kind: plan.Type) -> Iterator[str]:
    if isinstance(kind, str):
        yield kind
    else:
        for item in kind:
            yield from _types(item)


def _check_kernel(kernel: plan.Kernel, functions: Functions) -> None:
    """CompilerRefusal: a specialisation that its function cannot have."""
    text = functions.texts[kernel.function]
    args = text.node.args
    if (
        args.vararg
        or args.kwarg
        or [name for name, _ in kernel.signature]
        != [parameter.arg for parameter in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    ):
        raise CompilerRefusal(text.name, text.line, "its parameters are not those of the plan's signature")
    for name, kind in kernel.signature:
        for one in _types(kind):
            if not _is_type(one):
                raise CompilerRefusal(text.name, text.line, f"parameter {name}: Triton has no type {one}")
    try:
        for _, value in kernel.constants:
            constant(value, lambda _index: None)
    except KeyError as error:
        raise CompilerRefusal(text.name, text.line, f"there is no dtype {error}") from None


@lru_cache
def toolchain(capability: int) -> tuple[str, ...]:
    """Versions of all that makes machine code of a text."""
    versions = (platform.python_version(), str(torch.__version__), str(triton.__version__))
    return (*versions, triton_key(), get_ptxas_version(capability))


def _closure(kernel: plan.Kernel, functions: Functions) -> list[int]:
    return functions.closure(kernel.function, [at for _, value in kernel.constants for at in function_refs(value)])


def _placed(value: Any, place: Mapping[int, int]) -> Any:
    """A constant with functions by their place in the closure."""
    if isinstance(value, plan.FunctionRef):
        return plan.FunctionRef(place[value.index])
    if isinstance(value, plan.Constexpr):
        return plan.Constexpr(_placed(value.value, place))
    return tuple(_placed(item, place) for item in value) if isinstance(value, tuple) else value


def key(kernel: plan.Kernel, functions: Functions, target: str) -> str:
    """Of an image: all that makes it, and nothing else of the plan."""
    closure = _closure(kernel, functions)
    place = {index: at for at, index in enumerate(closure)}

    def named(items: Sequence[tuple[str, Any]]) -> list[Any]:
        return sorted([name, plan.node(_placed(value, place))] for name, value in items)

    texts = [
        {
            "name": functions.texts[index].name,
            "line": functions.texts[index].line,
            "text": functions.texts[index].lines,
            "globals": named(functions.planned[index].globals),
            "defaults": named(functions.planned[index].defaults),
            "noinline": functions.planned[index].noinline,
        }
        for index in closure
    ]
    constants = tuple((path, _placed(value, place)) for path, value in kernel.constants)
    document = {
        "version": VERSION,
        "toolchain": toolchain(fake_cuda.parse_target(target).capability),
        "target": target,
        "functions": texts,
        "kernel": plan.kernel_node(replace(kernel, function=place[kernel.function], constants=constants)),
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def compile_kernel(kernel: plan.Kernel, functions: Functions, target: str, name: str) -> tuple[Image, bytes]:
    """Compile one kernel in this process; name: the image's key. Raises what Triton raises, with `kernel_error` set.

    Writes into Triton's cache directory.
    """
    made = functions.link(_closure(kernel, functions))
    function = made[kernel.function]
    device = fake_cuda.parse_target(target)
    try:
        source = ASTSource(
            function,
            dict(kernel.signature),
            {path: constant(value, made.__getitem__) for path, value in kernel.constants},
            {path: [list(pair) for pair in pairs] for path, pairs in kernel.attributes},
        )
        options = {option: constant(value, made.__getitem__) for option, value in kernel.options}
        compiled = triton.compile(source, target=GPUTarget("cuda", device.capability, 32), options=options)
        _check_resources(compiled.metadata, device)
        cubin = compiled.asm["cubin"]
        return _image(name, compiled.metadata, cubin), cubin
    except Exception as error:
        error.kernel_error = kernel_error(error, function)  # type: ignore[attr-defined]
        raise


def _check_resources(metadata: Any, device: fake_cuda.Device) -> None:
    """What Triton checks before a launch, by the target's table."""
    for required, limit, what in (
        (metadata.shared, device.shared_block, "shared memory"),
        (metadata.tmem_size or 0, TENSOR_MEMORY_MAX, "tensor memory"),
        (metadata.num_warps * 32, 1024, "threads"),
    ):
        if required > limit:
            raise OutOfResources(required, limit, what)


def _image(name: str, metadata: Any, cubin: bytes) -> Image:
    _, found = inspect_stage.kernels_of(cubin)
    figures = {kernel.name: kernel for kernel in found}[metadata.name]
    return Image(
        key=name,
        sha256=hashlib.sha256(cubin).hexdigest(),
        entry=metadata.name,
        shared_bytes=metadata.shared,
        num_warps=metadata.num_warps,
        num_ctas=metadata.num_ctas,
        cluster=(metadata.num_ctas, 1, 1),
        global_scratch_size=metadata.global_scratch_size,
        global_scratch_align=metadata.global_scratch_align,
        profile_scratch_size=metadata.profile_scratch_size,
        profile_scratch_align=metadata.profile_scratch_align,
        launch_cooperative_grid=metadata.launch_cooperative_grid,
        launch_pdl=metadata.launch_pdl,
        tensordesc_meta=tuple(metadata.tensordesc_meta or ()),
        registers=figures.registers,
        spill_bytes=figures.spill_bytes,
        cubin_bytes=len(cubin),
    )


WARM: Final = b"""\
@triton.jit
def warm(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i[:, None] * B + i[None, :], mask=i[:, None] < n, other=0.0)
    v = tl.sqrt(tl.rsqrt(tl.erf(tl.sin(tl.cos(tl.floor(tl.ceil(v)))))))
    v = libdevice.tanh(libdevice.exp(libdevice.log(libdevice.log1p(libdevice.rint(v)))))
    tl.store(x + i, tl.sum(tl.exp(tl.dot(v, tl.trans(v))), axis=1), mask=i < n)
"""


def prime(target: str, folder: Path) -> None:
    """Pay once, before a fork, for what the first compile costs: hashes of the toolchain, LLVM, Triton's language.

    Leaves in the folder, which must stay, what all compiles read (libdevice.py).
    """
    fake_cuda.install_triton_driver(fake_cuda.parse_target(target), fake_cuda.no_benchmark)
    named = {"libdevice": "triton.language.extra.cuda.libdevice", "tl": "triton.language"}
    modules = tuple((name, plan.ModuleRef(module)) for name, module in named.items())
    functions = Functions(Source(WARM), (plan.Function("warm", 2, modules, (), False),))
    signature = (("x", "*fp32"), ("n", "i32"), ("B", "constexpr"))
    kernel = plan.Kernel(0, signature, (((2,), 16),), (), ())
    with (
        tempfile.TemporaryDirectory(prefix="verifierd-prime-") as cache,
        triton.knobs.cache.scope(),
        libdevice.cut(folder / "libdevice.ll"),
    ):
        triton.knobs.cache.dir = cache
        compile_kernel(kernel, functions, target, key(kernel, functions, target))


# --- side by side ---

Job = tuple[int, str]
"""A kernel's index in the plan, and its key."""


class _Forks:
    """Compiles jobs in forks and collects their errors."""

    def __init__(self, compile_one: Callable[[Job], wire.Json], crashed: Callable[[Job, str], wire.Json]) -> None:
        self._compile_one = compile_one
        self._crashed = crashed
        self._ready = selectors.DefaultSelector()
        self.outcomes: dict[int, wire.Json] = {}

    def run(self, jobs: Sequence[Job], workers: int) -> None:
        shares = [list(jobs[at::workers]) for at in range(min(workers, len(jobs)))]
        for share in shares:
            self._start(share)
        try:
            while self._ready.get_map():
                for event, _ in self._ready.select():
                    self._read(*event.data)
        finally:
            self._end()

    def _start(self, share: list[Job]) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reading)
                for job in share:
                    _send(writing, self._compile_one(job))
            except BaseException as error:
                _send(writing, {"ours": f"{type(error).__name__}: {error}"})
            finally:
                os._exit(0)
        os.close(writing)
        self._ready.register(reading, selectors.EVENT_READ, (reading, pid, share, bytearray()))

    def _end(self) -> None:
        """End what still runs, where an error of ours has ended the rest."""
        for event in list(self._ready.get_map().values()):
            reading, pid, *_ = event.data
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(reading)
        self._ready.close()

    def _read(self, reading: int, pid: int, share: list[Job], held: bytearray) -> None:
        data = os.read(reading, 1 << 16)
        held += data
        while (end := held.find(b"\n")) >= 0:
            outcome = json.loads(held[:end])
            if "ours" in outcome:
                raise OSError(f"a compiled kernel cannot be stored: {outcome['ours']}")
            self.outcomes[share.pop(0)[0]] = outcome
            del held[: end + 1]
        if data:
            return
        self._ready.unregister(reading)
        os.close(reading)
        _, status = os.waitpid(pid, 0)
        if share:
            job = share.pop(0)
            self.outcomes[job[0]] = self._crashed(job, _ending(status))
        if share:
            self._start(share)


def _send(fd: int, message: wire.Json) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"ended by signal {os.WTERMSIG(status)} ({signal.Signals(os.WTERMSIG(status)).name})"
    return f"exited with {os.waitstatus_to_exitcode(status)}"


def _compile_missing(
    document: plan.Plan, functions: Functions, cache: Cache, jobs: Sequence[Job], workers: int
) -> list[KernelError]:
    with tempfile.TemporaryDirectory(prefix="verifierd-compile-") as folder:

        def compile_one(job: Job) -> wire.Json:
            index, name = job
            triton.knobs.compilation.always_compile = triton.knobs.compilation.store_binary_only = True
            os.environ["TRITON_CACHE_DIR"] = os.environ["TMPDIR"] = folder
            tempfile.tempdir = None
            try:
                cache.put(*compile_kernel(document.kernels[index], functions, document.target, name))
            except Exception as error:
                said: wire.Json | None = getattr(error, "kernel_error", None)
                if said is None:
                    raise
                return {"error": said, "is_pruned": isinstance(error, PRUNED)}
            return {"error": None}

        def crashed(job: Job, ending: str) -> wire.Json:
            text = functions.texts[document.kernels[job[0]].function]
            said = f"{wire.CANDIDATE_FILE}: kernel {text.name} does not compile\nthe compiler {ending}"
            return {"error": {"type": "CompilerCrash", "text": said, "line": text.line}, "is_pruned": False}

        forks = _Forks(compile_one, crashed)
        forks.run(jobs, max(1, min(workers, (len(jobs) + 1) // 2)))  # a fork costs a third of a small kernel
    return [
        KernelError(index, outcome["error"], outcome["is_pruned"])
        for index, outcome in sorted(forks.outcomes.items())
        if outcome["error"] is not None
    ]


# --- what it means for the plan ---


def settle(document: plan.Plan, errors: Mapping[int, KernelError]) -> tuple[list[Dropped], KernelError | None]:
    """Alternatives that a plan loses by these errors, and the first error that it cannot do without."""
    dropped: dict[tuple[int, str, int], Dropped] = {}
    failure: KernelError | None = None
    for trace in document.traces:
        if trace.case == plan.TINY or trace.case.startswith(plan.OTHER):
            continue
        for step in (*trace.construct, *trace.first, *trace.steps):
            if not isinstance(step, plan.Choose):
                found = _error_of((step,), errors)
                failure = failure or found
                continue
            lost = [(one, _error_of(one.steps, errors)) for one in step.alternatives]
            failure = failure or next((error for _, error in lost if error and not error.is_pruned), None)
            if all(error for _, error in lost):
                failure = failure or lost[0][1]
            for one, error in lost:
                if error is not None:
                    dropped[step.line, one.config, error.kernel] = Dropped(one.config, step.line, error)
    return list(dropped.values()), failure


def _error_of(steps: Sequence[plan.Step], errors: Mapping[int, KernelError]) -> KernelError | None:
    launched = (step.kernel for step in plan.walk(tuple(steps)) if isinstance(step, plan.Launch))
    return next((errors[kernel] for kernel in launched if kernel in errors), None)


def build(source: bytes, document: plan.Plan, cache: Path, workers: int, bytes_max: int | None = None) -> Images:
    """Compile every kernel of a plan from the candidate's text. Nothing of the text is run.

    source     the candidate's bytes
    document   as parsed; its claims are checked against the source
    cache      folder of images, shared with others; made if it is missing
    workers    how many compile side by side, at most half as many as there are kernels, rounded up
    bytes_max  how large the folder may be afterwards
    Raises CompilerRefusal (what the plan names is not in the source, or not what a kernel may be), UnknownTarget, and
    OSError where the cache cannot be written. Needs one thread, forks, and leaves Triton with the target's driver.
    """
    if document.source != f"sha256:{hashlib.sha256(source).hexdigest()}":
        raise CompilerRefusal("the module", 1, "the plan is of another source")
    fake_cuda.install_triton_driver(fake_cuda.parse_target(document.target), fake_cuda.no_benchmark)
    functions = Functions(Source(source), document.functions)
    for kernel in document.kernels:
        _check_kernel(kernel, functions)
    store = Cache(cache) if bytes_max is None else Cache(cache, bytes_max)
    keys = [key(kernel, functions, document.target) for kernel in document.kernels]
    found = [store.get(name) for name in keys]
    jobs = [(index, keys[index]) for index, image in enumerate(found) if image is None]
    errors = {error.kernel: error for error in _compile_missing(document, functions, store, jobs, workers)}
    if jobs:
        store.sweep()
    for index, name in jobs:
        if index in errors:
            continue
        found[index] = store.get(name)
        if found[index] is None:
            raise OSError(f"{cache} is too small for the images of one plan")
    dropped, failure = settle(document, errors)
    return Images(tuple(found), tuple(dropped), failure, len(jobs))
