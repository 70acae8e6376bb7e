"""Is this row a task, is it the same as another, how much does it do: by its syntax tree. Nothing of a row is run."""

from __future__ import annotations

import ast
import ctypes
import hashlib
import io
import os
import re
import signal
import tokenize
import warnings
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

# Calls that move, make or ask, and compute nothing.
PR_SET_PDEATHSIG = 1
WORDS = """
    view reshape permute transpose t size shape dim contiguous unsqueeze squeeze to expand expand_as flatten
    unflatten cuda cpu type type_as float half double long int bool clone detach item numel device zeros ones empty
    full arange zeros_like ones_like empty_like full_like new_zeros new_ones new_empty tensor as_tensor from_numpy
    numpy chunk split unbind narrow select index_select view_as swapaxes movedim len range print isinstance list
    tuple dict set zip enumerate super append extend items keys values get format join requires_grad_
    register_buffer Identity Parameter
"""
NO_WORK = frozenset(WORDS.split())
CONTAINERS = frozenset(("Sequential", "ModuleList", "ModuleDict"))
Functions = dict[str, ast.FunctionDef]


class Fault(Exception):
    """Why a row is not a task: (reason, detail)."""


def last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_of_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


# --- comparison of definitions ---


def definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: node for node in tree.body if isinstance(node, kinds)}


def reached(entry: str, known: dict[str, ast.stmt]) -> list[ast.stmt]:
    """The entry's class and what it names of the module, in the order of meeting."""
    order, todo = [entry], [entry]
    while todo:
        for node in ast.walk(known[todo.pop()]):
            if isinstance(node, ast.Name) and node.id in known and node.id not in order:
                order.append(node.id)
                todo.append(node.id)
    return [known[name] for name in order]


class Normal(ast.NodeTransformer):
    """Names by the order in which they appear, no docstrings, no annotations."""

    def __init__(self, local: set[str], own: set[str]) -> None:
        self.local = local
        self.own = own
        self.names: dict[str, str] = {}
        self.attributes: dict[str, str] = {}

    def name(self, name: str) -> str:
        return self.names.setdefault(name, f"v{len(self.names)}") if name in self.local else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.name(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.name(node.arg))

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        return ast.keyword(node.arg, self.visit(node.value))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        attribute = node.attr
        if is_of_self(node) and attribute in self.own:
            attribute = self.attributes.setdefault(attribute, f"a{len(self.attributes)}")
        return ast.Attribute(self.visit(node.value), attribute, node.ctx)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.Assign([self.visit(node.target)], self.visit(node.value))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return ast.Call(node.func, [], [])
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.name = self.name(node.name)
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.name(node.name)
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node


def digest(tree: ast.Module, entry: str) -> str:
    """The same for modules that differ in names, comments, docstrings, annotations and the sizes of their inputs."""
    nodes = reached(entry, definitions(tree))
    local = {node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    own: set[str] = set()
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.arg):
                local.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                local.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_of_self(node):
                own.add(node.attr)
    normal = Normal(local, own)
    text = "\n".join(ast.dump(normal.visit(node), annotate_fields=False) for node in nodes)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


# --- how much it does ---


class Work:
    """Counts the computing operations of a forward in the syntax tree: a loop counts once."""

    def __init__(self, known: dict[str, ast.stmt]) -> None:
        self.known = known
        self.inside: set[str] = set()

    def of_class(self, name: str) -> int:
        node = self.known.get(name)
        if not isinstance(node, ast.ClassDef) or name in self.inside:
            return 1
        self.inside.add(name)
        methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        modules = self.modules(methods.get("__init__"))
        count = self.of_method("forward", methods, modules, set())
        self.inside.discard(name)
        return count

    def modules(self, init: ast.FunctionDef | None) -> dict[str, int]:
        """The cost of calling each attribute of self."""
        out: dict[str, int] = {}
        for node in ast.walk(init) if init else ():
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and is_of_self(target):
                        out[target.attr] = self.of_module(node.value)
        return out

    def of_module(self, call: ast.Call) -> int:
        name = last_name(call.func)
        if name in CONTAINERS:
            inner = [node for node in ast.walk(call) if isinstance(node, ast.Call) and node is not call]
            return sum(self.of_module(node) for node in inner if last_name(node.func) not in CONTAINERS)
        if name in NO_WORK:
            return 0
        return self.of_class(name) if name in self.known else 1

    def of_method(self, name: str, methods: Functions, modules: dict[str, int], seen: set[str]) -> int:
        if name not in methods or name in seen:
            return 0
        seen = seen | {name}
        count = 0
        for node in ast.walk(methods[name]):
            if isinstance(node, ast.Call):
                called = last_name(node.func)
                if is_of_self(node.func):
                    own = self.of_method(called, methods, modules, seen)
                    count += modules.get(called, own if called in methods else 1)
                elif isinstance(node.func, ast.Name) and called in self.known:
                    count += self.of_function(called)
                elif called not in NO_WORK:
                    count += 1
            elif isinstance(node, ast.BinOp):
                sides = (node.left, node.right)
                count += not all(isinstance(side, ast.Constant) for side in sides)
        return count

    def of_function(self, name: str) -> int:
        node = self.known[name]
        if isinstance(node, ast.ClassDef):
            return self.of_class(name)
        if not isinstance(node, ast.FunctionDef) or name in self.inside:
            return 1
        self.inside.add(name)
        count = self.of_method(name, {name: node}, {}, set())
        self.inside.discard(name)
        return count


# --- the plain heuristic ---


def tokens_of(text: str) -> int:
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = (tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING)
    return sum(token.type in kinds for token in found)


FUSED = re.compile("fused|fusion|combined", re.IGNORECASE)
WHOLE = re.compile(r"level[ _-]?3\b", re.IGNORECASE)


def guessed_level(source: str, node: ast.ClassDef) -> int:
    """3 if the text has a word of WHOLE; 2 if it mentions fusion, or forward has several operations; else 1."""
    return 3 if WHOLE.search(source) else 2 if FUSED.search(source) or is_several(node) else 1


def is_several(node: ast.ClassDef) -> bool:
    """Does forward have several calls and + @ * together, a chained call, or more than 50 tokens?"""
    forward = next(item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "forward")
    calls = [call for call in ast.walk(forward) if isinstance(call, ast.Call) and last_name(call.func) not in NO_WORK]
    operators = [
        one
        for one in ast.walk(forward)
        if isinstance(one, ast.BinOp)
        and isinstance(one.op, (ast.Add, ast.MatMult, ast.Mult))
        and not all(isinstance(side, ast.Constant) for side in (one.left, one.right))
    ]
    chained = any(
        isinstance(inner, ast.Call) for call in calls for inner in (*call.args, getattr(call.func, "value", None))
    )
    body = "\n".join(ast.unparse(statement) for statement in forward.body)
    return len(calls) + len(operators) > 1 or chained or tokens_of(body) > 50


# --- larger shapes ---

STRUCTURE = re.compile(r"(^|_)(dim|axis|kernel|stride|padding|dilation|groups|layers?|heads?)(_|$)", re.IGNORECASE)
MAKERS = frozenset(["rand", "randn", "ones", "zeros", "empty", "full", "randint", "arange", "normal"])
INPUTS = ("get_inputs", "get_init_inputs")


def is_size(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 2


def shapes_in(node: ast.AST) -> list[list[ast.expr]]:
    """The sizes of each tensor that is made: a list, a tuple, or the arguments themselves."""
    out = []
    for call in calls_in(node):
        if last_name(call.func) not in MAKERS or not call.args:
            continue
        first = call.args[-1] if last_name(call.func) == "randint" else call.args[0]
        out.append(list(first.elts) if isinstance(first, (ast.List, ast.Tuple)) else list(call.args))
    return [shape for shape in out if shape]


class Grow:
    """Multiplies sizes in the syntax tree: of the inputs' leading dimensions, or all sizes but structural ones."""

    def __init__(self, tree: ast.Module, factor: int) -> None:
        self.factor = factor
        self.done: set[int] = set()
        self.constants = {
            node.targets[0].id: node
            for node in tree.body
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        }
        known = definitions(tree)
        self.makers = [known[name] for name in INPUTS if name in known]

    def multiply(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and node.id in self.constants and not STRUCTURE.search(node.id):
            self.multiply(self.constants[node.id].value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            self.multiply(node.left if is_size(node.left) else node.right)
        elif is_size(node) and id(node) not in self.done:
            assert isinstance(node, ast.Constant) and isinstance(node.value, int)
            node.value *= self.factor
            self.done.add(id(node))

    def batch(self) -> None:
        """The first dimension of each input whose first dimension is the first input's."""
        shapes = [shape for maker in self.makers[:1] for shape in shapes_in(maker)]
        first = ast.dump(shapes[0][0]) if shapes else ""
        for node in [shape[0] for shape in shapes if ast.dump(shape[0]) == first]:
            self.multiply(node)

    def all(self) -> None:
        """Every size in the two functions, and in the constants that they name."""
        nodes = [node for maker in self.makers for node in ast.walk(maker)]
        kept: set[int] = set()
        for node in nodes:
            if isinstance(node, ast.keyword) and node.arg and STRUCTURE.search(node.arg):
                kept.update(id(inner) for inner in ast.walk(node))
        for node in nodes:
            if id(node) not in kept and (isinstance(node, ast.Name) or is_size(node)):
                self.multiply(node)


def grown(row: dict[str, Any]) -> dict[str, Any]:
    """The reference with sizes times `factor`: {"source"}, or a fault where there is none to change."""
    tree = parsed(row["source"], "")
    grow = Grow(tree, int(row["factor"]))
    if row["how"] == "batch":
        grow.batch()
    else:
        grow.all()
    if not grow.done:
        raise Fault("no_size", "no shape in a literal or a constant")
    return {"source": ast.unparse(ast.fix_missing_locations(tree)) + "\n"}


# --- TritonBench's T: a function, a line of #, tests that call it ---

RULE = "#" * 100
MODULE = """
{constants}

class Model(torch.nn.Module):
    def forward(self, {names}):
        return {name}({arguments})


def get_inputs():
{setting}
    return [{values}]


def get_init_inputs():
    return []
"""


def first_call(test: ast.FunctionDef, name: str) -> tuple[list[ast.stmt], ast.Call]:
    """The statements before the one that first calls it, and that call."""
    for i, statement in enumerate(test.body):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and last_name(node.func) == name:
                if not isinstance(statement, (ast.Assign, ast.Expr, ast.Return, ast.AnnAssign)):
                    raise Fault("no_inputs", f"{name} is first called inside a block")
                return test.body[:i], node
    raise Fault("no_inputs", f"no test calls {name}")


def as_module(source: str) -> str:
    """A file of TritonBench's T as a task: the inputs of its first test, the function in a module."""
    lines = source.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(RULE))
    code, tests = "\n".join(lines[:at]), "\n".join(lines[at + 1 :])
    functions = [node for node in parsed(code, "").body if isinstance(node, ast.FunctionDef)]
    tree = parsed(tests, "")
    tester = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test")), None)
    if not functions or tester is None:
        raise Fault("no_inputs", "no function before the rule, or no test behind it")
    called = [f.name for f in functions if any(last_name(n.func) == f.name for n in calls_in(tester))]
    if not called:
        raise Fault("no_inputs", f"no test calls {functions[-1].name}")
    before, call = first_call(tester, called[0])
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(isinstance(value, ast.Starred) for value in values) or any(k.arg is None for k in call.keywords):
        raise Fault("no_inputs", f"{called[0]} is called with * or **")
    names = [f"x{i}" for i in range(len(values))]
    positional = names[: len(call.args)]
    named = [f"{keyword.arg}={names[len(call.args) + i]}" for i, keyword in enumerate(call.keywords)]
    kept = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom)) or (n is not tester and is_plain(n))]
    setting = "\n".join("    " + line for node in before for line in ast.unparse(node).splitlines())
    text = MODULE.format(
        constants="\n".join(ast.unparse(node) for node in kept),
        names=", ".join(names),
        name=called[0],
        arguments=", ".join(positional + named),
        setting=setting,
        values=", ".join(ast.unparse(value) for value in values),
    )
    return code.rstrip() + "\n\n" + "import torch\n" + text.lstrip("\n")


def calls_in(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def is_plain(node: ast.stmt) -> bool:
    """A function that helps a test, or a constant; not what runs a test."""
    if isinstance(node, ast.FunctionDef):
        return not node.name.startswith("test")
    return isinstance(node, ast.Assign) and not any(last_name(call.func).startswith("test") for call in calls_in(node))


# --- one row ---


def parsed(source: str, what: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the row's own escapes
            return ast.parse(source)
    except SyntaxError as error:
        raise Fault(f"{what}syntax", f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Fault(f"{what}syntax", type(error).__name__) from None


def check(row: dict[str, Any]) -> dict[str, Any]:
    source, entry = row["source"], row["entry_point"]
    is_foreign = "\n" + RULE in source and "def get_inputs" not in source
    if is_foreign:
        source, entry = as_module(source), "Model"
    tree = parsed(source, "")
    known = definitions(tree)
    if not isinstance(known.get(entry), ast.ClassDef):
        raise Fault("no_entry_class", f"no class {entry}")
    for name in ("get_inputs", "get_init_inputs"):
        if name not in known:
            raise Fault("no_inputs", f"no {name}()")
    node = known[entry]
    assert isinstance(node, ast.ClassDef)
    if not any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in node.body):
        raise Fault("no_forward", f"{entry} has no forward()")
    lines = len([line for line in source.splitlines() if line.strip()])
    out = {"digest": "", "operations": max(1, Work(known).of_class(entry)), "lines": lines, "answer": None}
    out["guessed"] = guessed_level(source, node)
    if is_foreign:
        out["source"] = source
    if row.get("answer") is not None:
        try:
            answer = definitions(parsed(row["answer"], "answer_"))
            if not isinstance(answer.get(entry + "New"), ast.ClassDef):
                raise Fault("answer_class", f"no class {entry}New")
        except Fault as fault:
            out["answer"] = list(fault.args)
    out["digest"] = digest(tree, entry)  # changes the tree
    return out


def check_all(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """check() of each row, or {"fault": [reason, detail]}."""
    return [check_one(row) for row in rows]


def check_one(row: dict[str, Any]) -> dict[str, Any]:
    try:
        return check(row)
    except Fault as fault:
        return {"fault": list(fault.args)}
    except RecursionError:
        return {"fault": ["syntax", "nested too deep"]}


class Parsers:
    """Processes that parse, since a source may end the interpreter that parses it."""

    def __init__(self) -> None:
        self._n = min(os.cpu_count() or 1, 8)
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._n, get_context("spawn"), initializer=_begin, initargs=(os.getpid(),))

    def submit(self, rows: list[dict[str, Any]]) -> Future[list[dict[str, Any]]]:
        try:
            return self._pool.submit(check_all, rows)
        except BrokenProcessPool:
            self._pool = self._start()
            return self._pool.submit(check_all, rows)

    def results(self, future: Future[list[dict[str, Any]]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The results of submit(); if a process ended, each row is tried once more by itself."""
        try:
            return future.result()
        except BrokenProcessPool:
            return [self._alone(row) for row in rows]

    def _alone(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.submit([row]).result()[0]
        except BrokenProcessPool:
            return {"fault": ["syntax", "it ended the interpreter that was to parse it"]}

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _begin(parent: int) -> None:
    """A signal to the group ends the parent, whose end, for any reason, ends these."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)
