"""Writes down launches: which jit function, specialised how, with which grid and arguments.

Triton's own binder specialises the arguments and checks them; nothing is compiled. What a kernel's text reads is
described as data: other functions of the candidate, constants, and names inside triton.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import json
import operator
import sys
from collections.abc import Callable
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
import triton.language as tl
from shared import plan
from triton._C.libtriton import ir
from triton.backends.nvidia.compiler import CUDAOptions
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import ConstexprFunction, JITFunction, TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from tracer.recorder import Recorder, Sink
from tracer.writes import written_parameters

STAND_IN: Final = 1_000_003
"""Stands for an integer of the GPU's while Triton specialises: neither 1, nor a multiple of 16, nor beyond 32 bits."""

_DEFAULTS: Final = {field.name: field.default for field in CUDAOptions.__dataclass_fields__.values()}


class Kernels:
    """The plan's tables of functions and kernels while they grow."""

    def __init__(self, recorder: Recorder, source: bytes) -> None:
        self.functions: list[plan.Function] = []
        self.kernels: list[plan.Kernel] = []
        self._recorder = recorder
        self._lines = source.decode(errors="replace").split("\n")
        self._found: dict[int, int] = {}
        self._held: list[Any] = []
        self._pending: list[int] = []
        self._known: dict[str, int] = {}
        self._written: dict[int, set[str]] = {}
        self._tables: dict[int, dict[Any, plan.Const]] = {}
        """Of the constexpr functions: the results that kernels have asked for."""

    # --- functions ---

    def function(self, jit: Any) -> int:
        """The index of a jit function of the candidate's."""
        if id(jit) in self._found:
            return self._found[id(jit)]
        name = str(jit.fn.__name__)
        if id(jit) in self._pending:
            raise self._recorder.refuse(f"the kernel function {name} calls itself")
        line = self._definition(jit, name)
        self._pending.append(id(jit))
        made = plan.Function(name, line, self._globals(jit, name), self._defaults(jit), bool(jit.noinline))
        self._pending.pop()
        key = repr(made)
        if key not in self._known:
            if len(self.functions) >= plan.FUNCTIONS_MAX:
                raise self._recorder.refuse(f"there are more than {plan.FUNCTIONS_MAX} kernel functions")
            self._known[key] = len(self.functions)
            self.functions.append(made)
        self._held.append(jit)
        self._found[id(jit)] = self._known[key]
        return self._known[key]

    def _definition(self, jit: Any, name: str) -> int:
        """The line of `def`, which must stand in the candidate's text."""
        if jit.fn.__code__.co_filename != self._recorder.file:
            raise self._recorder.refuse(f"the text of kernel {name} does not stand in the source")
        line = int(jit.starting_line_number)
        for row in jit.raw_src:
            if row.lstrip().startswith("def "):
                break
            line += 1
        here = self._lines[line - 1] if line <= len(self._lines) else ""
        if not here.lstrip().startswith(f"def {name}"):
            raise self._recorder.refuse(f"the text of kernel {name} does not stand in the source", line)
        return line

    def _globals(self, jit: Any, kernel: str) -> tuple[tuple[str, Any], ...]:
        scope = jit.get_capture_scope()
        needed, annotations = _names(jit.parse().body[0])
        found = []
        for name in sorted((needed | annotations) & scope.keys()):
            value = scope[name]
            if getattr(value, "plain", value) is getattr(builtins, name, jit):
                continue
            try:
                found.append((name, self.global_value(value)))
            except NotData as error:
                if name in needed:
                    raise self._recorder.refuse(f"kernel {kernel} reads the global {name}, {error}") from None
        return tuple(found)

    def _defaults(self, jit: Any) -> tuple[tuple[str, plan.Const], ...]:
        found = []
        for parameter in jit.params:
            if parameter.has_default:
                try:
                    found.append((parameter.name, self.constant(parameter.default)))
                except NotData as error:
                    raise self._recorder.refuse(f"the default of {parameter.name} is {error}") from None
        return tuple(found)

    def global_value(self, value: Any) -> Any:
        """The meaning of a name in a kernel's text."""
        if isinstance(value, ModuleType):
            if not plan.MODULES.fullmatch(value.__name__):
                raise NotData(f"the module {value.__name__}")
            return plan.ModuleRef(value.__name__)
        if isinstance(value, JITFunction) and value.fn.__code__.co_filename == self._recorder.file:
            return plan.FunctionRef(self.function(value))
        if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            raise NotData("a named tuple, which only the host can make")
        reference = _of_triton(value)
        if reference is None and isinstance(value, ConstexprFunction):
            return plan.Table(tuple(self._tables.get(id(value), {}).items()))
        return reference if reference is not None else self.constant(value)

    def called(self, function: Any, args: Any, options: dict[str, Any], result: Any) -> None:
        """A kernel's text called a constexpr function: one more row of its table."""

        def plain(one: Any) -> plan.Const:
            value = one.value if isinstance(one, tl.constexpr) else one
            if isinstance(value, JITFunction):
                raise NotData("that is a kernel function")
            return self.constant(value)

        try:
            key = (*map(plain, args), *sorted((name, plain(value)) for name, value in options.items()))
            self._tables.setdefault(id(function), {}).setdefault(key, plain(result))
        except NotData as error:
            what = f"the constexpr function {function.__name__} is given or returns a value {error}"
            raise self._recorder.refuse(what) from None
        self._held.append(function)
        self._found.clear()  # the functions that read it are others now

    def constant(self, value: Any) -> plan.Const:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, tl.constexpr):
            return plan.Constexpr(self.constant(value.value))
        if isinstance(value, tl.dtype) and _is_scalar(value):
            return plan.Dtype(str(value))
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, str):
            return str.__str__(value)  # of an enumeration's member the text, where str() gives its name
        if isinstance(value, tuple | list):  # a named one, too: its fields stand in the text
            return tuple(self.constant(item) for item in value)
        if isinstance(value, JITFunction):
            return plan.FunctionRef(self.function(value))
        if isinstance(value, np.bool_ | np.integer):
            return bool(value) if isinstance(value, np.bool_) else int(value)
        if isinstance(value, np.floating):
            return float(value)
        raise NotData(f"of type {type(value).__name__}, which is not data")

    # --- kernels ---

    def kernel(self, jit: Any, signature: Any, constants: Any, attributes: Any, options: Any) -> int:
        made = plan.Kernel(
            self.function(jit),
            tuple((name, _type(kind)) for name, kind in signature.items()),
            tuple((_path(path), self.constant(value)) for path, value in constants.items()),
            tuple(
                (_path(path), tuple((str(name), int(at)) for name, at in pairs)) for path, pairs in attributes if pairs
            ),
            options,
        )
        key = json.dumps(plan.kernel_node(made))
        if key not in self._known:
            if len(self.kernels) >= plan.KERNELS_MAX:
                raise self._recorder.refuse(f"there are more than {plan.KERNELS_MAX} kernels")
            self._known[key] = len(self.kernels)
            self.kernels.append(made)
        return self._known[key]

    def written(self, jit: Any) -> set[str]:
        """The parameters that a jit function of the candidate's may write through."""
        index = self.function(jit)
        if index not in self._written:
            self._written[index] = written_parameters(jit)
        return self._written[index]

    def options(self, given: dict[str, Any]) -> tuple[tuple[str, plan.Const], ...]:
        found = []
        for name in _DEFAULTS:
            value = given.get(name)
            if value is None or value == _DEFAULTS[name]:
                continue
            if name not in plan.OPTIONS:
                raise self._recorder.refuse(f"the option {name} of a launch cannot be traced")
            found.append((name, self.constant(value)))
        return tuple(found)


class NotData(Exception):
    """A value that a plan cannot hold."""


def _is_scalar(value: Any) -> bool:
    return not value.is_block() and not value.is_ptr()


def _type(kind: Any) -> plan.Type:
    return tuple(_type(item) for item in kind) if isinstance(kind, tuple | list) else str(kind)


def _path(path: Any) -> plan.Path:
    return tuple(int(step) for step in path)


def _of_triton(value: Any) -> plan.ObjectRef | None:
    """Something that a module of triton holds under its own name."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not plan.MODULES.fullmatch(f"{module}.{name}"):
        return None
    known = getattr(sys.modules.get(module), name, None)
    is_known = known is value or (_code(value) is not None and _code(value) == _code(known))
    return plan.ObjectRef(f"{module}.{name}") if is_known else None


def _code(value: Any) -> CodeType | None:
    """Of the function that was decorated: equal in a second copy of a module, as made by importlib's specifications."""
    return getattr(inspect.unwrap(getattr(value, "fn", value)), "__code__", None)


def _names(function: Any) -> tuple[set[str], set[str]]:
    """The names that a function's text reads and does not bind itself: in its body and defaults; in annotations."""
    arguments = function.args
    bound = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    body = [part for statement in function.body for part in ast.walk(statement)]
    annotations = [argument.annotation for argument in ast.walk(arguments) if isinstance(argument, ast.arg)]
    annotations += [part.annotation for part in body if isinstance(part, ast.AnnAssign)]
    inside = {id(part) for annotation in annotations if annotation for part in ast.walk(annotation)}
    bound |= {part.id for part in body if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    read = {part.id for part in body if isinstance(part, ast.Name) and id(part) not in inside}
    typed = {part.id for node in annotations if node for part in ast.walk(node) if isinstance(part, ast.Name)}
    return read - bound, typed


# --- launches ---


class Compiled:
    """The result of a launch or a warm-up: the members of a compiled kernel that candidates use to choose a grid."""

    n_regs = 32
    n_spills = 0
    n_max_threads = 1024

    def __init__(self, jit: Any, options: dict[str, Any]) -> None:
        self.name = jit.fn.__name__
        self.asm: dict[str, Any] = {}
        self.function = self.module = None
        self._jit = jit
        self._options = options
        self.metadata = SimpleNamespace(
            shared=1024,
            name=self.name,
            num_warps=options.get("num_warps", 4),
            num_stages=options.get("num_stages", 3),
            num_ctas=options.get("num_ctas", 1),
        )

    def _init_handles(self) -> None:
        return None

    def result(self) -> Compiled:
        return self

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, stream: Any = None) -> Any:
            named = dict(zip(self._jit.arg_names, args, strict=True))  # a parameter may be called as an option is
            return self._jit.run(grid=grid, warmup=False, **{**self._options, **named})

        return launch


class Launches:
    """Stands in for Triton's `run` of jit functions and of the autotuner."""

    def __init__(self, recorder: Recorder, kernels: Kernels) -> None:
        self._recorder = recorder
        self._kernels = kernels
        self._choosing = False
        self._is_noting = False
        self._walked: set[str] = set()

    def install(self, source: bytes) -> None:
        jit: Any = JITFunction
        tuner: Any = Autotuner
        jit.run = lambda function, *args, **options: self.launch(function, *args, **options)
        tuner.run = lambda function, *args, **options: self.tune(function, *args, **options)
        if b"constexpr_function" in source:
            self._note_constexpr_functions()
        if b"triton_heuristics" in source:
            inductor: Any = importlib.import_module("torch._inductor.runtime.triton_heuristics")
            inductor.CachingAutotuner.run = lambda tuner, *args, **options: self._inductors(tuner, *args, **options)

    def launch(self, jit: Any, *args: Any, grid: Any = None, warmup: bool = False, **options: Any) -> Any:
        """JITFunction.run as far as its launch, which is written down."""
        for hook in jit.pre_run_hooks:
            hook(*args, **options)
        options["debug"] = options.get("debug", jit.debug)
        stand_ins: dict[Any, Any] = {}
        args = tuple(self._stand_in(value, stand_ins) for value in args)
        options = {name: self._stand_in(value, stand_ins) for name, value in options.items()}
        _, _, _, backend, binder = jit.device_caches[0]
        bound, specialization, _ = binder(*args, **options)
        _, signature, constants, attributes = jit._pack_args(backend, options, bound, specialization, None)
        given = {name: value for name, value in options.items() if name in _DEFAULTS}
        if warmup:
            return Compiled(jit, given)
        if jit.is_gluon():
            raise self._recorder.refuse(f"kernel {jit.fn.__name__} is written in Gluon, which cannot be traced")
        if self._is_noting:
            self._front_end(jit, backend, given, signature, constants, attributes)
        try:
            self._write(
                jit, bound, signature, constants, attributes, self._grid(grid, bound, stand_ins), given, stand_ins
            )
        except NotData as error:
            raise self._recorder.refuse(f"an argument of kernel {jit.fn.__name__} is {error}") from None
        return Compiled(jit, given)

    def _note_constexpr_functions(self) -> None:
        kind: Any = ConstexprFunction
        plain = kind.__call__

        def noted(function: Any, *args: Any, _semantic: Any = None, **options: Any) -> Any:
            found = plain(function, *args, _semantic=_semantic, **options)
            if _semantic is not None and _of_triton(function) is None:
                self._kernels.called(function, args, options, found)
            return found

        kind.__call__ = noted
        self._is_noting = True

    def _front_end(self, jit: Any, backend: Any, options: dict[str, Any], *about: Any) -> None:
        """Let Triton's front end walk a text, for its calls of constexpr functions. The compiler reports errors."""
        key = repr((id(jit), about, options))
        if key in self._walked:
            return
        self._walked.add(key)
        context, parsed = ir.context(), backend.parse_options(dict(options))
        ir.load_dialects(context)
        backend.load_dialects(context)
        implementation = backend.get_codegen_implementation(parsed)
        with contextlib.suppress(Exception):
            ASTSource(jit, *about).make_ir(backend.target, parsed, implementation, backend.get_module_map(), context)

    def _stand_in(self, value: Any, stand_ins: dict[Any, Any]) -> Any:
        if isinstance(value, torch.SymFloat):
            number: Any = STAND_IN + 0.5 + len(stand_ins)
        elif isinstance(value, torch.SymInt):
            known = self._recorder.symbol(value)
            number = known if isinstance(known, int) else STAND_IN + 16 * len(stand_ins)
        else:
            return value
        stand_ins[number] = value
        return number

    def _grid(self, grid: Any, bound: dict[str, Any], stand_ins: dict[Any, Any]) -> tuple[int | plan.Sym, ...]:
        if callable(grid):
            shown = {
                name: stand_ins.get(value, value) if isinstance(value, int | float) else value
                for name, value in bound.items()
            }
            grid = grid(shown)
        sizes: list[Any] = []
        for size in (grid if isinstance(grid, tuple | list | torch.Size) else tuple(grid))[:3]:
            found = self._recorder.symbol(size) if isinstance(size, torch.SymInt) else operator.index(size)
            sizes.append(found)
        sizes += [1] * (3 - len(sizes))
        for axis, size in enumerate(sizes):
            if isinstance(size, int) and not 0 <= size <= plan.GRID_MAX[axis]:
                raise ValueError(f"a grid of {size} on axis {axis} cannot be launched")
        return tuple(sizes)

    def _write(
        self,
        jit: Any,
        bound: dict[str, Any],
        signature: Any,
        constants: Any,
        attributes: Any,
        grid: tuple[int | plan.Sym, ...],
        options: dict[str, Any],
        stand_ins: dict[Any, Any],
    ) -> None:
        if 0 in grid:
            return
        recorder = self._recorder
        line = recorder.line()
        index = self._kernels.kernel(jit, signature, constants, attributes.items(), self._kernels.options(options))
        kernel = self._kernels.kernels[index]
        known = dict(kernel.constants)
        args = tuple(
            self._argument(value, kind, (place,), known, stand_ins)
            for place, (value, (_, kind)) in enumerate(zip(bound.values(), kernel.signature, strict=True))
        )
        written = self._kernels.written(jit)
        storages = {
            recorder.storage_of[value]
            for arg, name in zip(args, bound, strict=True)
            if name in written and not isinstance(arg, plan.Sym)  # an offset may stand in what is written to
            for value in plan.ids_in(arg)
        }
        recorder.add(plan.Launch(index, grid, args, line), plan.ids_in((args, grid)), set(), storages)

    def _argument(self, value: Any, kind: plan.Type, path: plan.Path, constants: Any, stand_ins: Any) -> plan.Arg:
        if kind == "constexpr":
            return constants[path]
        if isinstance(kind, tuple):
            items = enumerate(zip(value, kind, strict=True))
            return tuple(self._argument(item, inner, (*path, at), constants, stand_ins) for at, (item, inner) in items)
        if isinstance(value, TensorDescriptor):
            return self._descriptor(value)
        if isinstance(value, TensorWrapper):
            value = value.base
        if isinstance(value, torch.Tensor):
            return plan.Ref(self._recorder.id_of(value))
        if isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            if value in stand_ins:
                return self._recorder.symbol(stand_ins[value])
            address = self._recorder.behind_address(value) if isinstance(value, int) else None
            return address or (int(value) if isinstance(value, int) else float(value))
        pointer = getattr(value, "data_ptr", None)
        address = self._recorder.behind_address(pointer()) if callable(pointer) else None
        if address is None:
            raise NotData(f"of type {type(value).__name__}, which cannot be traced")
        return address

    def _descriptor(self, value: Any) -> plan.Descriptor:
        base = self._recorder.id_of(value.base)
        sizes = [tuple(operator.index(size) for size in of) for of in (value.shape, value.strides, value.block_shape)]
        return plan.Descriptor(base, sizes[0], sizes[1], sizes[2], str(value.padding))

    # --- autotuning ---

    def tune(self, tuner: Any, *args: Any, **options: Any) -> Any:
        """Autotuner.run: one alternative for each configuration that Triton's own pruning leaves."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = list(tuner.prune_configs(options)) if len(tuner.configs) > 1 else list(tuner.configs)
        if len(configs) > 1 and not self._choosing and not options.get("warmup"):
            found = self._each(configs, lambda config: self._run_config(tuner, config, args, options))
            tuner.best_config = _Unchosen(self._recorder)
            return found
        return self._run_config(tuner, configs[0], args, options)

    def _inductors(self, tuner: Any, *args: Any, stream: Any, grid: Any = None, **options: Any) -> None:
        """CachingAutotuner.run, of the decorators of Inductor's output: the grid follows from a configuration."""

        def launch(config: Any) -> None:
            given, sizes = (args, grid) if grid is not None else tuner._interpret_args_grid(args, config)
            sizes = sizes(config.kwargs) if callable(sizes) else sizes
            chosen = {name: value for name, value in config.all_kwargs().items() if name not in config.kwargs}
            chosen |= {name: value for name, value in config.kwargs.items() if name in tuner.fn.arg_names}
            tuner.fn.run(*given, grid=sizes, **options, **chosen)

        self._each(list(tuner.configs), launch)

    def _each(self, configs: list[Any], launch: Callable[[Any], Any]) -> Any:
        """One alternative for each configuration, or, where there is one alone, its steps."""
        configs = configs[: plan.ALTERNATIVES_MAX]
        if len(configs) == 1:
            return launch(configs[0])
        line = self._recorder.line()
        entries: list[Sink] = []
        found: Any = None
        self._choosing = True
        try:
            for config in configs:
                with self._recorder.into(Sink()) as sink:
                    found = launch(config)
                entries.append(sink)
        finally:
            self._choosing = False
        self._choice(configs, entries, line)
        return found

    @staticmethod
    def _run_config(tuner: Any, config: Any, args: Any, options: dict[str, Any]) -> Any:
        tuner.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**dict(zip(tuner.arg_names, args, strict=False)), **options, **config.all_kwargs()})
        return tuner.fn.run(*args, **options, **config.all_kwargs())

    def _choice(self, configs: list[Any], sinks: list[Sink], line: int) -> None:
        if not any(sink.entries for sink in sinks):
            return
        if not all(sink.entries for sink in sinks):
            raise self._recorder.refuse("some configurations of an autotuned kernel launch nothing", line)
        alternatives = tuple(
            plan.Alternative(str(config)[: plan.NAME_MAX], tuple(entry.step for entry in sink.entries))
            for config, sink in zip(configs, sinks, strict=True)
        )
        entries = [entry for sink in sinks for entry in sink.entries]
        defines = set().union(*(entry.defines for entry in entries))
        reads = set().union(*(entry.reads for entry in entries)) - defines
        writes = set().union(*(entry.writes for entry in entries))
        self._recorder.add(plan.Choose(alternatives, line), reads, defines, writes)


class _Unchosen:
    """The best of several configurations: only the GPU can decide it, and the trace ends where it is used."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        raise self._recorder.refuse("which configuration of an autotuned kernel is best is not known yet")


def refuse_other_launches(recorder: Recorder) -> Callable[..., None]:
    """For the launcher that Triton would build: it is only called without the jit functions."""

    def launched(_source: Any) -> None:
        raise recorder.refuse("a launch that does not go through a @triton.jit function cannot be traced")

    return launched
