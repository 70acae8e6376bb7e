"""What launches of a plan do under Triton's interpreter (test_interpreter.py starts this with TRITON_INTERPRET=1).

Each function is a case: it raises where the interpreter does other than its name says. Prints {case: null or error}.
"""

from __future__ import annotations

import json
import math
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton.language as tl
from compiler.check import CompilerRefusal
from compiler.extract import Functions, Source
from executor import bounds, combining, shapes
from executor.interpreter import LaunchFailed, Model, OutOfBounds
from shared.plan import (
    Address,
    Alternative,
    Call,
    Choose,
    Constexpr,
    Descriptor,
    Device,
    Dtype,
    Function,
    FunctionRef,
    Item,
    Kernel,
    Launch,
    Leaf,
    List,
    ModuleRef,
    ObjectRef,
    Operation,
    Ref,
    Step,
    Sym,
    Trace,
)
from triton.runtime import interpreter

TL = ("tl", ModuleRef("triton.language"))
SOURCE = textwrap.dedent("""\
    import triton
    import triton.language as tl

    def make(op, factor):
        @triton.jit
        def outer(x, n, B: tl.constexpr, K: tl.constexpr = 4):
            i = tl.program_id(0) * B + tl.arange(0, B)
            v = tl.load(x + i, mask=i < n)
            tl.store(x + i, op(v) * factor + K, mask=i < n)
        return outer

    @triton.jit
    def square(v):
        return v * v

    @triton.jit
    def copy(source, target, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(target + i, tl.load(source + i))

    @triton.jit
    def copy_by_block_pointers(source, target, flag, B: CE):
        if flag:
            block = tl.make_block_ptr(source, (B,), (1,), (0,), (B,), (0,))
            tl.store(target + tl.arange(0, B), tl.load(block))

    @triton.jit
    def added(x, y, B: tl.constexpr):
        tl.store(y + tl.arange(0, 1), tl.sum(tl.load(x + tl.arange(0, B)), 0))

    @triton.jit
    def inverted(source, target, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(target + i, ~tl.load(source + i))

    @triton.jit
    def total(x, y):
        tl.store(y, tl.load(y) + tl.load(x + tl.program_id(0)))

    @triton.jit
    def total_volatile(x, y):
        tl.store(y, tl.load(y, volatile=True) + tl.load(x + tl.program_id(0)))

    @triton.jit
    def total_by_flags(x, y, turn):
        while tl.load(turn, volatile=True) != tl.program_id(0):
            pass
        tl.store(y, tl.load(y) + tl.load(x + tl.program_id(0)))
        tl.store(turn, tl.program_id(0) + 1)

    @triton.jit
    def total_by_turns(x, y, turn):
        while tl.atomic_cas(turn, tl.program_id(0), tl.program_id(0)) != tl.program_id(0):
            pass
        tl.store(y, tl.load(y) + tl.load(x + tl.program_id(0)))
        tl.atomic_add(turn, 1)

    @triton.jit
    def sums_before(x, y, turn):
        before = tl.atomic_add(turn, tl.load(x + tl.program_id(0)))
        tl.store(y + tl.program_id(0), before)

    @triton.jit
    def sums_in_turn(x, y, turn):
        at = tl.atomic_add(turn, 1)
        tl.store(y + at + 1, tl.load(y + at) + tl.load(x + at))

    @triton.jit
    def last_sums(x, y, turn):
        tl.store(y + tl.program_id(0), 2 * tl.load(x + tl.program_id(0)))
        if tl.atomic_add(turn, 1) == 3:
            tl.store(y + 4, tl.sum(tl.load(y + tl.arange(0, 4))))

    @triton.jit
    def tile(desc, o, R: tl.constexpr, C: tl.constexpr):
        v = desc.load([1, 0])
        i = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
        tl.store(o + i, v)

    @triton.jit
    def pair(both, KIND: tl.constexpr, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(both[0] + i, (tl.load(both[0] + i) + both[1]).to(KIND).to(tl.float32))

    @triton.jit
    def squared(x, y, scale, B: tl.constexpr):
        i = tl.arange(0, B)
        v = tl.load(x + i)
        tl.store(y + i, (v * v * scale.to(v.dtype)).to(y.dtype.element_ty))

    @triton.jit
    def product(a, b, c, N: tl.constexpr):
        at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
        tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)).to(c.dtype.element_ty))

    @triton.jit
    def rounded(x, y, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(y + i, libdevice.rint(tl.load(x + i)) + libdevice.tanh(1.0 * tl.num_programs(0)))

    @triton.jit
    def both(a, b):
        return a and b

    @triton.jit
    def least(dtype):
        return float("-inf") if dtype.value.is_floating() else 0

    @triton.jit
    def of_one(x, y, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(y + i, op(tl.load(x + i)))

    @triton.jit
    def of_two(x, z, y, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(y + i, op(tl.load(x + i), tl.load(z + i)))

    @triton.jit
    def none_of_these(x, y, B: tl.constexpr):
        i = tl.arange(0, B)
        v = tl.load(x + i)
        tl.store(y + i, tl.where(~op(v) & (not op(v)), v, 9.0))

    @triton.jit
    def by_methods(x, y, B: tl.constexpr):
        i = tl.arange(0, B)
        v = tl.load(x + i)
        v = v.exp().log().exp2().log2().sqrt().sqrt_rn().rsqrt() + v.sin() + v.cos() + v.erf() + v.floor() + v.ceil()
        tl.store(y + i, v)

    @triton.jit
    def joined(x, y, B: tl.constexpr):
        i = tl.arange(0, B)
        v = tl.load(x + i)
        tl.store(y + tl.arange(0, 2 * B), tl.cat(v, v + B, can_reorder=True))

    @triton.jit
    def dependent(x):
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
        tl.store(x, tl.extra.cuda.num_warps() + tl.extra.cuda.num_threads())

    @triton.jit
    def truths(x, y, n, WHOLE: tl.constexpr, B: tl.constexpr):
        i = tl.arange(0, B)
        v = tl.load(x + i)
        inside = i < n and v > least(x.type.element_ty)
        empty = not WHOLE and n == 0
        all_of_them = tl.reduce(inside and not v == 7.0, 0, both)
        none = tl.full([], 1.0, tl.float32)
        numbers = ~tl.broadcast_to(none != none, (B,))
        tl.store(y + i, tl.where(inside or v == 7.0, 1, 0) + tl.where(all_of_them or empty, 10, 0) + 100 * numbers)

    @triton.jit
    def after(a, b, c, d):
        return a * c, b * c + d

    @triton.jit
    def larger(a, b):
        if b > a:
            a = b
        return a

    @triton.jit
    def combined(x, y, R: tl.constexpr, C: tl.constexpr):
        i = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
        v = tl.load(x + i)
        _, down = tl.associative_scan((v, v + 1), 0, after)
        _, back = tl.associative_scan((v, v + 1), 1, after, reverse=True)
        _, rows = tl.reduce((v, v + 1), 1, after, keep_dims=True)
        tl.store(y + i, down)
        tl.store(y + R * C + i, back)
        tl.store(y + 2 * R * C + i, tl.broadcast_to(rows, (R, C)))
        tl.store(y + 3 * R * C, tl.reduce(tl.load(x + tl.arange(0, C)), 0, larger))

    @triton.jit
    def by_a_helper(a, b):
        return larger(a, b)

    @triton.jit
    def greatest(x, y, at, B: tl.constexpr):
        v = tl.load(x + tl.arange(0, B))
        tl.store(y, tl.reduce(v, 0, by_a_helper))
        tl.store(at, tl.argmax(v, 0, tie_break_left=False))

    @triton.jit
    def classes(x, y, B: tl.constexpr):
        i = tl.arange(0, B)
        v = tl.load(x + i)
        if isinstance((v, v), tl.tuple) and hasattr((v, v), "type") and not isinstance(FACTOR, tl.constexpr):
            tl.store(y + i, v)
        if isinstance(v, tl.tensor) and isinstance(v.dtype, tl.dtype) and getattr(v, "name", 3) == 3:
            tl.store(y + B + i, v)

    @triton.jit
    def identities(x):
        if NOTHING is None and v_is_none(tl.load(x)) and x.dtype.element_ty is tl.float32:
            tl.store(x, 1.0)
        if x.dtype.element_ty is not tl.float32 or FACTOR is None:
            tl.store(x, 2.0)

    @triton.jit
    def v_is_none(v):
        return v is not None

    @triton.jit
    def identity_of_a_number(x):
        if FACTOR is 2:
            tl.store(x, 1.0)

    @triton.jit
    def counter(x):
        for turn in range(1):
            if isinstance(turn, tl.tensor):
                tl.store(x, 1.0)

    @triton.jit
    def wrong(x):
        v = tl.load(x)
        tl.static_assert(1 == 2, "one is not two")
        tl.store(x, v)

    @triton.jit
    def calls_wrong(x):
        wrong(x)

    @triton.jit
    def sums_wrongly(x):
        tl.sum(tl.load(x), axis=3)

    @triton.jit
    def scales(x):
        v = tl.zeros((32, 32), tl.float8e5)
        tl.dot_scaled(v, None, "e5m2", v, None, "e5m2")

    @triton.jit
    def assembles(x):
        v = tl.load(x).to(tl.int32)
        tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [v], dtype=tl.int32, is_pure=True, pack=1)

    @triton.jit
    def reaching(x):
        tl.store(x, open("canary", "w"))
""")


def line(name: str) -> int:
    return next(at for at, text in enumerate(SOURCE.split("\n"), 1) if text.strip().startswith(f"def {name}("))


def leaf(value: int, *shape: int, dtype: str = "float32") -> Leaf:
    return Leaf(value, shape, tuple(torch.empty(shape, device="meta").stride()), dtype)


def run(
    functions: list[Function],
    signature: list[tuple[str, Any]],
    constants: dict[int, Any],
    steps: list[Step],
    inputs: list[torch.Tensor],
    lost: frozenset[int] = frozenset(),
    turn: int = 0,
) -> Any:
    """The inputs after a call whose launches are all of the last function."""
    kernel = Kernel(
        len(functions) - 1, tuple(signature), tuple(((at,), value) for at, value in constants.items()), (), ()
    )
    tree = tuple(
        leaf(at, *value.shape, dtype=str(value.dtype).removeprefix("torch.")) for at, value in enumerate(inputs)
    )
    trace = Trace("own", tree, (), (), (), tuple(steps), tree)
    texts = Functions(Source(SOURCE.encode()), functions)
    model = Model(trace, texts, [kernel] * 3, allows=lambda _: True, lost=lost, turn=turn)
    model.construct(0)
    return model.call(tuple(inputs))


def state_that_nothing_writes_is_nan() -> None:
    kept = Call("aten.empty.memory_format", (List((3,)),), (("device", Device("cuda")),), leaf(0, 3), 7)
    steps = (Call("aten.clone.default", (Ref(0),), (), leaf(1, 3), 8),)
    trace = Trace("own", (), (), (), (kept,), steps, leaf(1, 3))
    model = Model(trace, Functions(Source(SOURCE.encode()), []), [], allows=lambda _: True)
    model.construct(0)
    model.warm_up([])
    got = model.call(())
    assert got.isnan().all(), got


OUTER = [("x", "*fp32"), ("n", "i32"), ("B", "constexpr"), ("K", "constexpr")]


def closure(factor: float) -> list[Function]:
    return [
        Function("square", line("square"), (TL,), (), False),
        Function(
            "outer", line("outer"), (TL, ("op", FunctionRef(0)), ("factor", Constexpr(factor))), (("K", 4),), False
        ),
    ]


def functions_of_a_factory_have_their_closure_as_data() -> None:
    launch = Launch(0, (2, 1, 1), (Ref(0), 5, 4, 4), 9)
    (got,) = run(closure(0.5), OUTER, {2: 4, 3: 4}, [launch], [torch.arange(6.0)])
    assert got.tolist() == [4, 4.5, 6, 8.5, 12, 5], got


def operations_of_the_language_have_names_of_their_own() -> None:
    """unsloth has `triton_cast = tl.cast`. The second plan of a process names it as the first did."""
    added = [Function("added", line("added"), (TL,), (), False)]  # calls tl.sum, a function of Triton's
    signature = [("x", "*fp32"), ("y", "*fp32"), ("B", "constexpr")]
    run(added, signature, {2: 4}, [Launch(0, (1, 1, 1), (Ref(0), Ref(1), 4), 9)], [torch.ones(4), torch.zeros(1)])
    core = (TL, ("op", ObjectRef("triton.language.core.cast")))
    Functions(Source(SOURCE.encode()), [Function("outer", line("outer"), core, (("K", 4),), False)])
    names = (TL, ("op", ObjectRef("triton.language.math.abs")), ("factor", Constexpr(0.5)))
    outer = [Function("outer", line("outer"), names, (("K", 4),), False)]
    launch = Launch(0, (1, 1, 1), (Ref(0), 4, 4, 4), 9)
    (got,) = run(outer, OUTER, {2: 4, 3: 4}, [launch], [torch.arange(4.0) - 2])
    assert got.tolist() == [5, 4.5, 4, 4.5], got


def numbers_that_are_read_from_tensors_are_arguments_and_grids() -> None:
    size = Sym(Operation("floordiv", Operation("add", Item(1), 3), 4))
    launch = Launch(0, (size, 1, 1), (Ref(0), Sym(Item(1)), 4, 4), 9)
    (got, _) = run(closure(1.0), OUTER, {2: 4, 3: 4}, [launch], [torch.zeros(8), torch.tensor(5)])
    assert got.tolist() == [4, 4, 4, 4, 4, 0, 0, 0], got


def an_address_is_where_the_kernel_reads() -> None:
    copy = [Function("copy", line("copy"), (TL,), (), False)]
    signature = [("source", "*fp32"), ("target", "*fp32"), ("B", "constexpr")]
    launch = Launch(0, (1, 1, 1), (Address(0, 8), Ref(1), 4), 9)
    (_, got) = run(copy, signature, {2: 4}, [launch], [torch.arange(8.0), torch.zeros(4)])
    assert got.tolist() == [2, 3, 4, 5], got


def a_pointer_is_of_the_type_that_the_signature_says() -> None:
    copy = [Function("copy", line("copy"), (TL,), (), False)]
    signature = [("source", "*fp8e5"), ("target", "*fp32"), ("B", "constexpr")]
    data = torch.tensor([1.5, -2.0, 0.25, 8.0]).to(torch.float8_e5m2).view(torch.uint8)
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), 4), 9)
    (_, got) = run(copy, signature, {2: 4}, [launch], [data, torch.zeros(4)])
    assert got.tolist() == [1.5, -2.0, 0.25, 8.0], got


def squared(x: torch.Tensor, y: torch.Tensor, kinds: tuple[str, str]) -> torch.Tensor:
    signature = [("x", kinds[0]), ("y", kinds[1]), ("scale", "fp32"), ("B", "constexpr")]
    functions = [Function("squared", line("squared"), (TL,), (), False)]
    size = x.numel()
    (_, got) = run(functions, signature, {3: size}, [Launch(0, (1, 1, 1), (Ref(0), Ref(1), 0.5, size), 9)], [x, y])
    return got


def bfloat16_is_multiplied_and_rounded_as_a_gpu_does() -> None:
    x = torch.randn(64).bfloat16()
    got = squared(x, torch.zeros_like(x), ("*bf16", "*bf16"))
    assert torch.equal(got, x * x * 0.5), got


def float32_is_rounded_to_the_nearest_bfloat16() -> None:
    x = torch.randn(64)
    got = squared(x, torch.zeros(64).bfloat16(), ("*fp32", "*bf16"))
    assert torch.equal(got, (x * x * 0.5).bfloat16()), got


def floats_of_8_bits_are_rounded_and_end_at_their_largest() -> None:
    x = torch.tensor([0.3, 1.7, 9.1, 1000.0])
    got = squared(x, torch.zeros(4).to(torch.float8_e4m3fn), ("*fp32", "*fp8e4nv"))
    assert got.float().tolist() == [0.046875, 1.5, 40.0, 448.0], got


def added(x: torch.Tensor, kind: str) -> float:
    functions = [Function("added", line("added"), (TL,), (), False)]
    signature = [("x", kind), ("y", kind), ("B", "constexpr")]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), x.numel()), 9)
    (_, got) = run(functions, signature, {2: x.numel()}, [launch], [x, torch.zeros(1, dtype=x.dtype)])
    return float(got[0])


def a_sum_of_bfloat16_is_rounded_after_each_addition() -> None:
    assert added(torch.tensor([1.5, -2.0, 0.25, 8.0]).bfloat16(), "*bf16") == 7.75
    assert added(torch.tensor([256.0, 0.0, 1.0, 0.0]).bfloat16(), "*bf16") == 256.0


def a_sum_of_integers_wraps_around() -> None:
    assert added(torch.tensor([2**31 - 1, 1, 0, 0], dtype=torch.int32), "*i32") == -(2**31)


def bits_of_any_integer_and_truth_values_are_inverted() -> None:
    functions = [Function("inverted", line("inverted"), (TL,), (), False)]
    for kind, data in (("u8", torch.tensor([0, 1, 200, 255], dtype=torch.uint8)), ("i1", torch.tensor([True, False]))):
        signature = [("source", f"*{kind}"), ("target", f"*{kind}"), ("B", "constexpr")]
        launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), data.numel()), 9)
        (_, got) = run(functions, signature, {2: data.numel()}, [launch], [data, torch.zeros_like(data)])
        assert torch.equal(got, ~data), got


def functions_of_libdevice_are_computed() -> None:
    names = (TL, ("libdevice", ModuleRef("triton.language.extra.libdevice")))
    functions = [Function("rounded", line("rounded"), names, (), False)]
    x = torch.tensor([0.5, 1.5, -2.5, 3.2])
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), 4), 9)
    (_, got) = run(
        functions, [("x", "*fp32"), ("y", "*fp32"), ("B", "constexpr")], {2: 4}, [launch], [x, torch.zeros(4)]
    )
    assert torch.equal(got, torch.round(x) + torch.tanh(torch.ones(4))), got


I32, F32 = torch.int32, torch.float32
NUMBERS = [0.0, 3.7, -2.5, float("inf"), float("nan"), 0.75, -6.0, 1e-3]
BITS = [0, 1, -1, 12, -(2**31), 2**31 - 1, 40, 7]


def by(name: str, *inputs: torch.Tensor, kind: torch.dtype) -> Any:
    """What a function of libdevice makes of these."""
    kernel = ["of_one", "of_two"][len(inputs) - 1]
    names = (TL, ("op", ObjectRef(f"triton.language.extra.libdevice.{name}")))
    types = {F32: "*fp32", I32: "*i32", torch.int64: "*i64"}
    values = [*inputs, torch.zeros(8, dtype=kind)]
    signature = [*((one, types[value.dtype]) for one, value in zip("xzy", values, strict=False)), ("B", "constexpr")]
    if len(inputs) == 1:
        signature[1] = ("y", types[kind])
    launch = Launch(0, (1, 1, 1), (*map(Ref, range(len(values))), 8), 9)
    functions = [Function(kernel, line(kernel), names, (), False)]
    return run(functions, signature, {len(values): 8}, [launch], values)[-1].tolist()


def functions_of_libdevice_upon_bits_are_exact() -> None:
    bits, words = torch.tensor(BITS, dtype=I32), [value % 2**32 for value in BITS]
    assert by("popc", bits, kind=I32) == [value.bit_count() for value in words]
    assert by("clz", bits, kind=I32) == [32 - value.bit_length() for value in words]
    assert by("ffs", bits, kind=I32) == [(value & -value).bit_length() for value in words]
    turned = torch.tensor([int(f"{value:032b}"[::-1], 2) for value in words]).to(I32)
    assert by("brev", bits, kind=I32) == turned.tolist()
    assert by("mulhi", bits, bits, kind=I32) == [value * value >> 32 for value in BITS]
    assert by("popc", bits.long() << 32, kind=I32) == [value.bit_count() for value in words]
    numbers = torch.tensor(NUMBERS)
    assert by("float_as_int", numbers, kind=I32) == numbers.view(I32).tolist()
    assert by("int_as_float", numbers[:3].view(I32).repeat(3)[:8], kind=F32) == numbers[:3].repeat(3)[:8].tolist()
    assert by("signbit", torch.tensor([-0.0, 1, -1, 0] * 2), kind=I32) == [1, 0, 1, 0] * 2
    assert by("finitef", numbers, kind=I32) == [1, 1, 1, 0, 0, 1, 1, 1]


def functions_of_libdevice_upon_floats_are_exact() -> None:
    numbers = torch.tensor(NUMBERS)
    assert by("saturatef", numbers, kind=F32) == [0, 1, 0, 1, 0, 0.75, 0, torch.tensor(1e-3).item()]
    assert by("ilogb", numbers, kind=I32) == [-(2**31), 1, 1, 2**31 - 1, -(2**31), -1, 2, -10]
    small = torch.tensor([0.0, 5.0, -7.5, 6.0, 3.0, -3.0, 9.0, 2.5])
    others = torch.tensor([1.0, 3.0, 2.0, 4.0, 2.0, 2.0, -6.0, 1.0])
    expected = [math.remainder(a, b) for a, b in zip(small.tolist(), others.tolist(), strict=True)]
    assert by("remainder", small, others, kind=F32) == expected
    powers = torch.arange(-4, 4, dtype=I32)
    assert by("ldexp", small, powers, kind=F32) == torch.ldexp(small, powers).tolist()
    assert by("llrint", small, kind=torch.int64) == [0, 5, -8, 6, 3, -3, 9, 2]
    assert by("llround", small, kind=torch.int64) == [0, 5, -8, 6, 3, -3, 9, 3]
    assert by("float2ll_rd", small, kind=torch.int64) == [0, 5, -8, 6, 3, -3, 9, 2]
    assert by("mul_rn", small, others, kind=F32) == (small * others).tolist()
    assert by("fast_powf", others.abs(), small, kind=F32) == others.abs().pow(small).tolist()


def truth_values_of_libdevice_are_of_one_bit() -> None:
    """As Triton has them: of a wider one `~` is true throughout."""
    x = torch.tensor(NUMBERS)
    for name, found in (("isnan", x.isnan()), ("isinf", x.isinf()), ("isfinited", x.isfinite())):
        names = (TL, ("op", ObjectRef(f"triton.language.extra.libdevice.{name}")))
        functions = [Function("none_of_these", line("none_of_these"), names, (), False)]
        signature = [("x", "*fp32"), ("y", "*fp32"), ("B", "constexpr")]
        launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), 8), 9)
        (_, got) = run(functions, signature, {2: 8}, [launch], [x, torch.zeros(8)])
        assert torch.equal(got.nan_to_num(7.0), torch.where(found, 9.0, x).nan_to_num(7.0)), (name, got)


def a_function_of_libdevice_that_torch_lacks_is_named() -> None:
    small = torch.ones(8)
    what = "libdevice.add_rz is not available without a GPU"
    fails(lambda: by("add_rz", small, small, kind=F32), LaunchFailed, what)


def methods_of_tensors_are_the_functions_of_the_language() -> None:
    functions = [Function("by_methods", line("by_methods"), (TL,), (), False)]
    x = torch.rand(8) + 0.5
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), 8), 9)
    signature = [("x", "*fp32"), ("y", "*fp32"), ("B", "constexpr")]
    (_, got) = run(functions, signature, {2: 8}, [launch], [x, torch.zeros(8)])
    assert torch.allclose(got, x.sqrt().sqrt().rsqrt() + x.sin() + x.cos() + x.erf() + x.floor() + x.ceil())


def what_may_be_reordered_is() -> None:
    functions = [Function("joined", line("joined"), (TL,), (), False)]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), 4), 9)
    signature = [("x", "*fp32"), ("y", "*fp32"), ("B", "constexpr")]
    (_, got) = run(functions, signature, {2: 4}, [launch], [torch.arange(4.0), torch.zeros(8)])
    assert got.tolist() != list(range(8)) and sorted(got.tolist()) == list(range(8))


def what_speaks_to_the_gpu_of_dependent_launches_does_nothing() -> None:
    functions = [Function("dependent", line("dependent"), (TL,), (), False)]
    (got,) = run(functions, [("x", "*fp32")], {}, [Launch(0, (1, 1, 1), (Ref(0),), 9)], [torch.zeros(1)])
    assert got.item() == 4 + 128


def truths(numbers: list[float], n: int) -> Any:
    functions = [
        Function("both", line("both"), (), (), False),
        Function("least", line("least"), (), (), False),
        Function("truths", line("truths"), (TL, ("both", FunctionRef(0)), ("least", FunctionRef(1))), (), False),
    ]
    signature = [("x", "*fp32"), ("y", "*i32"), ("n", "i32"), ("WHOLE", "constexpr"), ("B", "constexpr")]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), n, True, 4), 9)
    inputs = [torch.tensor(numbers, dtype=torch.float32), torch.zeros(4, dtype=torch.int32)]
    (_, got) = run(functions, signature, {3: True, 4: 4}, [launch], inputs)
    return got.tolist()


def truth_values_of_blocks_are_joined_element_by_element() -> None:
    assert truths([1, -float("inf"), 2, 7], 3) == [101, 100, 101, 101]
    assert truths([1, 2, 3, 4], 4) == [111, 111, 111, 111]
    assert truths([1, 2, 3, 7], 4) == [101, 101, 101, 101]


def classes_of_values_are_those_that_the_compiler_knows() -> None:
    """A kernel could compute under the interpreter, and copy its input when it is compiled."""
    functions = [Function("classes", line("classes"), (TL, ("FACTOR", Constexpr("x"))), (), False)]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), 4), 9)
    signature = [("x", "*fp32"), ("y", "*fp32"), ("B", "constexpr")]
    (_, got) = run(functions, signature, {2: 4}, [launch], [torch.ones(4), torch.zeros(8)])
    assert got.tolist() == [1] * 8, got
    functions = [Function("counter", line("counter"), (TL,), (), False)]
    launch = Launch(0, (1, 1, 1), (Ref(0),), 9)
    what = "isinstance() of a number is not available without a GPU"
    fails(lambda: run(functions, [("x", "*fp32")], {}, [launch], [torch.zeros(1)]), LaunchFailed, what)


def what_is_the_same_is_so_for_the_compiler() -> None:
    """Of a constexpr that the text reads as a global, `is None` was false."""
    factor = ("FACTOR", Constexpr(2))
    names = (TL, factor, ("NOTHING", Constexpr(None)), ("v_is_none", FunctionRef(0)))
    functions = [
        Function("v_is_none", line("v_is_none"), (), (), False),
        Function("identities", line("identities"), names, (), False),
    ]
    launch = Launch(0, (1, 1, 1), (Ref(0),), 9)
    (got,) = run(functions, [("x", "*fp32")], {}, [launch], [torch.zeros(1)])
    assert got.item() == 1
    functions = [Function("identity_of_a_number", line("identity_of_a_number"), (TL, factor), (), False)]
    what = "`is` of a number is not available without a GPU"
    fails(lambda: run(functions, [("x", "*fp32")], {}, [launch], [torch.zeros(1)]), LaunchFailed, what)


def a_function_that_combines_gets_halves_of_a_block_in_their_order() -> None:
    rows, columns = 8, 16
    functions = [
        Function("after", line("after"), (), (), False),
        Function("larger", line("larger"), (), (), False),
        Function("combined", line("combined"), (TL, ("after", FunctionRef(0)), ("larger", FunctionRef(1))), (), False),
    ]
    signature = [("x", "*fp32"), ("y", "*fp32"), ("R", "constexpr"), ("C", "constexpr")]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), rows, columns), 9)
    x = torch.randn(rows, columns)
    with mock.patch.object(combining, "_combined", wraps=combining._combined) as asked:
        (_, got) = run(functions, signature, {2: rows, 3: columns}, [launch], [x, torch.zeros(3 * x.numel() + 1)])
    assert asked.call_count == 3 + 4 + 4 + 1

    def scanned(v: torch.Tensor) -> torch.Tensor:
        kept = [v[0] + 1]
        for one in v[1:]:
            kept.append(kept[-1] * one + one + 1)
        return torch.stack(kept)

    down, back = scanned(x), scanned(x.flip(1).t()).t().flip(1)
    rows_of = scanned(x.t())[-1][:, None].expand_as(x)
    assert torch.allclose(got[:-1], torch.cat([t.reshape(-1) for t in (down, back, rows_of)]), rtol=1e-4, atol=1e-4)
    assert got[-1] == x[0].max()  # this one branches, and is asked for each element in the end


def a_branch_inside_of_a_function_that_combines_is_asked_of_each_element() -> None:
    functions = [
        Function("larger", line("larger"), (), (), False),
        Function("by_a_helper", line("by_a_helper"), (("larger", FunctionRef(0)),), (), False),
        Function("greatest", line("greatest"), (TL, ("by_a_helper", FunctionRef(1))), (), False),
    ]
    signature = [("x", "*fp32"), ("y", "*fp32"), ("at", "*i32"), ("B", "constexpr")]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), Ref(2), 8), 9)
    inputs = [torch.tensor([1.0, 5, 2, 8, 3, 7, 0, 4]), torch.zeros(1), torch.zeros(1, dtype=torch.int32)]
    (_, most, at) = run(functions, signature, {3: 8}, [launch], inputs)
    assert (most.item(), at.item()) == (8, 3)


def products_of_bfloat16_are_summed_in_float32() -> None:
    a, b = torch.randn(2, 16, 16).bfloat16()
    functions = [Function("product", line("product"), (TL,), (), False)]
    signature = [("a", "*bf16"), ("b", "*bf16"), ("c", "*fp32"), ("N", "constexpr")]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), Ref(2), 16), 9)
    (_, _, got) = run(functions, signature, {3: 16}, [launch], [a, b, torch.zeros(16, 16)])
    assert torch.allclose(got, a.float() @ b.float(), rtol=1e-5, atol=1e-5), got


def blocks_of_one_shape_share_what_says_so_and_are_made_as_triton_makes_them() -> None:
    shapes.install()
    one = tl.block_type(tl.float32, [4, 8])
    other = tl.block_type(tl.pointer_type(tl.float16), tl.tuple([tl.constexpr(4), tl.constexpr(8)]))
    assert one.shape is other.shape and one != other and one == tl.block_type(tl.float32, [4, 8])
    assert [str(one), str(other), one.numel] == ["<['4', '8'], fp32>", "<['4', '8'], pointer<fp16>>", 32]
    assert one.shape == [4, 8] and one.shape != [8, 4] and one.shape != [4] and one.shape == (4, 8)
    block, scalar = tl.tensor(None, one), tl.tensor(None, tl.int32)
    assert block.shape is tl.tensor(None, other).shape and list(block.shape) == [4, 8] and block.numel.value == 32
    assert type(block.shape[0]) is tl.constexpr and len(scalar.shape) == 0 and scalar.numel.value == 1
    for _ in range(2):
        fails(lambda: tl.block_type(tl.float32, [3]), ValueError, "power of 2")
        fails(lambda: tl.block_type(tl.float32, []), TypeError, "0d")
        fails(lambda: tl.block_type(tl.float32, [4.0]), TypeError, "must have type")


def a_launch_looks_through_the_language_once_and_leaves_it_as_it_was() -> None:
    copy = [Function("copy", line("copy"), (TL,), (), False)]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), 4), 9)

    def copied() -> list[float]:
        (_, got) = run(copy, COPY, {2: 4}, [launch], [torch.arange(4.0), torch.zeros(4)])
        return list(got.tolist())

    before = tl.load, tl.tensor.__add__, tl.range
    assert copied() == [0, 1, 2, 3]
    with mock.patch.object(interpreter.inspect, "getmembers") as asked:
        assert copied() == [0, 1, 2, 3]
    assert not asked.called and (tl.load, tl.tensor.__add__, tl.range) == before


def descriptors_read_tiles_and_fill_beyond_the_edge() -> None:
    tile = [Function("tile", line("tile"), (TL,), (), False)]
    signature = [("desc", "tensordesc<fp32[2,4]>"), ("o", "*fp32"), ("R", "constexpr"), ("C", "constexpr")]
    launch = Launch(0, (1, 1, 1), (Descriptor(0, (2, 4), (4, 1), (2, 4), "zero"), Ref(1), 2, 4), 9)
    (_, got) = run(tile, signature, {2: 2, 3: 4}, [launch], [torch.arange(8.0).reshape(2, 4), torch.ones(2, 4)])
    assert got.tolist() == [[4, 5, 6, 7], [0, 0, 0, 0]], got


def tuples_and_dtypes_are_arguments() -> None:
    pair = [Function("pair", line("pair"), (TL,), (), False)]
    signature = [("both", ("*fp32", "fp32")), ("KIND", "constexpr"), ("B", "constexpr")]
    launch = Launch(0, (1, 1, 1), ((Ref(0), 0.0004), Dtype("fp16"), 2), 9)
    (got,) = run(pair, signature, {1: Dtype("fp16"), 2: 2}, [launch], [torch.tensor([1.0, 2.0])])
    assert got.tolist() == [1.0, 2.0], got


def the_configuration_that_compiles_and_has_the_fewest_programs_is_run_with_its_hooks() -> None:
    def alternative(kernel: int, start: float, programs: int = 1) -> Alternative:
        fill = Call("aten.fill_.Scalar", (Ref(0), start), (), leaf(0, 4), 8)
        return Alternative("", (fill, Launch(kernel, (1, programs, 1), (Ref(0), 4, 4, 4), 9)))

    choose = Choose((alternative(0, 1.0), alternative(1, 3.0, programs=2), alternative(2, 2.0)), 9)
    (got,) = run(closure(1.0), OUTER, {2: 4, 3: 4}, [choose], [torch.zeros(4)], lost=frozenset({0}))
    assert got.tolist() == [8] * 4, got


def small_cases_run_the_configurations_in_turn_and_none_that_fails() -> None:
    """Of two configurations the second, which covers half of a row, was never run."""

    def chosen(turn: int, blocks: tuple[int, ...], size: int = 4) -> Any:
        launches = [Launch(0, (at + 1, 1, 1), (Ref(0), block, 4, 4), 9) for at, block in enumerate(blocks)]
        choose = Choose(tuple(Alternative("", (one,)) for one in launches), 9)
        (got,) = run(closure(1.0), OUTER, {2: 4, 3: 4}, [choose], [torch.zeros(size)], turn=turn)
        return got[:4].tolist()

    assert [chosen(turn, (4, 2)) for turn in range(3)] == [[4] * 4, [4, 4, 0, 0], [4] * 4]
    assert chosen(1, (4, 2), size=1 << 17) == [4] * 4
    failing = Alternative("", (Launch(0, (2, 1, 1), (Ref(0), None, 4, 4), 9),))
    choose = Choose((failing, Alternative("", (Launch(0, (1, 1, 1), (Ref(0), 4, 4, 4), 9),))), 9)
    (got,) = run(closure(1.0), OUTER, {2: 4, 3: 4}, [choose], [torch.zeros(4)], turn=1)
    assert got.tolist() == [4] * 4


def fails(action: Callable[[], Any], kind: type[Exception], what: str) -> None:
    try:
        action()
    except kind as error:
        assert what in str(error), str(error)
        return
    raise AssertionError("nothing was raised")


COPY = [("source", "*fp32"), ("target", "*fp32"), ("B", "constexpr")]


def a_write_behind_a_tensor_is_told_with_its_distance() -> None:
    copy = [Function("copy", line("copy"), (TL,), (), False)]
    inputs = [torch.ones(8), torch.zeros(5)]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), 8), 33)
    what = (
        "line 33: kernel copy: 3 elements are written outside of all tensors, the first 0 bytes behind the end of one"
    )
    fails(lambda: run(copy, COPY, {2: 8}, [launch], inputs), OutOfBounds, what)
    fails(
        lambda: run(copy, COPY, {2: 8}, [Launch(0, (1, 1, 1), (Ref(0), Address(1, -8), 8), 33)], inputs),
        OutOfBounds,
        "8 bytes before",
    )


def an_address_at_the_end_of_all_memory_is_in_no_tensor() -> None:
    memory = bounds.Bounds([torch.zeros(4)], [])
    assert not memory.inside(np.array([2**64 - 4, 2**64 - 1], dtype=np.uint64), 4).any()


def what_another_program_stored_is_not_seen_unless_programs_wait_for_each_other() -> None:
    waits = [*COPY[:2], ("turn", "*i32")]
    inputs = [torch.arange(1.0, 5.0), torch.zeros(1), torch.zeros(1, dtype=torch.int32)]
    nobody_waits = (("total", COPY[:2], 1.0), ("total_volatile", COPY[:2], 1.0))
    rows = (*nobody_waits, ("total_by_turns", waits, 10.0), ("total_by_flags", waits, 10.0))
    for name, kinds, expected in rows:
        kernel = [Function(name, line(name), (TL,), (), False)]
        launch = Launch(0, (4, 1, 1), tuple(Ref(at) for at in range(len(kinds))), 33)
        found = run(kernel, kinds, {}, [launch], [value.clone() for value in inputs[: len(kinds)]])
        assert found[1].item() == expected, (name, found)


def an_atomic_operation_puts_programs_in_no_order_but_publishes_what_was_stored_before() -> None:
    """The first two rely on the order in which programs happen to run, the third on nothing."""
    kinds = [("x", "*fp32"), ("y", "*fp32"), ("turn", "*i32")]
    inputs = [torch.arange(1.0, 5.0), torch.zeros(5), torch.zeros(1, dtype=torch.int32)]
    rows = (("sums_before", [9, 7, 4, 0, 0]), ("sums_in_turn", [0, 1, 2, 3, 4]), ("last_sums", [2, 4, 6, 8, 20]))
    for name, expected in rows:
        kernel = [Function(name, line(name), (TL,), (), False)]
        kinds[2] = ("turn", "*fp32" if name == "sums_before" else "*i32")
        given = [value.clone() for value in inputs]
        given[2] = given[2].float() if name == "sums_before" else given[2]
        found = run(kernel, kinds, {}, [Launch(0, (4, 1, 1), (Ref(0), Ref(1), Ref(2)), 33)], given)
        assert found[1].tolist() == expected, (name, found)


def a_write_to_another_part_of_ones_own_storage_is_a_write_like_any() -> None:
    copy = [Function("copy", line("copy"), (TL,), (), False)]
    make = Call("aten.new_zeros.default", (Ref(0), List((12,))), (), leaf(2, 12), 8)
    view = Call("aten.slice.Tensor", (Ref(2), 0, 4, 6), (), leaf(3, 2), 8)
    back = Call("aten.copy_.default", (Ref(1), Ref(2)), (), leaf(1, 12), 9)
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(3), 8), 33)
    (_, got) = run(copy, COPY, {2: 8}, [make, view, launch, back], [torch.ones(8), torch.zeros(12)])
    assert got.tolist() == [0] * 4 + [1] * 8, got


def what_is_read_outside_or_was_never_written_is_no_number() -> None:
    copy = [Function("copy", line("copy"), (TL,), (), False)]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), 8), 33)
    (_, got) = run(copy, COPY, {2: 8}, [launch], [torch.ones(5), torch.zeros(8)])
    assert got[:5].tolist() == [1] * 5 and got[5:].isnan().all(), got
    empty = Call("aten.new_empty.default", (Ref(0), List((8,))), (), leaf(2, 8), 8)
    (_, got) = run(
        copy, COPY, {2: 8}, [empty, Launch(0, (1, 1, 1), (Ref(2), Ref(1), 8), 33)], [torch.ones(8), torch.zeros(8)]
    )
    assert got.isnan().all(), got


def copied_by_block_pointers(flag: bool) -> Any:
    name = "copy_by_block_pointers"
    functions = [Function(name, line(name), (TL, ("CE", ObjectRef("triton.language.core.constexpr"))), (), False)]
    signature = [("source", "*fp32"), ("target", "*fp32"), ("flag", "u1"), ("B", "constexpr")]
    launch = Launch(0, (1, 1, 1), (Ref(0), Ref(1), flag, 8), 9)
    (_, got) = run(functions, signature, {3: 8}, [launch], [torch.ones(5), torch.zeros(8)])
    return got


def what_a_block_pointer_reads_outside_is_no_number() -> None:
    got = copied_by_block_pointers(True)
    assert got[:5].tolist() == [1] * 5 and got[5:].isnan().all(), got


def a_boolean_is_an_argument() -> None:
    assert copied_by_block_pointers(False).tolist() == [0] * 8


def failure(*names: str) -> str:
    """Of a launch of the last function, which calls the one before it."""
    functions: list[Function] = []
    for name in names:
        inner = [(one.name, FunctionRef(at)) for at, one in enumerate(functions)]
        functions.append(Function(name, line(name), (TL, *inner), (), False))
    try:
        run(functions, [("x", "*fp32")], {}, [Launch(0, (1, 1, 1), (Ref(0),), 33)], [torch.zeros(1)])
    except LaunchFailed as error:
        return str(error)
    return "nothing was raised"


def a_kernel_that_raises_is_a_failed_launch_with_the_line_in_the_kernel() -> None:
    at = line("wrong") + 2
    assert failure("wrong") == f"line {at}: kernel wrong: AssertionError('one is not two')"
    assert failure("wrong", "calls_wrong") == f"line {at}: kernel calls_wrong: AssertionError('one is not two')"
    found = failure("sums_wrongly")  # in a function of Triton's, which the line calls
    assert found.startswith(f"line {line('sums_wrongly') + 1}: kernel sums_wrongly: "), found


def what_the_interpreter_lacks_is_told_as_that() -> None:
    missing = "kernel scales: tl.dot_scaled is not available without a GPU"
    assert failure("scales") == f"line {line('scales') + 2}: {missing}"
    found = failure("assembles")
    assert found.startswith(f"line {line('assembles') + 2}: kernel assembles: Triton's interpreter, which"), found


def a_kernel_sees_no_function_of_pythons_that_the_compiler_does_not_know() -> None:
    reaching = [Function("reaching", line("reaching"), (TL,), (), False)]
    launch = Launch(0, (1, 1, 1), (Ref(0),), 33)
    fails(lambda: run(reaching, [("x", "*fp32")], {}, [launch], [torch.zeros(1)]), LaunchFailed, "'open'")
    assert not Path("canary").exists()


def a_text_that_reaches_beyond_the_language_is_refused_here_too() -> None:
    source = SOURCE.replace("tl.load(source + i)", "tl.core.inspect.os")
    copy = [Function("copy", line("copy"), (TL,), (), False)]
    fails(lambda: Functions(Source(source.encode()), copy), CompilerRefusal, "the module inspect")


PATTERNS = """
    match tl.constexpr(1):
        case tl.constexpr(__reduce_ex__=reduce):
            pass
    match reduce(0):
        case [rebuild, [_, everything, *_], *_]:
            pass
    match rebuild:
        case everything(__globals__={"__builtins__": {"open": write}}):
            write("canary", "w")
"""


def a_text_that_reads_attributes_by_patterns_reaches_nothing() -> None:
    source = SOURCE.replace("    i = tl.arange(0, B)\n    tl.store(target", PATTERNS + "    tl.store(target")
    assert source != SOURCE
    copy = [Function("copy", line("copy"), (TL,), (), False)]
    fails(lambda: Functions(Source(source.encode()), copy), CompilerRefusal, "Match")


CASES: dict[str, Callable[[], None]] = {
    name: value for name, value in globals().items() if callable(value) and name.count("_") > 2
}


def main() -> int:
    found: dict[str, str | None] = {}
    for name, case in CASES.items():
        try:
            case()
            found[name] = None
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
