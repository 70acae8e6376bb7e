"""The ast stage: what can be told of a candidate without running it (docs/compile.md).

It parses with CPython's own parser, finds the entry class and the `@triton.jit` functions, and asks whether
one that stores can be reached from the entry class. Reachability is by name and generous: an
honest candidate must never fail here. What cannot be decided passes with the flag `reachability_unknown`.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from shared import wire

from static.names import Imports, dotted

POLICIES: Final = ("strict", "hybrid", "kernelbench")
KERNEL_POLICIES: Final = ("strict", "hybrid")
"""Policies that ask for a kernel."""

KERNELS_MAX: Final = 500
ENTRY_METHODS: Final = ("forward", "__call__", "__init__", "__new__", "__post_init__", "setup")
STORES: Final = re.compile(r"store|scatter|atomic_|inline_asm|descriptor_store")
INDIRECT_CALLS: Final = frozenset({"getattr", "globals", "locals", "vars", "eval", "exec", "compile", "__import__"})
INDIRECT_ATTRIBUTES: Final = frozenset({"__dict__", "import_module", "methodcaller", "attrgetter", "__subclasses__"})


class Refused(Exception):
    """The candidate ends here."""

    def __init__(self, kind: str, text: str, line: int | None, rule: str | None = None, error_type: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.rule = rule
        self.error = {"type": error_type or "PolicyError", "text": wire.clean_text(text), "line": line}


# --- parsing ---


def parse(source: bytes) -> ast.Module:
    """The tree, as CPython makes it; Refused as `syntax` where CPython would refuse to run it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, wire.CANDIDATE_FILE)
            compile(source, wire.CANDIDATE_FILE, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = error.lineno or _nul_line(source)
        raise Refused("syntax", _syntax_text(error, line), line, error_type=type(error).__name__) from None
    except ValueError as error:
        line = _nul_line(source)
        raise Refused("syntax", _where(line) + str(error), line, error_type="SyntaxError") from None
    except (RecursionError, MemoryError) as error:
        text = f"{wire.CANDIDATE_FILE}: the code is nested too deep for Python's parser ({type(error).__name__})"
        raise Refused("syntax", text, None, error_type=type(error).__name__) from None
    return tree


def _nul_line(source: bytes) -> int | None:
    """Python says of a NUL only that there is one."""
    return source[: source.find(b"\0")].count(b"\n") + 1 if b"\0" in source else None


def _where(line: int | None) -> str:
    return f"{wire.CANDIDATE_FILE}: " if line is None else f"{wire.CANDIDATE_FILE}, line {line}: "


def _syntax_text(error: SyntaxError, line: int | None) -> str:
    parts = [f"{_where(line)}{type(error).__name__}: {error.msg}"]
    if error.text:
        parts.append(error.text.rstrip()[:500])
    return "\n".join(parts)


# --- names ---


def module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run at import: those of the module, and inside its if, try, with, for and while."""
    pending = list(reversed(body))
    while pending:
        statement = pending.pop()
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for name in ("body", "orelse", "finalbody"):
            pending.extend(reversed(getattr(statement, name, [])))
        for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            pending.extend(reversed(handler.body))


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement of a module binds, its own blocks aside."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


# --- kernels ---


def is_jit(node: ast.AST, imports: Imports) -> bool:
    """Whether a decorator, or the function of a call, is triton's jit (gluon's too), alone or called."""
    while isinstance(node, ast.Call):
        node = node.func
    meaning = imports.meaning(node)
    if meaning is None:
        return False
    first, _, rest = meaning.partition(".")
    return first == "triton" and rest.rpartition(".")[2] in ("jit", "jit_function", "JITFunction")


@dataclass
class Program:
    """The definitions of a module by name, however deep they stand."""

    tree: ast.Module
    imports: Imports
    functions: dict[str, list[ast.AST]] = field(default_factory=dict)
    values: dict[str, list[ast.AST]] = field(default_factory=dict)
    kernels: dict[str, list[ast.AST]] = field(default_factory=dict)

    @staticmethod
    def of(tree: ast.Module) -> Program:
        program = Program(tree, Imports.of(tree))
        for node in ast.walk(tree):
            program._keep(node)
        return program

    def _keep(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.functions.setdefault(node.name, []).append(node)
            if any(is_jit(decorator, self.imports) for decorator in node.decorator_list):
                self.kernels.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name | ast.Attribute):
                        name = part.id if isinstance(part, ast.Name) else part.attr
                        self.values.setdefault(name, []).append(node.value)
        elif isinstance(node, ast.Call) and is_jit(node.func, self.imports):
            for argument in node.args:
                if isinstance(argument, ast.Name):
                    self._pending_kernel(argument.id)

    def _pending_kernel(self, name: str) -> None:
        """`kernel = triton.jit(function)`: the function is found wherever it is defined."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                self.kernels.setdefault(name, []).append(node)

    def stores(self, name: str) -> bool:
        """Whether a kernel stores, itself or through the functions that it calls. One that fills loads nothing."""
        calls = (node for node in self.closure(self.kernels[name]) if isinstance(node, ast.Call))
        return any(STORES.search(_last_name(call.func)) for call in calls)

    def closure(self, roots: list[ast.AST]) -> Iterator[ast.AST]:
        """Every node of the roots and of each definition that a name or attribute in them may mean."""
        seen: set[str] = set()
        pending = list(roots)
        while pending:
            for node in ast.walk(pending.pop()):
                yield node
                for name in _mentioned(node):
                    if name not in seen:
                        seen.add(name)
                        pending.extend(self.functions.get(name, ()))
                        pending.extend(self.values.get(name, ()))


def _last_name(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _mentioned(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    return (node.attr,) if isinstance(node, ast.Attribute) else ()


# --- reachability ---


def _entry_roots(entry: ast.ClassDef) -> list[ast.AST]:
    """What runs of a class when it is built and called; other methods are found when something names them."""
    roots: list[ast.AST] = [
        *entry.bases,
        *entry.decorator_list,
        *(keyword.value for keyword in entry.keywords),
    ]
    for statement in entry.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if statement.name in ENTRY_METHODS:
                roots.append(statement)
        else:
            roots.append(statement)
    return roots


def _base_roots(program: Program, roots: list[ast.AST], seen: set[str]) -> list[ast.AST]:
    """The roots of a class and of its bases that are in the same file."""
    found = list(roots)
    for root in roots:
        for node in program.functions.get(_last_name(root), ()):
            if isinstance(node, ast.ClassDef) and node.name not in seen:
                seen.add(node.name)
                found.extend(_base_roots(program, _entry_roots(node), seen))
    return found


def find_roots(program: Program, entry: str) -> list[ast.AST] | None:
    """What the entry class runs; None where it is bound otherwise than by `class`."""
    classes = [node for node in program.functions.get(entry, ()) if isinstance(node, ast.ClassDef)]
    if not classes:
        return None
    roots: list[ast.AST] = []
    for node in classes:
        roots.extend(_base_roots(program, _entry_roots(node), {entry}))
    return roots


def _is_indirect(node: ast.AST, imports: Imports) -> bool:
    """Whether what this runs cannot be told by its name."""
    if isinstance(node, ast.Attribute):
        return node.attr in INDIRECT_ATTRIBUTES or dotted(node) == "torch.ops"
    if not isinstance(node, ast.Call):
        return False
    return (imports.meaning(node.func) or "") in INDIRECT_CALLS


def reaches_kernel(program: Program, entry: str) -> bool | None:
    """Whether a kernel that stores can run; None: cannot be told."""
    working = {name for name in program.kernels if program.stores(name)}
    roots = find_roots(program, entry)
    if roots is None:
        return bool(working)
    indirect = program.imports.has_star
    for node in program.closure(roots):
        if any(name in working for name in _mentioned(node)):
            return True
        indirect = indirect or _is_indirect(node, program.imports)
    return None if indirect and working else False


# --- the stage ---


def check(program: Program, entry: str, policy: str) -> list[str]:
    """Flags of how a candidate that passes gets to its kernels; Refused where a class or kernel is missing."""
    names = {name for statement in module_level(program.tree.body) for name in bound_names(statement)}
    if entry not in names and not program.imports.has_star:
        text = f"{wire.CANDIDATE_FILE}: no class {entry!r} is defined at module level"
        raise Refused("form", text, None, rule="entry_class")
    if policy not in KERNEL_POLICIES:
        return []
    if not program.kernels:
        text = f"{wire.CANDIDATE_FILE}: there is no @triton.jit function, and the policy {policy!r} asks for one"
        raise Refused("form", text, None, rule="kernel_required")
    reached = reaches_kernel(program, entry)
    if reached is False:
        raise Refused("form", _unreached_text(program, entry), None, rule="kernel_reachable")
    return ["reachability_unknown"] if reached is None else []


def _unreached_text(program: Program, entry: str) -> str:
    working = [name for name in program.kernels if program.stores(name)]
    if not working:
        names = ", ".join(map(repr, program.kernels))
        return f"{wire.CANDIDATE_FILE}: no @triton.jit function stores ({names})"
    return f"{wire.CANDIDATE_FILE}: {entry} never gets to a kernel ({', '.join(map(repr, working))})"


def judge(source: bytes, entry: str, policy: str) -> wire.Json:
    """The report. What a candidate does is decided by its plan, and not here."""
    report: wire.Json = {"ev": "result", "outcome": "pass", "class": None, "kernels": [], "flags": []}
    report.update({"error": None, "rule": None})
    try:
        program = Program.of(parse(source))
        kernels = sorted(program.kernels)
        report["kernels"] = [wire.clean_text(name, 128) for name in kernels[:KERNELS_MAX]]
        report["flags"] = ["kernels_cut"] if len(kernels) > KERNELS_MAX else []
        report["flags"] += check(program, entry, policy)
    except Refused as refused:
        report.update({"outcome": "fail", "class": refused.kind, "error": refused.error, "rule": refused.rule})
    return report


def policy_name(policy: Any) -> str:
    """The set of rules that a policy's static part follows."""
    name = policy.get("name") if isinstance(policy, dict) else None
    return str(name) if name in POLICIES else "strict"


PRIMER: Final = b"""import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), block=64)
        return y
"""


def prime() -> None:
    """What the first judgement does for all that follow: here, once, and not in each child."""
    for source in (PRIMER, b"def f(:\n"):
        judge(source, "ModelNew", "strict")


def main(channel: wire.Channel) -> None:
    """One request, one report. While it waits it writes to the pages that judging writes to: each is copied then."""
    if not channel.wait(0.0):
        prime()
    request = channel.receive()
    if request.text("op") != "ast":
        raise wire.ProtocolError(f"an ast child was asked for {request.text('op')!r}")
    source = wire.read_memfd(request.take_fd("source"), wire.SOURCE_MAX)
    policy = policy_name(request.body.get("policy"))
    channel.send(judge(source, request.text("entry"), policy))
