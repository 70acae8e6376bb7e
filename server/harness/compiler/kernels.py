"""A plan's kernels, compiled: from the functions' text to images.

Each kernel is compiled in a fork: a crash of the compiler (LLVM ends the process for some kernels) is then that
kernel's error. Forks share the list of kernels, and report over a pipe each kernel that they begin and its result.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import selectors
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import triton
from executor.launch import Compiled
from shared import fake_cuda, plan, wire
from static import inspect_stage
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources, PTXASError

from compiler import libdevice
from compiler.check import CompilerRefusal
from compiler.errors import kernel_error
from compiler.extract import DTYPES, Functions, Source, constant

PRUNED: Final = (OutOfResources, CompileTimeAssertionFailure, PTXASError)
"""The errors that Triton's autotuner skips."""

SCALARS: Final = frozenset(f"{sign}{bits}" for sign in "iu" for bits in (1, 8, 16, 32, 64))
TYPE: Final = re.compile(r"(\*k?)?(?P<scalar>\w+)|tensordesc<(?P<element>\w+)\[\d+(, ?\d+)*\]>", re.A)
TENSOR_MEMORY_MAX: Final = 512
"""Columns, as Triton has it."""


@dataclass(frozen=True)
class Image:
    """One compiled kernel, and what of it is reported."""

    compiled: Compiled
    sha256: str
    """Of the cubin."""
    registers: int
    spill_bytes: int
    """Local memory of one thread: its stack frame, where spilled registers lie."""


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
    """The results of compiling a plan's kernels."""

    images: tuple[Image | None, ...]
    """By the plan's index. None: it does not compile."""
    dropped: tuple[Dropped, ...]
    failure: KernelError | None
    """The first kernel without which the plan cannot be run."""


# --- the tasks of the compiler ---


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


def compile_kernel(kernel: plan.Kernel, functions: Functions, target: str) -> Image:
    """Compile one kernel in this process. Raises what Triton raises, with `kernel_error` set.

    Writes into Triton's cache directory.
    """
    made = functions.link(functions.closure(kernel))
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
        return _image(compiled.metadata, compiled.asm["cubin"])
    except Exception as error:
        error.kernel_error = kernel_error(error, function)  # type: ignore[attr-defined]
        raise


def _check_resources(metadata: Any, device: fake_cuda.Device) -> None:
    """Triton's checks before a launch, by the target's table."""
    for required, limit, what in (
        (metadata.shared, device.shared_block, "shared memory"),
        (metadata.tmem_size or 0, TENSOR_MEMORY_MAX, "tensor memory"),
        (metadata.num_warps * 32, 1024, "threads"),
    ):
        if required > limit:
            raise OutOfResources(required, limit, what)


def _image(metadata: Any, cubin: bytes) -> Image:
    _, found = inspect_stage.kernels_of(cubin)
    figures = {kernel.name: kernel for kernel in found}[metadata.name]
    compiled = Compiled(
        image=cubin,
        entry=metadata.name,
        num_warps=metadata.num_warps,
        num_ctas=metadata.num_ctas,
        shared_bytes=metadata.shared,
        global_scratch_bytes=metadata.global_scratch_size,
        profile_scratch_bytes=metadata.profile_scratch_size,
        launch_cooperative_grid=metadata.launch_cooperative_grid,
        launch_pdl=metadata.launch_pdl,
        descriptors=tuple(metadata.tensordesc_meta or ()),
    )
    return Image(compiled, hashlib.sha256(cubin).hexdigest(), figures.registers, figures.spill_bytes)


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
        compile_kernel(kernel, functions, target)


# --- side by side ---

Tell = Callable[[int], None]
"""Is called with the number of kernels that have an image by now."""


class _Forks:
    """Compiles kernels, by their index in the plan, in forks and collects their errors."""

    def __init__(
        self, compile_one: Callable[[int], wire.Json], crashed: Callable[[int, str], wire.Json], tell: Tell
    ) -> None:
        self._tell = tell
        self._compile_one = compile_one
        self._crashed = crashed
        self._ready: selectors.BaseSelector
        self.outcomes: dict[int, wire.Json] = {}

    def run(self, kernels: Sequence[int], workers: int) -> None:
        self._ready = selectors.DefaultSelector()
        shares = [list(kernels[at::workers]) for at in range(min(workers, len(kernels)))]
        for share in shares:
            self._start(share)
        try:
            while self._ready.get_map():
                for event, _ in self._ready.select():
                    self._read(*event.data)
        finally:
            self._end()

    def _start(self, share: list[int]) -> None:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reading)
                for kernel in share:
                    _send(writing, self._compile_one(kernel))
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

    def _read(self, reading: int, pid: int, share: list[int], held: bytearray) -> None:
        data = os.read(reading, 1 << 16)
        held += data
        while (end := held.find(b"\n")) >= 0:
            outcome = json.loads(held[:end])
            if "ours" in outcome:
                raise OSError(f"a compiled kernel cannot be stored: {outcome['ours']}")
            self.outcomes[share.pop(0)] = outcome
            del held[: end + 1]
            self._tell(sum(one["error"] is None for one in self.outcomes.values()))
        if data:
            return
        self._ready.unregister(reading)
        os.close(reading)
        _, status = os.waitpid(pid, 0)
        if share:
            kernel = share.pop(0)
            self.outcomes[kernel] = self._crashed(kernel, _ending(status))
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


def _image_of(outcome: wire.Json, cubin: bytes) -> Image:
    compiled = {**outcome["compiled"], "image": cubin, "descriptors": tuple(outcome["compiled"]["descriptors"])}
    return Image(Compiled(**compiled), outcome["sha256"], outcome["registers"], outcome["spill_bytes"])


def _compile(
    document: plan.Plan, functions: Functions, workers: int, tell: Tell
) -> tuple[dict[int, Image], dict[int, KernelError]]:
    """Each kernel's image, or its error, by its index in the plan."""
    with tempfile.TemporaryDirectory(prefix="verifierd-compile-") as folder:

        def compile_one(kernel: int) -> wire.Json:
            triton.knobs.compilation.always_compile = triton.knobs.compilation.store_binary_only = True
            os.environ["TRITON_CACHE_DIR"] = os.environ["TMPDIR"] = folder
            tempfile.tempdir = None
            try:
                image = compile_kernel(document.kernels[kernel], functions, document.target)
            except Exception as error:
                said: wire.Json | None = getattr(error, "kernel_error", None)
                if said is None:
                    raise
                return {"error": said, "is_pruned": isinstance(error, PRUNED)}
            Path(folder, str(kernel)).write_bytes(image.compiled.image)
            return {"error": None, **asdict(image), "compiled": {**asdict(image.compiled), "image": None}}

        def crashed(kernel: int, ending: str) -> wire.Json:
            text = functions.texts[document.kernels[kernel].function]
            said = f"{wire.CANDIDATE_FILE}: kernel {text.name} does not compile\nthe compiler {ending}"
            return {"error": {"type": "CompilerCrash", "text": said, "line": text.line}, "is_pruned": False}

        forks = _Forks(compile_one, crashed, tell)
        while wanted := _wanted(document, forks.outcomes):
            n = len(wanted)
            forks.run(wanted, max(1, min(workers, (n + 1) // 2)))  # a fork costs a third of a small kernel
        made, errors = {}, {}
        for kernel, outcome in forks.outcomes.items():
            if outcome["error"] is None:
                made[kernel] = _image_of(outcome, Path(folder, str(kernel)).read_bytes())
            else:
                errors[kernel] = KernelError(kernel, outcome["error"], outcome["is_pruned"])
        return made, errors


def _is_promised(trace: plan.Trace) -> bool:
    """Whether a candidate has to be right for the case of this trace."""
    return trace.case != plan.TINY and not trace.case.startswith(plan.OTHER)


def _wanted(document: plan.Plan, outcomes: Mapping[int, wire.Json]) -> list[int]:
    """Kernels to compile next: all of the promised cases, and for each other case one alternative that compiles.

    With shapes that are constants each case has kernels of its own, and a kernel with 16 configurations had 144.
    """
    known = set(outcomes)
    wanted = set()
    for trace in sorted(document.traces, key=_is_promised, reverse=True):
        for step in (*trace.construct, *trace.first, *trace.steps):
            if not isinstance(step, plan.Choose) or _is_promised(trace):
                wanted |= set(plan.kernels_of((step,)))
                continue
            choices = [set(plan.kernels_of(one.steps)) for one in step.alternatives]
            left = [one for one in choices if not any(outcomes[kernel]["error"] for kernel in one & known)]
            if left and not any(one <= known | wanted for one in left):
                wanted |= left[0]
    return sorted(wanted - known)


# --- what it means for the plan ---


def settle(document: plan.Plan, errors: Mapping[int, KernelError]) -> tuple[list[Dropped], KernelError | None]:
    """Alternatives that a plan loses by these errors, and the first error that it cannot do without."""
    dropped: dict[tuple[int, str, int], Dropped] = {}
    failure: KernelError | None = None
    for trace in document.traces:
        if not _is_promised(trace):
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
    return next((errors[kernel] for kernel in plan.kernels_of(tuple(steps)) if kernel in errors), None)


def build(
    source: bytes, document: plan.Plan, workers: int, *, others: bool = True, tell: Tell = lambda made: None
) -> Images:
    """Compile the kernels of a plan from the candidate's text. Nothing of the text is run.

    Of an autotuned launch at a size that is not guaranteed one alternative is compiled, the first that can be.

    source    the candidate's bytes
    document  as parsed; its claims are checked against the source
    workers   how many compile concurrently, at most half as many as there are kernels, rounded up
    others    whether kernels that only cases of generality launch are compiled; the interpreter needs none of them
    Raises CompilerRefusal (what the plan names is not in the source, or not what a kernel may be), UnknownTarget, and
    OSError where an image cannot be stored. Needs one thread, forks, and leaves Triton with the target's driver.
    """
    if document.source != f"sha256:{hashlib.sha256(source).hexdigest()}":
        raise CompilerRefusal("the module", 1, "the plan is of another source")
    fake_cuda.install_triton_driver(fake_cuda.parse_target(document.target), fake_cuda.no_benchmark)
    functions = Functions(Source(source), document.functions, document.kernels)
    for kernel in document.kernels:
        _check_kernel(kernel, functions)
    traces = [trace for trace in document.traces if others or not trace.case.startswith(plan.OTHER)]
    made, errors = _compile(replace(document, traces=tuple(traces)), functions, workers, tell)
    dropped, failure = settle(document, errors)
    return Images(tuple(map(made.get, range(len(document.kernels)))), tuple(dropped), failure)
