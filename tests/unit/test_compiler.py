"""The kernel compiler: what it makes of a candidate's text, and what it refuses. Nothing of the text may run."""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import compiler
import pytest
from compiler import CompilerRefusal, Images, libdevice, stage
from compiler.kernels import settle
from shared.plan import (
    Address,
    Alternative,
    Call,
    Choose,
    Const,
    Constexpr,
    Dtype,
    Function,
    FunctionRef,
    Kernel,
    Launch,
    Leaf,
    List,
    ModuleRef,
    ObjectRef,
    Plan,
    Ref,
    Trace,
)
from static import inspect_stage

TL = ("tl", ModuleRef("triton.language"))
TARGET = "cuda:90"
HEAD = "import triton\nimport triton.language as tl\n"


def text(body: str) -> str:
    return HEAD + textwrap.dedent(body)


def line_of(source: str, wanted: str) -> int:
    """The only line that begins so."""
    (found,) = [at for at, line in enumerate(source.split("\n"), 1) if line.lstrip().startswith(wanted)]
    return found


def function(
    source: str, name: str, *more: tuple[str, Any], defaults: tuple[tuple[str, Any], ...] = (), noinline: bool = False
) -> Function:
    return Function(name, line_of(source, f"def {name}("), (TL, *more), defaults, noinline)


POINTER: tuple[tuple[int, ...], tuple[tuple[str, int], ...]] = ((0,), (("tt.divisibility", 16),))


def kernel(
    index: int, constants: dict[str, Const] | None = None, options: dict[str, Const] | None = None, **types: Any
) -> Kernel:
    """A specialisation: parameters with their types, and those that are constants."""
    given = constants or {}
    signature = tuple(types.items()) + tuple((name, "constexpr") for name in given)
    paths = tuple(((len(types) + at,), value) for at, value in enumerate(given.values()))
    return Kernel(index, signature, paths, (POINTER,), tuple((options or {}).items()))


def plan_of(
    source: str, functions: list[Function], kernels: list[Kernel], steps: tuple[Any, ...] | None = None
) -> Plan:
    launches = tuple(Launch(at, (1, 1, 1), (), 1) for at in range(len(kernels))) if steps is None else steps
    trace = Trace("own", (), (), (), (), launches, None)
    return Plan(
        TARGET, f"sha256:{hashlib.sha256(source.encode()).hexdigest()}", tuple(functions), tuple(kernels), (trace,)
    )


def build(source: str, functions: list[Function], kernels: list[Kernel], workers: int = 1) -> Images:
    return compiler.build(source.encode(), plan_of(source, functions, kernels), workers)


SCALE = text("""
    @triton.jit
    def scale(x, n, F: tl.constexpr, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(x + i, tl.load(x + i, mask=i < n) * F, mask=i < n)
""")


def scale(**more: Any) -> Kernel:
    return kernel(0, {"F": 2.0, "B": 128}, x="*fp32", n="i32", **more)


def test_a_kernel_is_compiled_to_an_image_with_what_its_launch_needs() -> None:
    found = build(SCALE, [function(SCALE, "scale")], [scale(options={"num_warps": 8})])
    (image,) = found.images
    assert image is not None and found.failure is None
    launched, cubin = image.compiled, image.compiled.image
    assert (launched.entry, launched.num_warps, launched.num_ctas) == ("scale", 8, 1)
    assert image.registers > 0 and image.spill_bytes == 0 and launched.global_scratch_bytes == 0
    assert hashlib.sha256(cubin).hexdigest() == image.sha256
    capability, entries = inspect_stage.kernels_of(cubin)
    assert capability == 90 and [entry.name for entry in entries] == ["scale"]


NESTED = text("""
    SHIFT = tl.constexpr(3)

    def make(op, width):
        @triton.jit
        def inner(v, K: tl.constexpr = width):
            return op(v, SHIFT) + K

        @triton.jit
        def outer(
            x,
            # the block
            B: "tl.constexpr",
        ):
            i = tl.arange(0, B)
            tl.store(x + i, inner(tl.load(x + i)))

        return outer

    @triton.jit
    def _plus(a, b):
        return a + b
""")


NAMED = """\
from collections import namedtuple
from typing import NamedTuple
class Args(NamedTuple):
    x: object
    FIELD: int
Other = namedtuple("Other", "y, twice, x2")
Third = namedtuple("Third", ["twice"])
@triton.jit
def k(args, y):
    tl.store(y, tl.load(args.x) * args.FIELD)
"""


@pytest.mark.parametrize("field", ["count", "shape", "twice"])
def test_a_field_of_a_named_tuple_is_its_place_unless_the_name_means_more(field: str) -> None:
    source = NAMED.replace("FIELD", field)
    whole = Kernel(0, (("args", ("*fp32", "i32")), ("y", "*fp32")), (), (), ())
    if field == "count":
        assert build(source, [function(source, "k")], [whole]).failure is None
    else:
        with pytest.raises(CompilerRefusal, match=f"^line 10: k: {field} is a field of a named tuple, and "):
            build(source, [function(source, "k")], [whole])


def test_the_fields_of_a_named_tuple_on_the_host_mean_nothing_to_a_kernel() -> None:
    source = text("""
        class Config(NamedTuple):
            dtype: object
        @triton.jit
        def k(x):
            tl.store(x, tl.load(x).to(x.dtype.element_ty))
    """)
    assert build(source, [function(source, "k")], [kernel(0, x="*fp32")]).failure is None


def test_nested_functions_of_factories_are_taken_with_their_closures_as_data() -> None:
    functions = [
        function(NESTED, "_plus"),
        function(NESTED, "inner", ("op", FunctionRef(0)), ("SHIFT", Constexpr(3)), defaults=(("K", 7),)),
        function(NESTED, "outer", ("inner", FunctionRef(1))),
    ]
    found = build(NESTED, functions, [kernel(2, {"B": 64}, x="*i32")])
    assert found.failure is None and found.images[0] is not None


def test_two_functions_of_one_name_are_two() -> None:
    """Two closures of one factory have one text and one line: what tells them apart is the plan's data."""
    source = text("""
        @triton.jit
        def inner(v):
            return v * FACTOR

        @triton.jit
        def outer(x, B: tl.constexpr):
            i = tl.arange(0, B)
            tl.store(x + i, first(tl.load(x + i)) + second(tl.load(x + i)))
    """)

    def with_factors(one: float, other: float) -> Images:
        functions = [
            function(source, "inner", ("FACTOR", Constexpr(one))),
            function(source, "inner", ("FACTOR", Constexpr(other))),
            function(source, "outer", ("first", FunctionRef(0)), ("second", FunctionRef(1))),
        ]
        return build(source, functions, [kernel(2, {"B": 64}, x="*fp32")])

    same, different = with_factors(2.0, 2.0).images[0], with_factors(2.0, 3.0).images[0]
    assert same is not None and different is not None
    first, second = (image.compiled.image for image in (same, different))
    assert first != second


WIDE: dict[str, tuple[str, tuple[tuple[str, Any], ...]]] = {
    "dtypes, types and their attributes": ("tl.store(x, tl.load(x).to(x.dtype.element_ty).to(tl.float32))", ()),
    "submodules": ("tl.store(x, tl.math.exp2(tl.core.maximum(tl.load(x), 0.0)))", ()),
    "libdevice": (
        "tl.store(x, libdevice.tanh(tl.load(x)))",
        (("libdevice", ModuleRef("triton.language.extra.libdevice")),),
    ),
    "an object of libdevice": (
        "tl.store(x, tanh(tl.load(x)))",
        (("tanh", ObjectRef("triton.language.extra.libdevice.tanh")),),
    ),
    "libdevice through the language": ("tl.store(x, tl.extra.cuda.libdevice.rsqrt(tl.load(x)))", ()),
    "Inductor's": (
        "tl.store(x, helpers.maximum(tl.load(x), 0.0))",
        (("helpers", ModuleRef("torch._inductor.runtime.triton_helpers")),),
    ),
    "triton's own": ("tl.store(x, tl.load(x) + triton.cdiv(5, 2))", (("triton", ModuleRef("triton")),)),
    "Python's mathematics": ("tl.store(x, tl.load(x) * math.sqrt(2) + math.pi)", (("math", ModuleRef("math")),)),
    "inline assembly": (
        "tl.store(x, tl.inline_asm_elementwise("
        '"tanh.approx.f32 $0, $1;", "=f,f", [tl.load(x)], dtype=tl.float32, is_pure=True, pack=1))',
        (),
    ),
    "literal lookups": ('tl.store(x, getattr(tl, "exp")(tl.load(x)) if hasattr(tl, "exp") else 0.0)', ()),
    "an enumeration": ("tl.store(x, tl.maximum(tl.load(x), 0.0, propagate_nan=tl.PropagateNan.ALL))", ()),
    "a reduction by a function of the language": ("tl.store(x, tl.sum(tl.arange(0, 16)).to(tl.float32))", ()),
    "dtypes as constants": ("tl.store(x, tl.load(x).to(KIND).to(tl.float32))", (("KIND", Dtype("fp16")),)),
    "private operations of the language": (
        "tl.store(x, _log2(16) * tl.reduce(tl.arange(0, 16), 0, tl.standard._elementwise_max).to(tl.float32))",
        (("_log2", ObjectRef("triton.language.standard._log2")),),
    ),
    "an integer's type by its width": (
        "t: tl.constexpr = tl.core.get_int_dtype(bitwidth=x.dtype.element_ty.primitive_bitwidth, signed=True)\n"
        "    tl.store(x, tl.load(x).to(t, bitcast=True).to(tl.float32))",
        (),
    ),
    "names that begin with an underscore": ("_one = tl.load(x)\n    tl.store(x, _one * _K)", (("_K", Constexpr(2.0)),)),
    "random numbers": ("tl.store(x, tl.rand(tl.program_id(0), tl.program_id(1)))", ()),
    "what the target is": (
        "tl.store(x, 1.0 if tl.target_info.cuda_capability_geq(9, 0) else 0.0)",
        (),
    ),
    "texts of a compile-time print": ('tl.static_print("x", x.dtype)\n    tl.store(x, 1.0)', ()),
}


@pytest.mark.parametrize(("body", "more"), WIDE.values(), ids=WIDE)
def test_what_honest_kernels_name_is_compiled(body: str, more: tuple[tuple[str, Any], ...]) -> None:
    source = f"{HEAD}@triton.jit\ndef k(x):\n    {body}\n"
    found = build(source, [function(source, "k", *more)], [kernel(0, x="*fp32")])
    assert found.failure is None and found.images[0] is not None


# --- what is refused ---

CANARY = "verifierd-canary"
OS = f'system("touch {CANARY}")'

HOSTILE: dict[str, tuple[str, tuple[tuple[str, Any], ...], str]] = {
    "a module behind the language": (f"tl.core.inspect.os.{OS}", (), "the module inspect"),
    "a module's machinery": (f"triton.runtime.jit.{OS}", (("triton", ModuleRef("triton")),), "triton.runtime"),
    "a lookup of such": (f'getattr(getattr(tl.core, "inspect"), "os").{OS}', (), "the module inspect"),
    "a lookup without a name": (f'getattr(tl, NAME).{OS}', (("NAME", Constexpr("core")),), "without the name"),
    "a lookup under another name": ("g: tl.constexpr = getattr", (), "not called with the name"),
    "a lookup of unpacked arguments": (f'getattr(*(tl, "core"), "x").{OS}', (), "unpacked"),
    "a default of a lookup": (f'getattr(tl, "nothing", x).handle.{OS}', (), "attribute handle"),
    "dunder attributes": (f"tl.__loader__.{OS}", (), "underscore"),
    "dunder attributes of a value": ("x.__class__.__base__.__subclasses__()", (), "the attribute __class__"),
    "dunder attributes of a text": ("''.__class__", (), "the attribute __class__"),
    "a dunder name": (f"__builtins__.{OS}", (), "the name __builtins__"),
    "a dunder name from the plan": ("__builtins__", (("__builtins__", Constexpr(1)),), "the name __builtins__"),
    "a function's globals": ("tl.sum.fn.__globals__", (), "the attribute"),
    "the compiler's objects": ("x.handle.get_context()", (), "the attribute handle"),
    "a type's way into the compiler": ("x.dtype.to_ir(x)", (), "the attribute to_ir"),
    "a text's format": ("'{0.handle}'.format(x)", (), "the attribute format"),
    "a module as a constant": (f"m: tl.constexpr = tl\n    m.core.{OS}", (), "module as a value"),
    "a module as an argument": ("tl.static_print(tl.core)", (), "module as a value"),
    "a module out of a choice": (f"(tl if True else tl).core.{OS}", (), "module as a value"),
    "a module in a list": ("[tl][0].core", (), "module as a value"),
    "a module hidden by a variable": ("x.handle", (("x", ModuleRef("math")),), "the variable x"),
    "a module hidden by a comprehension": ("[m.handle for m in (x,)]", (("m", ModuleRef("math")),), "the variable m"),
    "hidden arguments": ("tl.load(x, _semantic=x)", (), "the argument _semantic"),
    "a plain function of the language": ('tl.str_to_ty("tensordesc<fp32[1],print(1)>", None)', (), "not a part"),
    "the language's decorators": ("tl.core.builtin(x)", (), "not a part"),
    "an f-string": ("f'{tl.core.inspect}'", (), "the module inspect"),
    "the format of an f-string": ("f'{1:{tl.core.inspect}}'", (), "the module inspect"),
    "a comprehension": ("[tl.core.inspect for i in (1, 2)]", (), "the module inspect"),
    "a lambda": ("(lambda: tl.core.inspect)()", (), "the module inspect"),
    "a nested function": (f"def inner():\n        tl.core.inspect.os.{OS}", (), "FunctionDef"),
    "a module hidden by a function": ("def tl():\n        pass\n    tl.func_globals", (), "FunctionDef"),
    "a module hidden by an exception": ("try:\n        x()\n    except x as tl:\n        tl.args", (), "Try"),
    "a module hidden by an import": ("import os as tl", (), "Import"),
    "a module hidden by a pattern": ("match x:\n        case tl:\n            tl.run", (), "Match"),
    "the attributes of a pattern": ("match x:\n        case tl.tensor(__class__=r):\n            r(0)", (), "Match"),
    "an annotation": (f"y: tl.core.inspect.os.{OS} = 1", (), "the module inspect"),
    "a context": (f"with tl.core.inspect.os.{OS}:\n        pass", (), "the module inspect"),
    "an operand of a loop": (f"for i in tl.core.inspect.os.{OS}:\n        pass", (), "the module inspect"),
    "an augmented assignment": ("x.handle += 1", (), "the attribute handle"),
    "an operation of another meaning": ("tl.load = x", (), "an assignment to the attribute load"),
    "an operation taken away": ("del tl.load", (), "an assignment to the attribute load"),
    "an operation as a loop's variable": ("for tl.load in (1, 2):\n        pass", (), "an assignment to the attribute"),
    "a function of Python's with another meaning": (
        "(math.exp, y) = (1, 2)", (("math", ModuleRef("math")),), "an assignment to the attribute exp"
    ),
    "an assertion": ("assert x, tl.core.inspect", (), "the module inspect"),
    "a keyword": ("tl.load(x, mask=tl.core.inspect)", (), "the module inspect"),
    "unpacked keywords": ("tl.load(x, **tl.core.inspect)", (), "the module inspect"),
    "Inductor's functions that are none of a kernel's": (
        "helpers.set_driver_to_gpu()",
        (("helpers", ModuleRef("torch._inductor.runtime.triton_helpers")),),
        "not a part",
    ),
    "a module that no kernel needs": ("x", (("os", ModuleRef("triton.runtime.build")),), "the module triton.runtime"),
    "an object of such a module": ("x", (("os", ObjectRef("triton.runtime.build.os")),), "module triton.runtime"),
    "an object that is a module": ("x", (("os", ObjectRef("triton.language.core.inspect")),), "the module inspect"),
    "an object that is not of a kernel": ("x", (("j", ObjectRef("triton.jit")),), "not a part"),
    "an object that is private": ("x", (("j", ObjectRef("triton.language.core._unsplat")),), "underscore"),
    "an object that there is not": ("x", (("j", ObjectRef("triton.language.no_such")),), "which there is not"),
    "a dtype that there is not": ("x", (("T", Dtype("fp33")),), "no dtype"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "more", "what"), HOSTILE.values(), ids=HOSTILE)
def test_a_text_that_reaches_beyond_the_language_is_refused_by_name_and_line(
    body: str, more: tuple[tuple[str, Any], ...], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = f"{HEAD}@triton.jit\ndef k(x):\n    y = 1\n    {body}\n"
    with pytest.raises(CompilerRefusal, match=what) as refusal:
        build(source, [function(source, "k", *more)], [kernel(0, x="*fp32")])
    first = line_of(source, "def k(")
    assert refusal.value.name == "k" and first <= refusal.value.line <= first + 3
    assert not (tmp_path / CANARY).exists()


UNRUN: dict[str, str] = {
    "the module's own code": """
        import os
        os.system("touch {canary}")
        @triton.jit
        def k(x, N: tl.constexpr = 4):
            tl.store(x, N)
        """,
    "decorators": """
        @__import__("os").system("touch {canary}")
        @triton.jit
        def k(x, N: tl.constexpr = 4):
            tl.store(x, N)
        """,
    "defaults": """
        @triton.jit
        def k(x, N: tl.constexpr = __import__("os").system("touch {canary}")):
            tl.store(x, N)
        """,
    "annotations": """
        @triton.jit
        def k(x: __import__("os").system("touch {canary}"), N: tl.constexpr = 4) -> open("{canary}", "w"):
            tl.store(x, N)
        """,
    "a class around it": """
        class Trap:
            __import__("os").system("touch {canary}")
            @triton.jit
            def k(x, N: tl.constexpr = 4):
                tl.store(x, N)
        """,
    "a function around it, with dunder methods in its closure": """
        class Evil(int):
            def __add__(self, other): open("{canary}", "w")
            __index__ = __repr__ = __hash__ = __eq__ = __radd__ = __add__
        def make(E=Evil(3)):
            @triton.jit
            def k(x, N: tl.constexpr = E):
                tl.store(x, N + E)
            return k
        """,
}


@pytest.mark.parametrize("body", UNRUN.values(), ids=UNRUN)
def test_nothing_around_a_function_runs(body: str, tmp_path: Path) -> None:
    source = text(body.replace("{canary}", str(tmp_path / CANARY)))
    one = function(source, "k", ("E", Constexpr(3)), defaults=(("N", 4),))
    found = build(source, [one], [kernel(0, {"N": 4}, x="*i32")])
    assert found.failure is None and not (tmp_path / CANARY).exists()


FALSE: dict[str, tuple[Callable[[Function], Function], Callable[[Kernel], Kernel], str]] = {
    "a line": (lambda f: replace(f, line=f.line - 1), lambda k: k, "no function of this name"),
    "a name": (lambda f: replace(f, name="other"), lambda k: k, "no function of this name"),
    "defaults": (lambda f: replace(f, defaults=(("B", 1),)), lambda k: k, "the text has defaults of"),
    "parameters": (lambda f: f, lambda k: replace(k, signature=(("y", "*fp32"), *k.signature[1:])), "not those of"),
    "a type": (lambda f: f, lambda k: replace(k, signature=(("x", "*fp33"), *k.signature[1:])), "no type"),
    "a type that Triton would evaluate": (
        lambda f: f,
        lambda k: replace(k, signature=(("x", 'tensordesc<fp32[1],open("canary","w")>'), *k.signature[1:])),
        "no type",
    ),
    "a dtype": (lambda f: f, lambda k: replace(k, constants=(((2,), Dtype("fp33")), *k.constants[1:])), "no dtype"),
}


@pytest.mark.parametrize(("other", "another", "what"), FALSE.values(), ids=FALSE)
def test_a_plan_that_does_not_fit_its_source_is_refused(
    other: Callable[[Function], Function], another: Callable[[Kernel], Kernel], what: str
) -> None:
    with pytest.raises(CompilerRefusal, match=what):
        build(SCALE, [other(function(SCALE, "scale"))], [another(scale())])


def test_a_plan_without_the_tasks_own_case_is_refused() -> None:
    found = plan_of(SCALE, [function(SCALE, "scale")], [scale()], steps=())
    other = replace(found, traces=(replace(found.traces[0], case="other: shape prime"),))
    for document, outcome in ((found, "pass"), (other, "fail")):
        result = stage.build(SCALE.encode(), document.dump(), TARGET, {"foreign": "any"}, 1)
        assert result.report["outcome"] == outcome, result.report


def test_a_plan_for_another_target_is_refused_by_its_field() -> None:
    found = plan_of(SCALE, [function(SCALE, "scale")], [scale()], steps=())
    for target in ("cuda:100", "cuda:999"):
        result = stage.build(SCALE.encode(), replace(found, target=target).dump(), TARGET, {"foreign": "any"}, 1)
        assert result.report["class"] == "compile" and f"target: is {target}" in result.report["error"]["text"]


def test_a_signature_that_is_nested_too_deep_to_be_copied_is_untraced() -> None:
    source = SCALE.replace("(x,", "(x: " + "-" * 400 + "1,", 1)
    document = plan_of(source, [function(source, "scale")], [scale()], steps=())
    result = stage.build(source.encode(), document.dump(), TARGET, {"foreign": "any"}, 1)
    assert result.report["outcome"] == "untraced" and "too deep" in result.report["error"]["text"]


A, B, C, D = (Leaf(at, (4, 8), (8, 1), "float32") for at in range(4))
EMPTY = Call("aten.empty.memory_format", (List((4, 8)),), (), B, 1)
VIEW = Call("aten.view.default", (Ref(1), List((4, 8))), (), C, 1)
COPY = Call("aten.clone.default", (Ref(1),), (), D, 1)
SUM = Call("aten.add.Tensor", (Ref(0), Ref(1)), (), D, 1)
LAUNCH = Launch(0, (1, 1, 1), (Ref(0), Ref(1)), 1)
WAYS = Choose((Alternative("one", (LAUNCH,)), Alternative("two", (LAUNCH, SUM))), 1)
TABLE = Call(
    "plan.constant.default", (List((Address(0, 0), Address(1, 0))), List((2,))), (), Leaf(5, (2,), (1,), "int64"), 1
)
MOVED = Call("aten._to_copy.default", (Ref(5),), (), Leaf(6, (2,), (1,), "int64"), 1)
BY_TABLE = Launch(0, (1, 1, 1), (Ref(6),), 1)


@pytest.mark.parametrize(
    ("steps", "share"),
    [
        ((EMPTY, LAUNCH), 1.0),
        ((EMPTY, LAUNCH, VIEW), 1.0),
        ((EMPTY, LAUNCH, COPY), 0.5),
        ((EMPTY, LAUNCH, SUM), 0.4),
        ((EMPTY, WAYS, SUM), 0.4),
        ((EMPTY, SUM), 0.0),
        ((EMPTY, TABLE, MOVED, BY_TABLE), round(66 / 72, 6)),
        ((EMPTY,), None),
    ],
)
def test_coverage_is_the_share_of_own_kernels_in_what_is_read_and_made(
    steps: tuple[Any, ...], share: float | None
) -> None:
    assert stage.coverage(Trace("own", List((A,)), (), (), (), steps, D)) == share


DROPPED = Call("aten.add.Tensor", (Ref(2), Ref(0)), (), Leaf(4, (4, 8), (8, 1), "float64"), 1)
LARGE = Call("aten.empty.memory_format", (List((100,)),), (), Leaf(4, (100,), (1,), "int8"), 1)


@pytest.mark.parametrize(
    ("first", "steps", "output", "expected"),
    [
        ((), (EMPTY, LAUNCH), B, 128),
        ((), (EMPTY, LAUNCH, VIEW), C, 128),
        ((), (EMPTY, LAUNCH, COPY), D, 256),
        ((), (EMPTY, VIEW, DROPPED, LAUNCH), B, 128 + 256),
        ((), (LARGE, EMPTY, LAUNCH), B, 128),  # what nobody reads is gone at once
        ((EMPTY,), (LAUNCH,), B, 128),
        ((LARGE, EMPTY), (LAUNCH,), B, 128),
        ((EMPTY,), (LAUNCH, VIEW, COPY), D, 256),  # what is kept stays
        ((), (), A, 0),
    ],
)
def test_bytes_of_a_call_are_what_there_is_at_once(
    first: tuple[Any, ...], steps: tuple[Any, ...], output: Leaf, expected: int
) -> None:
    assert stage.call_bytes(Trace("own", List((A,)), (), (), first, steps, output)) == expected


def test_a_parameter_counts_once_and_whether_it_is_read_or_not() -> None:
    """Else a candidate would keep its memory in one."""
    for steps, output, expected in (((LAUNCH, COPY), D, 256), ((), A, 128)):
        trace = Trace("own", List((A,)), (("weight", 1),), (EMPTY,), (VIEW,), steps, output)
        assert stage.call_bytes(trace) == expected


PACK = Call("aten.clone.default", (Ref(1),), (), Leaf(5, (4, 4), (4, 1), "float64"), 1)


FOLD = Call("aten.mul_.Tensor", (Ref(1), 2.0), (), None, 1)
LIKE = replace(PACK, op="aten.empty_like.default")


@pytest.mark.parametrize(
    ("first", "read", "prepares"),
    [
        ((PACK,), 5, True),
        ((FOLD,), 1, True),
        ((LARGE,), 4, False),
        ((LIKE,), 5, False),
        ((VIEW,), 2, False),
        ((), 1, False),
    ],
)
def test_prepared_weights_are_what_is_computed_from_parameters(
    first: tuple[Any, ...], read: int, prepares: bool
) -> None:
    steps = (Launch(0, (1, 1, 1), (Ref(0), Ref(read)), 1),)
    trace = Trace("own", List((A,)), (("weight", 1),), (EMPTY,), first, steps, A)
    assert stage.prepares_weights(trace) is prepares


def test_a_plan_of_another_source_is_refused() -> None:
    document = plan_of(SCALE, [function(SCALE, "scale")], [scale()])
    with pytest.raises(CompilerRefusal, match="another source"):
        compiler.build(SCALE.encode() + b"#", document, 1)


@pytest.mark.parametrize("source", [b"def f(:\n", b"x = '\xff'\n", b"a" + b"(" * 100_000, b"\0", b""])
def test_a_source_that_is_no_python_or_lacks_the_function_is_refused(source: bytes) -> None:
    document = replace(
        plan_of(SCALE, [function(SCALE, "scale")], [scale()]), source=f"sha256:{hashlib.sha256(source).hexdigest()}"
    )
    with pytest.raises(CompilerRefusal):
        compiler.build(source, document, 1)


UNREADABLE: dict[str, str] = {
    "a name on the next line": "@triton.jit\ndef \\\n  k(x):\n    tl.store(x, 1.0)\n",
    "a parameter twice": "@triton.jit\ndef k(x, x):\n    tl.store(x, 1.0)\n",
    "lines that begin before it": "if 1:\n  @triton.jit\n  def k(x):\n    '''\nx'''\n    tl.store(x, 1.0)\n",
    "nothing but depth": "@triton.jit\ndef k(x):\n    tl.store(x, " + "-" * 600 + "1)\n",
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_a_function_that_triton_cannot_read_is_the_candidates_fault(body: str) -> None:
    source = HEAD + body
    line = next(at for at, text in enumerate(source.split("\n"), 1) if text.lstrip().startswith("def "))
    with pytest.raises(CompilerRefusal) as refusal:
        build(source, [Function("k", line, (TL,), (), False)], [kernel(0, x="*fp32")])
    assert line <= refusal.value.line <= line + 2


def test_inline_assembly_that_makes_another_entry_is_an_error_of_the_kernel() -> None:
    source = text("""
        @triton.jit
        def k(x):
            asm: tl.constexpr = "mov.u32 $0, 0; } .visible .entry other() { ret;"
            tl.store(x, tl.inline_asm_elementwise(asm, "=r", [], dtype=tl.int32, is_pure=False, pack=1))
    """)
    found = build(source, [function(source, "k")], [kernel(0, x="*i32")])
    assert found.failure is not None and found.images == (None,)


# --- errors ---


def test_an_error_has_tritons_text_and_the_line_of_the_innermost_function() -> None:
    source = text("""
        @triton.jit
        def inner(v):
            w = v + 1
            return tl.no_such_thing(w)

        @triton.jit
        def outer(x):
            tl.store(x, inner(tl.load(x)))
    """)
    functions = [function(source, "inner"), function(source, "outer", ("inner", FunctionRef(0)))]
    found = build(source, functions, [kernel(1, x="*fp32")])
    assert found.failure is not None and not found.failure.is_pruned and found.images == (None,)
    error = found.failure.error
    assert error["line"] == line_of(source, "return tl.no_such_thing") and error["type"] == "CompilationError"
    assert f"candidate.py, line {error['line']}: kernel outer does not compile" in error["text"]
    assert "has no attribute 'no_such_thing'" in error["text"]


TILES = text("""
    @triton.jit
    def k(x, B: tl.constexpr):
        tl.static_assert(B != 32)
        i, j = tl.arange(0, 64), tl.arange(0, B)
        tile = tl.load(x + i[:, None] * B + j[None, :])
        tl.store(x + i[:, None] * 64 + i[None, :], tl.dot(tile, tl.trans(tile)).to(tl.float16))
""")


def test_alternatives_that_do_not_fit_the_target_are_dropped_while_one_is_left() -> None:
    """A tile of 64 x 2048 in float16 needs 256 KiB of shared memory; the target has 227."""
    sizes = [32, 2048, 64]
    kernels = [kernel(0, {"B": size}, {"num_warps": 16}, x="*fp16") for size in sizes]
    one = Choose(tuple(Alternative(f"B: {size}", (Launch(at, (1, 1, 1), (), 9),)) for at, size in enumerate(sizes)), 9)
    document = plan_of(TILES, [function(TILES, "k")], kernels, (one,))
    found = compiler.build(TILES.encode(), document, 2)
    assert found.failure is None and [image is not None for image in found.images] == [False, False, True]
    assert [(lost.config, lost.line) for lost in found.dropped] == [("B: 32", 9), ("B: 2048", 9)]
    assert found.dropped[0].error.error["type"] == "CompileTimeAssertionFailure"
    assert "out of resource: shared memory" in found.dropped[1].error.error["text"]
    failing = replace(one, alternatives=one.alternatives[:2])
    assert settle(replace(document, traces=(replace(document.traces[0], steps=(failing,)),)), {
        lost.error.kernel: lost.error for lost in found.dropped
    })[1] is found.dropped[0].error  # fmt: skip


@pytest.mark.parametrize(("case", "fails"), [("tiny", False), ("other: x2", False), ("shape0", True)])
def test_a_size_that_nobody_promised_may_have_no_image(case: str, fails: bool) -> None:
    """A kernel for rows of 64 was refused for the smallest case of its task, which has rows of four."""
    kernels = [kernel(0, {"B": size}, x="*fp16") for size in (64, 4)]
    steps = [(Launch(at, (1, 1, 1), (), 9),) for at in (0, 1)]
    document = plan_of(TILES, [function(TILES, "k")], kernels, steps[0])
    document = replace(document, traces=(*document.traces, replace(document.traces[0], case=case, steps=steps[1])))
    found = compiler.build(TILES.encode(), document, 1)
    assert [image is not None for image in found.images] == [True, False]
    assert (found.failure is not None) == fails


def test_kernels_of_generality_alone_are_left_out_where_nobody_needs_them() -> None:
    """The interpreter runs the text, and half of what was compiled without a GPU was for other sizes."""
    kernels = [kernel(0, {"B": size}, x="*fp16") for size in (64, 128, 16)]
    steps = [(Launch(at, (1, 1, 1), (), 9),) for at in (0, 1, 2)]
    document = plan_of(TILES, [function(TILES, "k")], kernels, steps[0])
    own = document.traces[0]
    more = (replace(own, case="other: x2", steps=(*steps[1], *steps[0])), replace(own, case="tiny", steps=steps[2]))
    document = replace(document, traces=(own, *more))
    found = compiler.build(TILES.encode(), document, 1, others=False)
    assert [image is not None for image in found.images] == [True, False, True]
    assert found.failure is None
    assert document.judged_kernels() == {0, 2}


@pytest.mark.parametrize("case", ["tiny", "other: x2", "shape0"])
def test_of_a_size_that_nobody_promised_one_alternative_is_compiled(case: str) -> None:
    """A convolution with 16 configurations and its sizes as constants took `compile` beyond its 60 s."""
    sizes = [64, 16, 32, 4096, 128, 256]  # 32 is refused by the text, 4096 by the shared memory
    kernels = [kernel(0, {"B": size}, {"num_warps": 16}, x="*fp16") for size in sizes]
    ways = [Alternative(str(at), (Launch(at, (1, 1, 1), (), 9),)) for at in range(6)]
    document = plan_of(TILES, [function(TILES, "k")], kernels, (Choose(tuple(ways[:2]), 9),))
    others = (Choose(tuple(ways[2:]), 9), Choose((ways[5], ways[1]), 9))
    document = replace(document, traces=(*document.traces, replace(document.traces[0], case=case, steps=others)))
    found = compiler.build(TILES.encode(), document, 1)
    assert found.failure is None
    assert [image is not None for image in found.images] == [True, True, False, False, True, case == "shape0"]


def test_an_alternative_with_a_mistake_in_its_text_is_not_passed_over() -> None:
    source = TILES.replace("tl.static_assert(B != 32)", "tl.arange(0, B - 1)")
    kernels = [kernel(0, {"B": size}, x="*fp16") for size in (32, 64)]
    one = Choose(tuple(Alternative(str(at), (Launch(at, (1, 1, 1), (), 9),)) for at in (0, 1)), 9)
    found = compiler.build(source.encode(), plan_of(source, [function(source, "k")], kernels, (one,)), 1)
    assert found.failure is not None and "power of 2" in found.failure.error["text"]


def test_a_kernel_that_ends_the_compiler_is_that_kernels_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from compiler import kernels as module

    really = module.compile_kernel

    def compile_or_die(one: Kernel, *more: Any) -> Any:
        if dict(one.options).get("num_warps") == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return really(one, *more)

    monkeypatch.setattr(module, "compile_kernel", compile_or_die)
    kernels = [scale(options={"num_warps": warps}) for warps in (1, 2, 4)]
    found = build(SCALE, [function(SCALE, "scale")], kernels)
    assert [image is not None for image in found.images] == [True, False, True]
    assert found.failure is not None and "SIGKILL" in found.failure.error["text"]
    assert found.failure.error["line"] == line_of(SCALE, "def scale")


def test_how_far_it_is_is_told_after_each_kernel() -> None:
    """A time-out said nothing of the kernels that were compiled by then."""
    bad = text("@triton.jit\ndef bad(x):\n    tl.store(x, missing)\n")
    source = SCALE + bad
    functions = [function(source, "scale"), function(source, "bad")]
    kernels = [scale(), kernel(1, {}, x="*fp32"), scale(options={"num_warps": 2})]
    told: list[int] = []
    compiler.build(source.encode(), plan_of(source, functions, kernels), 1, tell=told.append)
    assert told == [1, 1, 2]


def test_a_primed_process_keeps_nothing_and_compiles_in_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    compiler.prime("cuda:90", tmp_path)
    assert build(SCALE, [function(SCALE, "scale")], [scale()], 2).failure is None
    assert not (tmp_path / "triton").exists() and os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "triton")


def test_the_part_of_libdevice_makes_the_same_code_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"sqrt": True, "erf": True, "sin": True, "log1p": True, "acos": False, "pow": False}
    log, whole = tmp_path / "linked", libdevice.link_whole

    def link_and_note(module: Any, paths: list[str]) -> None:
        with log.open("a") as file:
            file.write(f"{paths[0]}\n")
        whole(module, paths)

    compiler.prime("cuda:90", tmp_path)
    monkeypatch.setattr(libdevice, "link_whole", link_and_note)
    source = HEAD + "".join(
        f"@triton.jit\ndef {name}_(x):\n    v = tl.load(x)\n    tl.store(x, libdevice.{name}({given}))\n"
        for name in names
        for given in (["v, v"] if name == "pow" else ["v"])
    )
    module = ("libdevice", ModuleRef("triton.language.extra.cuda.libdevice"))
    functions = [function(source, f"{name}_", module) for name in names]
    kernels = [
        kernel(at, x="*fp32", options={"enable_reflect_ftz": flushes}) for flushes in (True, False) for at in range(6)
    ]
    images = []
    for kind in ("part", "whole"):
        images.append([image and image.sha256 for image in build(source, functions, kernels).images])
        linked = [Path(line).name == "libdevice.ll" for line in log.read_text().split()]
        assert linked == ([*names.values()] * 2 if kind == "part" else [False] * 12)
        log.unlink()
        (tmp_path / "libdevice.ll").unlink(missing_ok=True)
    assert None not in images[0] and images[0] == images[1]
    assert images[0][0] != images[0][6]  # how it treats the smallest numbers is of the launch, not of the library


def test_images_that_cannot_be_stored_are_no_fault_of_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(OSError, match="file"):
        build(SCALE, [function(SCALE, "scale")], [scale()])
