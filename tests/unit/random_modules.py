"""Random small modules of movements and kernels, run eagerly and as plans (test_interpreter.py starts this).

    TRITON_INTERPRET=1 python random_modules.py FIRST COUNT

Each module is text made from a seed. Its eager run on CPU tensors is recorded as a plan, which is written, read, and
run by the interpreter on other inputs and from another seed; the eager module on the same has to agree to the bit.
Prints a line of JSON for each module.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import random
import sys
import traceback
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from compiler.extract import Functions, Source
from executor.interpreter import Model
from shared import operators, plan
from torch.utils._python_dispatch import TorchDispatchMode

KERNELS = """\
import torch
import triton
import triton.language as tl

SHIFT = tl.constexpr(0.5)


@triton.jit
def bend(v, K: tl.constexpr = 3):
    return tl.where(v < 0, v * K, v + SHIFT)


@triton.jit
def unary(x, o, n, MODE: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    if MODE == "bend":
        v = bend(v)
    elif MODE == "exp":
        v = tl.exp(v * 0.01)
    else:
        v = v * v - 1
    tl.store(o + i, v, mask=i < n)


@triton.jit
def binary(x, y, o, rows, columns, x0, x1, y0, y1, scale, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1) * C + tl.arange(0, C)
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    a = tl.load(x + r[:, None] * x0 + c[None, :] * x1, mask=mask, other=0.0)
    b = tl.load(y + r[:, None] * y0 + c[None, :] * y1, mask=mask, other=0.0)
    tl.store(o + r[:, None] * columns + c[None, :], a * scale + tl.maximum(a, b), mask=mask)


@triton.jit
def total(x, o, n, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    tl.atomic_add(o + row, tl.sum(tl.load(x + row * n + c, mask=c < n, other=0.0), axis=0))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(%d, %d).normal_())
        self.folded = None

    def unary(self, x, mode):
        x = x.contiguous()
        o = torch.empty_like(x)
        unary[(triton.cdiv(x.numel(), 16), 1, 1)](x, o, x.numel(), mode, 16)
        return o

    def binary(self, x, y, scale):
        y = y.expand(x.shape) if y.shape[0] == 1 else y
        o = torch.empty(x.shape)
        grid = (triton.cdiv(x.shape[0], 4), triton.cdiv(x.shape[1], 8), 1)
        binary[grid](x, y, o, x.shape[0], x.shape[1], *x.stride(), *y.stride(), scale, 4, 8)
        return o

    def total(self, x):
        x = x.contiguous()
        o = torch.zeros(x.shape[0], 1)
        total[(x.shape[0], 1, 1)](x, o, x.shape[1], 32)
        return o

    def forward(self, x, y, out=None):
        if self.folded is None:
            self.folded = (self.weight.detach() * 2).exp()
%s
"""


@dataclass
class Writer:
    """The body of a forward, line by line; every value is a matrix of known shape."""

    random: random.Random
    values: dict[str, tuple[int, int]]
    lines: list[str] = field(default_factory=list)

    def new(self, text: str, shape: tuple[int, int]) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.values[name] = shape
        return name

    def any(self) -> tuple[str, tuple[int, int]]:
        return self.random.choice(list(self.values.items()))

    def step(self) -> None:
        name, (rows, columns) = self.any()
        same = self.random.choice([other for other, shape in self.values.items() if shape == (rows, columns)])
        at, back = self.random.randrange(rows), self.random.random() < 0.5
        choices: list[Callable[[], Any]] = [
            lambda: self.new(f"{name}.t()", (columns, rows)),
            lambda: self.new(f"{name}.reshape({columns}, {rows})", (columns, rows)),
            lambda: self.new(f"{name}[{at}:{rows}]", (rows - at, columns)),
            lambda: self.new(f"{name}[{at}].unsqueeze({int(back)})", (columns, 1) if back else (1, columns)),
            lambda: self.new(f"{name}.flip({int(back)})", (rows, columns)),
            lambda: self.new(f"{name}.clone()", (rows, columns)),
            lambda: self.new(f"torch.cat([{name}, {same}], {int(back)})", self.joined(rows, columns, back)),
            lambda: self.new(f"{name}.split({at + 1})[0]", (at + 1, columns)),
            lambda: self.new(f"torch.full_like({name}, 1.5)", (rows, columns)),
            lambda: self.new(f"{name}.to(torch.float16).to(torch.float32)", (rows, columns)),
            lambda: self.new(f"{name}.index_select(0, torch.arange({at}, {rows}))", (rows - at, columns)),
            lambda: self.lines.append(f"{name}.clone().copy_({same})"),
            lambda: self.new(f"{name}.clone().zero_()", (rows, columns)),
            lambda: self.new(f"self.unary({name}, {self.random.choice(['bend', 'exp', 'square'])!r})", (rows, columns)),
            lambda: self.new(f"self.binary({name}, {same}, {self.random.random():.3f})", (rows, columns)),
            lambda: self.new(f"self.binary({name}, {name}[{at}:{at + 1}], 2.0)", (rows, columns)),
            lambda: self.new(f"self.total({name})", (rows, 1)) if columns <= 32 else None,
            lambda: self.changed(name, same, at),
        ]
        self.random.choice(choices)()

    @staticmethod
    def joined(rows: int, columns: int, across: bool) -> tuple[int, int]:
        return (rows, 2 * columns) if across else (2 * rows, columns)

    def changed(self, name: str, same: str, at: int) -> None:
        """A view that is written through."""
        copy = self.new(f"{name}.clone()", self.values[name])
        self.lines.append(f"{copy}[{at}].copy_({same}[0])")


def written(seed: int) -> tuple[str, tuple[int, int]]:
    """A module's text and the shape of its inputs."""
    chance = random.Random(seed)
    shape = (chance.randint(1, 5), chance.randint(1, 9))
    writer = Writer(chance, dict.fromkeys(("x", "y", "self.weight", "self.folded"), shape))
    for _ in range(chance.randint(3, 14)):
        writer.step()
    last = [name for name in writer.values if name.startswith("v")][-3:] or ["x"]
    outputs = chance.choice(["return {}", "return [{}]", "return ({},)", "return {{'a': ({},), 'n': 3, 'none': None}}"])
    lines = [*writer.lines, outputs.format(", ".join(last))]
    return KERNELS % (*shape, "\n".join(f"        {line}" for line in lines)), shape


def load(text: str) -> types.ModuleType:
    module = types.ModuleType("candidate")
    linecache.cache["candidate.py"] = (len(text), None, text.splitlines(keepends=True), "candidate.py")
    exec(compile(text, "candidate.py", "exec", dont_inherit=True), module.__dict__)
    return module


class Recorder(TorchDispatchMode):
    """Writes a plan of what runs under it on real tensors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.ids: dict[int, int] = {}
        self.alive: list[torch.Tensor] = []
        self.steps: list[plan.Step] = []
        self.functions: list[plan.Function] = []
        self.indices: dict[int, int] = {}
        self.kernels: list[plan.Kernel] = []

    def id_of(self, tensor: torch.Tensor) -> int:
        if id(tensor) not in self.ids:
            self.alive.append(tensor)
            self.ids[id(tensor)] = len(self.ids)
        return self.ids[id(tensor)]

    def tree(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            return plan.Leaf(self.id_of(value), tuple(value.shape), tuple(value.stride()), dtype)
        if isinstance(value, list):
            return plan.List(tuple(self.tree(item) for item in value))
        if isinstance(value, dict):
            return plan.Dict(tuple((key, self.tree(item)) for key, item in value.items()))
        return tuple(self.tree(item) for item in value) if isinstance(value, tuple) else value

    def arg(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return plan.Ref(self.ids[id(value)])
        if isinstance(value, list | tuple):
            return plan.List(tuple(self.arg(item) for item in value))
        kinds: tuple[tuple[Any, Any], ...] = (
            (torch.dtype, plan.TorchDtype),
            (torch.layout, plan.Layout),
            (torch.memory_format, plan.MemoryFormat),
        )
        for kind, make in kinds:
            if isinstance(value, kind):
                return make(str(value).removeprefix("torch."))
        return plan.Device("cuda") if isinstance(value, torch.device) else value

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = tuple(self.arg(value) for value in args)
        named = tuple((name, self.arg(value)) for name, value in (kwargs or {}).items())
        self.steps.append(plan.Call(str(func), given, named, self.tree(out), 0))
        return out

    def function(self, made: Any) -> int:
        """A jit function and those that it names: by what Python knows of it."""
        if id(made) in self.indices:
            return self.indices[id(made)]
        code = made.fn.__code__
        found: list[tuple[str, Any]] = []
        free = dict(zip(code.co_freevars, (cell.cell_contents for cell in made.fn.__closure__ or ()), strict=True))
        for name in sorted({*code.co_names, *free} & ({*made.fn.__globals__} | {*free})):
            value = free.get(name, made.fn.__globals__.get(name))
            if isinstance(value, tl.constexpr):
                found.append((name, plan.Constexpr(value.value)))
            elif isinstance(value, types.ModuleType):
                found.append((name, plan.ModuleRef(value.__name__)))
            else:
                found.append((name, plan.FunctionRef(self.function(value))))
        defaults = made.fn.__defaults__ or ()
        names = made.arg_names[len(made.arg_names) - len(defaults) :]
        lines = self.text.split("\n")
        line = next(at for at, text in enumerate(lines, 1) if text.strip().startswith(f"def {made.__name__}("))
        given = tuple(zip(names, defaults, strict=True))
        self.functions.append(plan.Function(made.__name__, line, tuple(found), given, False))
        self.indices[id(made)] = len(self.functions) - 1
        return self.indices[id(made)]

    def launch(self, made: Any, args: tuple[Any, ...], grid: tuple[int, int, int]) -> None:
        constants = [name for name, kind in made.fn.__annotations__.items() if kind is tl.constexpr]
        signature, fixed = [], []
        for at, (name, value) in enumerate(zip(made.arg_names, args, strict=True)):
            if name in constants:
                signature.append((name, "constexpr"))
                fixed.append(((at,), value))
            else:
                kind = "*fp32" if isinstance(value, torch.Tensor) else "fp32" if isinstance(value, float) else "i32"
                signature.append((name, kind))
        self.kernels.append(plan.Kernel(self.function(made), tuple(signature), tuple(fixed), (), ()))
        given = tuple(self.arg(value) for value in args)
        self.steps.append(plan.Launch(len(self.kernels) - 1, grid, given, 0))


def traced(text: str, shape: tuple[int, int]) -> plan.Plan:
    """The plan of a module, recorded over its constructor, its first and its second call."""
    module = load(text)
    with torch.no_grad(), Recorder(text) as recorder:
        really = triton.runtime.interpreter.InterpretedFunction.run

        def run(made: Any, *args: Any, grid: Any, warmup: bool) -> None:
            with torch.utils._python_dispatch._disable_current_modes():
                really(made, *args, grid=grid, warmup=warmup)
            recorder.launch(made, args, grid)

        triton.runtime.interpreter.InterpretedFunction.run = run
        try:
            model = module.Model()
            recorder.ids[id(model.weight)] = recorder.ids[id(model.weight.data)] = len(recorder.ids) - 1
            construct, recorder.steps = recorder.steps, []
            model.folded = (model.weight.detach() * 2).exp()
            first, recorder.steps = recorder.steps, []
            x, y = torch.randn(shape), torch.randn(shape)
            recorder.steps = []
            inputs = plan.List((recorder.tree(x), recorder.tree(y)))
            output = recorder.tree(model(x, y))
        finally:
            triton.runtime.interpreter.InterpretedFunction.run = really
    weight = recorder.ids[id(model.weight)]
    trace = plan.Trace(
        "own", inputs, (("weight", weight),), tuple(construct), tuple(first), tuple(recorder.steps), output
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    made = plan.Plan("cuda:90", f"sha256:{digest}", tuple(recorder.functions), tuple(recorder.kernels), (trace,))
    return plan.parse(made.dump())


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [(key, *flat(item)) for key, item in value.items()]
    return [found for item in value for found in flat(item)] if isinstance(value, list | tuple) else [value]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(one.stride() == other.stride() and torch.equal(one, other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def agree(seed: int) -> dict[str, Any]:
    text, shape = written(seed)
    document = traced(text, shape)
    functions = Functions(Source(text.encode()), document.functions)
    replay = Model(
        document.traces[0], functions, document.kernels, allows=lambda call: operators.kind_of(call) == "movement"
    )
    ran = Counter(type(step).__name__ for step in document.traces[0].steps)
    for draw in (1, 2):
        torch.manual_seed(seed + draw)
        with torch.no_grad():
            eager = load(text).Model()
            replay.construct(seed + draw)
            inputs = [torch.randn(shape), torch.randn(shape)]
            wanted = flat(eager(*[value.clone() for value in inputs]))
            got = flat(replay.call([value.clone() for value in inputs]))
            if not same(wanted, got):
                return {"seed": seed, "ok": False, "why": f"draw {draw}: {wanted} != {got}", "text": text}
    return {"seed": seed, "ok": True, **ran}


def main() -> int:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        try:
            print(json.dumps(agree(seed)))
        except Exception:
            print(json.dumps({"seed": seed, "ok": False, "why": traceback.format_exc(), "text": written(seed)[0]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
