"""A plan's functions out of the candidate's text, as jit functions, without running anything of it.

Of the source only `def` statements are taken, by name and line, wherever they stand. A function object is made of the
signature alone: its body stays text, for Triton reads that and never the code. Decorators are dropped; defaults are
the plan's data, annotations whether a parameter is a constexpr. Its globals are exactly what the plan gives: data,
others of these functions, and what compiler/names.py allows of Triton. Before a function is handed out, the tree that
Triton will walk is checked (compiler/check.py).
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import linecache
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias

import triton.language as tl
from shared import plan, wire
from triton.runtime.jit import ConstexprFunction, JITFunction

from compiler import names
from compiler.check import CompilerRefusal, check

MODULE: Final = "candidate"
"""Of the functions, as the candidate's own module is called."""

DTYPES: Final[dict[str, Any]] = {
    found.name: found for found in (getattr(tl, name) for name in dir(tl)) if type(found) is tl.dtype
}
"""Triton's dtypes by short name."""


@dataclass(frozen=True)
class Text:
    """One `def` of the source."""

    name: str
    line: int
    node: ast.FunctionDef
    """As it stands in the source."""
    lines: str
    """Its lines, indented as they stand."""
    fields: Mapping[str, int | None] = field(default_factory=dict, compare=False)
    """Of named tuples: the place of each; None: it is not known from the name alone."""
    modules: frozenset[str] = frozenset()
    """The names that mean a module."""

    @cached_property
    def tree(self) -> ast.FunctionDef:
        """The tree that Triton will walk: lines count from 1, the signature has names only.

        CompilerRefusal: the lines are not a function alone.
        """
        try:
            body = ast.parse(textwrap.dedent(self.lines)).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise CompilerRefusal(self.name, self.line, f"its lines do not stand for themselves: {error}") from None
        if len(body) != 1 or not isinstance(body[0], ast.FunctionDef) or body[0].name != self.name:
            raise CompilerRefusal(self.name, self.line, "its lines hold more than the function")
        function = body[0]
        function.args, function.returns, function.decorator_list = _bare(function.args), None, []
        return ast.fix_missing_locations(_Fields(self).visit(function)) if self.fields else function


class _Fields(ast.NodeTransformer):
    """`args.x` of a named tuple becomes `args[0]`, since attributes lead to too much (compiler/names.py)."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in self._text.modules:
            return node
        self.generic_visit(node)
        if node.attr not in self._text.fields or not isinstance(node.ctx, ast.Load):
            return node
        place = self._text.fields[node.attr]
        if place is None:
            other = "an attribute of Triton's values or a field of another one"
            what = f"{node.attr} is a field of a named tuple, and {other}: give it another name"
            raise CompilerRefusal(self._text.name, self._text.line + node.lineno - 1, what)
        return ast.copy_location(ast.Subscript(node.value, ast.Constant(place), node.ctx), node)


def _fields(tree: ast.AST) -> dict[str, int | None]:
    """The fields of the named tuples that a text defines."""
    found: dict[str, int | None] = {}
    for node in ast.walk(tree):
        fields: Sequence[Any] = ()
        if isinstance(node, ast.ClassDef) and any("NamedTuple" in ast.unparse(base) for base in node.bases):
            fields = [ast.unparse(part.target) for part in node.body if isinstance(part, ast.AnnAssign)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("namedtuple") and len(node.args) > 1:
            literals = [part.value for part in ast.walk(node.args[1]) if isinstance(part, ast.Constant)]
            fields = " ".join(map(str, literals)).replace(",", " ").split()
        for place, name in enumerate(fields):
            is_clear = found.get(name, place) == place and name not in names.ATTRIBUTES
            found[name] = place if is_clear else None
    return found


def _bare(args: ast.arguments) -> ast.arguments:
    """The parameters without defaults and annotations."""
    found = copy.deepcopy(args)
    found.defaults, found.kw_defaults = [], [None] * len(found.kwonlyargs)
    for parameter in _parameters(found):
        parameter.annotation = None
    return found


def _parameters(args: ast.arguments) -> list[ast.arg]:
    more = [parameter for parameter in (args.vararg, args.kwarg) if parameter is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *more]


class Source:
    """A candidate's text, parsed once. CompilerRefusal: it is not Python."""

    def __init__(self, data: bytes) -> None:
        try:
            self._tree = ast.parse(data)
            text = importlib.util.decode_source(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise CompilerRefusal("the module", getattr(error, "lineno", None) or 1, f"no Python: {error}") from None
        self.lines = text.split("\n")
        self.fields = _fields(self._tree)
        self._functions = {
            (node.name, node.lineno): node for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef)
        }
        lines = [line + "\n" for line in self.lines]
        linecache.cache[wire.CANDIDATE_FILE] = (len(text), None, lines, wire.CANDIDATE_FILE)

    def find(self, name: str, line: int) -> Text:
        """The function with its `def` on that line. CompilerRefusal: there is none."""
        node = self._functions.get((name, line))
        if node is None or node.end_lineno is None:
            raise CompilerRefusal(name, line, "no function of this name is defined on this line of the source")
        lines = "\n".join(self.lines[line - 1 : node.end_lineno]) + "\n"
        return Text(name, line, node, lines)


class ExtractedFunction(JITFunction):
    """A jit function of which Triton reads the tree that was checked."""

    def __init__(self, function: FunctionType, text: Text, noinline: bool) -> None:
        super().__init__(function, noinline=noinline)
        self._tree = text.tree

    def parse(self) -> ast.Module:
        return ast.Module([copy.deepcopy(self._tree)], [])


Maker: TypeAlias = Callable[[FunctionType, Text, bool], Any]


def _signature_code(text: Text) -> CodeType:
    """Code of a function that does nothing, with the parameters of the text's."""
    empty = copy.copy(text.node)
    empty.args, empty.returns, empty.decorator_list, empty.body = _bare(text.node.args), None, [], [ast.Pass()]
    module = ast.fix_missing_locations(ast.Module([empty], []))
    try:
        code = compile(module, wire.CANDIDATE_FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise CompilerRefusal(text.name, text.line, f"its signature is none: {error.msg}") from None
    return next(found for found in code.co_consts if isinstance(found, CodeType))


def _annotations(args: ast.arguments, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Of an annotation Triton reads, once types are known, whether it says constexpr; also by a name of its own."""

    def is_constexpr(annotation: ast.expr) -> bool:
        known = namespace.get(annotation.id) if isinstance(annotation, ast.Name) else None
        return known is tl.constexpr or "constexpr" in ast.unparse(annotation)

    return {
        parameter.arg: tl.constexpr
        for parameter in _parameters(args)
        if parameter.annotation is not None and is_constexpr(parameter.annotation)
    }


def constant(value: Any, function: Callable[[int], Any]) -> Any:
    """A constant of the plan as Triton has it; `function` gives the jit function of an index. KeyError: no dtype."""
    if isinstance(value, plan.Dtype):
        return DTYPES[value.name]
    if isinstance(value, plan.Constexpr):
        return tl.constexpr(constant(value.value, function))
    if isinstance(value, plan.FunctionRef):
        return function(value.index)
    if isinstance(value, tuple):
        return tuple(constant(item, function) for item in value)
    return value


class Functions:
    """The functions of one plan. CompilerRefusal: one of them is not there, or not what a kernel may be."""

    def __init__(self, source: Source, functions: Sequence[plan.Function], kernels: Sequence[plan.Kernel] = ()) -> None:
        """kernels: those of the plan; where one takes a tuple, its functions may read fields of it."""
        self.planned = functions
        given = [value for kernel in kernels for _, value in (*kernel.signature, *kernel.constants)]
        fields = source.fields if any(isinstance(value, tuple) for value in given) else {}
        self.texts = [
            replace(source.find(function.name, function.line), fields=fields, modules=_modules(function))
            for function in functions
        ]
        self._codes = [_signature_code(text) for text in self.texts]
        for index, text in enumerate(self.texts):
            check(text.tree, self._namespace(index, lambda _index: None), text.line)
            self._defaults(index, lambda _index: None)
        self.link(range(len(functions)))

    def closure(self, kernel: plan.Kernel) -> list[int]:
        """The functions of a kernel: its own, those among its constants, and all that these name, in the order of
        their first mention."""
        found: dict[int, None] = {}
        also = [at for _, value in kernel.constants for at in function_refs(value)]
        waiting = [*reversed(also), kernel.function]
        while waiting:
            at = waiting.pop()
            if at not in found:
                found[at] = None
                function = self.planned[at]
                values = [value for _, value in (*function.globals, *function.defaults)]
                waiting.extend(reversed([inner for value in values for inner in function_refs(value)]))
        return list(found)

    def link(self, closure: Sequence[int], make: Maker = ExtractedFunction) -> dict[int, Any]:
        """Jit functions of a closure, by index, new ones; make: of a function, its text, and whether it is inlined.

        Triton names functions in its code, and knows a called one again, by module and name: here by their place in
        the closure, so that the same texts make the same code in every plan.
        """
        made: dict[int, Any] = {}
        for index in sorted(closure):
            text = self.texts[index]
            namespace = self._namespace(index, made.__getitem__)
            function = FunctionType(self._codes[index], namespace, text.name)
            function.__defaults__, function.__kwdefaults__ = self._defaults(index, made.__getitem__)
            function.__annotations__ = _annotations(text.node.args, namespace)
            function.__module__, function.__qualname__ = MODULE, f"f{closure.index(index)}.{text.name}"
            try:
                made[index] = make(function, text, self.planned[index].noinline)
            except Exception as error:  # Triton reads a signature's text in ways of its own
                raise CompilerRefusal(text.name, text.line, f"Triton cannot read it: {error}") from error
        return made

    def _namespace(self, index: int, function: Callable[[int], Any]) -> dict[str, Any]:
        text = self.texts[index]
        try:
            return {name: _global(value, function) for name, value in self.planned[index].globals}
        except names.Unreachable as error:
            raise CompilerRefusal(text.name, text.line, f"its text reads {error}") from None
        except KeyError as error:
            raise CompilerRefusal(text.name, text.line, f"there is no dtype {error}") from None

    def _defaults(self, index: int, function: Callable[[int], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Values for the parameters that have a default in the text: the positional ones, those by name."""
        text, args = self.texts[index], self.texts[index].node.args
        positional = [parameter.arg for parameter in (*args.posonlyargs, *args.args)]
        positional = positional[len(positional) - len(args.defaults) :]
        keywords = [
            parameter.arg
            for parameter, value in zip(args.kwonlyargs, args.kw_defaults, strict=True)
            if value is not None
        ]
        try:
            given = {name: constant(value, function) for name, value in self.planned[index].defaults}
        except KeyError as error:
            raise CompilerRefusal(text.name, text.line, f"there is no dtype {error}") from None
        if {*positional, *keywords} != set(given):
            what = f"the text has defaults of {sorted({*positional, *keywords})}, the plan of {sorted(given)}"
            raise CompilerRefusal(text.name, text.line, what)
        return tuple(given[name] for name in positional), {name: given[name] for name in keywords}


def _modules(function: plan.Function) -> frozenset[str]:
    return frozenset(name for name, value in function.globals if isinstance(value, plan.ModuleRef))


def _global(value: Any, function: Callable[[int], Any]) -> Any:
    if isinstance(value, plan.ModuleRef):
        return names.module(value.name)
    if isinstance(value, plan.ObjectRef):
        return names.named(value.name)
    return _function_of(value) if isinstance(value, plan.Table) else constant(value, function)


def _function_of(table: plan.Table) -> ConstexprFunction:
    """A function of the candidate's, of constants: its text is not run, its results are data."""
    rows = {constant(key, lambda _index: None): constant(value, lambda _index: None) for key, value in table.rows}

    def look_up(*args: Any, **options: Any) -> Any:
        key = (*args, *sorted(options.items()))
        if key not in rows:
            raise ValueError(f"this constexpr function has no result for {key}: it raised there")
        return rows[key]

    return ConstexprFunction(look_up)


def function_refs(value: Any) -> list[int]:
    """The functions that a constant names."""
    if isinstance(value, plan.FunctionRef):
        return [value.index]
    if isinstance(value, plan.Constexpr):
        return function_refs(value.value)
    return [found for item in value for found in function_refs(item)] if isinstance(value, tuple) else []
