"""The ast stage: checks of a candidate without running it (docs/compile.md).

It parses with CPython's own parser, and finds the entry class and the `@triton.jit` functions. The plan shows what they
do. An honest candidate must never fail here.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Final

from shared import wire

from static.names import Imports

KERNELS_MAX: Final = 500
JIT_IN_TEXT: Final = re.compile(r"^@(triton\.)?jit\b.*\ndef ", re.M)


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
    message = str(error.msg)
    if "encoding" in message:  # Python repeats its name, which is any text of the candidate's
        message = message.partition(":")[0]
    parts = [f"{_where(line)}{type(error).__name__}: {message}"]
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


def kernel_names(tree: ast.Module, imports: Imports) -> list[str]:
    """Of the functions that are decorated with jit or handed to it, wherever they stand."""
    defined: set[str] = set()
    made: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
            if any(is_jit(decorator, imports) for decorator in node.decorator_list):
                made.add(node.name)
        elif isinstance(node, ast.Call) and is_jit(node.func, imports):
            made.update(argument.id for argument in node.args if isinstance(argument, ast.Name))
    return sorted(made & defined)


# --- the stage ---


def check(tree: ast.Module, imports: Imports, kernels: list[str], entry: str, policy: str) -> None:
    """Refused where the class is missing, or a kernel that the policy asks for."""
    names = {name for statement in module_level(tree.body) for name in bound_names(statement)}
    if entry not in names and not imports.has_star:
        what = f"no class {entry!r} is defined at module level" if tree.body else "the candidate has no code"
        text = f"{wire.CANDIDATE_FILE}: {what}"
        raise Refused("form", text, None, rule="entry_class")
    if policy != "kernelbench" and not kernels:
        line = _text_with_a_kernel(tree)
        where = "" if line is None else " but in a text, where it is none of the module"
        text = f"there is no @triton.jit function{where}, and the policy {policy!r} asks for one"
        raise Refused("form", f"{wire.CANDIDATE_FILE}: {text}", line, rule="kernel_required")


def _text_with_a_kernel(tree: ast.Module) -> int | None:
    """The line of a text with a jit function, as Inductor's AsyncCompile and what executes or writes a file take it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and JIT_IN_TEXT.search(node.value):
            return node.lineno
    return None


def judge(source: bytes, entry: str, policy: str) -> wire.Json:
    """The report. What a candidate does is decided by its plan, and not here."""
    report: wire.Json = {"ev": "result", "outcome": "pass", "class": None, "kernels": [], "flags": []}
    report.update({"error": None, "rule": None})
    try:
        tree = parse(source)
        imports = Imports.of(tree)
        kernels = kernel_names(tree, imports)
        report["kernels"] = [wire.clean_text(name, 128) for name in kernels[:KERNELS_MAX]]
        report["flags"] = ["kernels_cut"] if len(kernels) > KERNELS_MAX else []
        check(tree, imports, kernels, entry, policy)
    except Refused as refused:
        report.update({"outcome": "fail", "class": refused.kind, "error": refused.error, "rule": refused.rule})
    return report


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
    """Initialises the modules that a judgement uses: once in the zygote, and not in each child."""
    for source in (PRIMER, b"def f(:\n"):
        judge(source, "ModelNew", "strict")


def main(channel: wire.Channel) -> None:
    """One request, one report. While it waits it writes to the pages that judging writes to: each is copied then."""
    if not channel.wait(0.0):
        prime()
    request = channel.receive()
    if request.text("op") != "ast":
        raise wire.ProtocolError(f"an ast child was asked for {request.text('op')!r}")
    source = request.take("source", wire.SOURCE_MAX)
    policy = wire.Message(request.mapping("policy")).text("name")
    channel.send(judge(source, request.text("entry"), policy))
