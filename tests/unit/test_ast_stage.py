"""The ast stage: what passes, what does not, and where it says so."""

from __future__ import annotations

import textwrap
import time
from typing import Any

import pytest
from static import ast_stage

KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def add_kernel(x, o, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)
"""
MODEL = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        add_kernel[(1,)](x, o, x.numel(), B=64)
        return o
"""


def judge(source: str | bytes, policy: str = "strict", entry: str = "ModelNew") -> dict[str, Any]:
    data = source.encode() if isinstance(source, str) else source
    return ast_stage.judge(data, entry, policy)


def outcome(source: str | bytes, policy: str = "strict") -> tuple[object, object]:
    report = judge(source, policy)
    return report["class"], report["rule"]


def test_plain_kernel_passes() -> None:
    report = judge(KERNEL + MODEL)
    assert report["outcome"] == "pass"
    assert report["kernels"] == ["add_kernel"]
    assert report["flags"] == []


# Ways in which honest code gets to its kernel; `K` is the kernel above.
HONEST = {
    "from triton import jit": (
        KERNEL.replace("@triton.jit", "@jit").replace("import torch, triton", "import torch\nfrom triton import jit")
        + MODEL
    ),
    "import triton as t": (
        KERNEL.replace("import torch, triton", "import torch\nimport triton as t").replace("@triton.jit", "@t.jit")
        + MODEL
    ),
    "jit with arguments": KERNEL.replace("@triton.jit", "@triton.jit(debug=True)") + MODEL,
    "autotuned": KERNEL.replace("@triton.jit", "@triton.autotune(configs=[], key=['n'])\n@triton.jit") + MODEL,
    "heuristics": KERNEL.replace("@triton.jit", "@triton.heuristics({})\n@triton.jit") + MODEL,
    "jit as a function": KERNEL.replace("@triton.jit\n", "") + "kernel = triton.jit(add_kernel)\n"
    + MODEL.replace("add_kernel", "kernel"),
    "helper function": KERNEL + "def run(x, o):\n    add_kernel[(1,)](x, o, 4, B=64)\n"
    + MODEL.replace("add_kernel[(1,)](x, o, x.numel(), B=64)", "run(x, o)"),
    "partial": KERNEL + "import functools\nrun = functools.partial(add_kernel[(1,)], B=64)\n"
    + MODEL.replace("add_kernel[(1,)]", "run"),
    "dict of kernels": KERNEL + "TABLE = {'add': add_kernel}\n" + MODEL.replace("add_kernel[", "TABLE['add']["),
    "autograd function": KERNEL
    + """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        o = torch.empty_like(x)
        add_kernel[(1,)](x, o, 4, B=64)
        return o

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return F.apply(x)
""",
    "module held by the entry": KERNEL
    + MODEL.replace("ModelNew", "Inner")
    + """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x):
        return self.inner(x)
""",
    "base class": KERNEL + MODEL.replace("ModelNew", "Base") + "\nclass ModelNew(Base):\n    pass\n",
    "alias of the class": KERNEL + MODEL.replace("ModelNew", "Inner") + "\nModelNew = Inner\n",
    "class below if": KERNEL + "\nif True:" + textwrap.indent(MODEL, "    "),
    "own method": KERNEL
    + """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return self.run(x)
    def run(self, x):
        o = torch.empty_like(x)
        add_kernel[(1,)](x, o, 4, B=64)
        return o
""",
    "custom op": KERNEL
    + """
@torch.library.custom_op("own::add", mutates_args=())
def add(x: torch.Tensor) -> torch.Tensor:
    o = torch.empty_like(x)
    add_kernel[(1,)](x, o, 4, B=64)
    return o

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.ops.own.add(x)
""",
    "loads in a helper": """
import torch, triton
import triton.language as tl

@triton.jit
def read(x, i):
    return tl.load(x + i)

@triton.jit
def add_kernel(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, read(x, i))
"""
    + MODEL,
    "atomics": KERNEL.replace("tl.store(", "tl.atomic_add(") + MODEL,
    "block pointers": KERNEL.replace("tl.load(", "tl.load(tl.make_block_ptr(") .replace(
        "mask=offsets < n), mask=offsets < n)", "(n,), (1,), (0,), (B,), (0,))))"
    ) + MODEL,
    "byte order mark": "\ufeff" + KERNEL + MODEL,
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_code_passes(name: str) -> None:
    report = judge(HONEST[name])
    assert report["outcome"] == "pass", report
    assert report["flags"] == []


SYNTAX = {
    "unclosed": (b"x = (1,\n", 1),
    "return outside": (b"x = 1\nreturn x\n", 2),
    "indentation": (b"if 1:\n  x\n y\n", 3),
    "nul": (b"x = 1\ny = '\0'\n", 2),
    "parentheses": (b"x = " + b"(" * 10000 + b")" * 10000, 1),
    "minus signs": (b"x = " + b"-" * 10000 + b"1", None),
    "attributes": (b"x = a" + b".b" * 200_000, None),
    "not utf-8": (b"x = '\xff'\n", None),
}


@pytest.mark.parametrize("name", SYNTAX)
def test_what_does_not_parse_is_syntax(name: str) -> None:
    source, line = SYNTAX[name]
    report = judge(source)
    assert report["class"] == "syntax", report
    error = report["error"]
    assert isinstance(error, dict)
    assert len(error["text"]) < 1000
    assert "None" not in error["text"]
    if line is not None:
        assert error["line"] == line


def test_the_syntax_error_shows_its_line() -> None:
    error = judge("x = 1\ny = x +\n")["error"]
    assert isinstance(error, dict)
    assert "candidate.py, line 2: SyntaxError: invalid syntax" in error["text"]
    assert "y = x +" in error["text"]


REFUSED = {
    "entry_class": KERNEL + MODEL.replace("ModelNew", "Other"),
    "kernel_required": MODEL.replace("add_kernel[(1,)](x, o, x.numel(), B=64)", "o.copy_(x)"),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused_by_the_rule(rule: str) -> None:
    assert outcome(REFUSED[rule]) == ("form", rule)


@pytest.mark.parametrize("source", ["", "\n \n", "# to be written\n"])
def test_a_source_without_code_is_called_so(source: str) -> None:
    assert judge(source)["error"]["text"] == "candidate.py: the candidate has no code"


def test_many_functions_that_call_each_other_or_are_handed_to_jit_take_no_time() -> None:
    calls = "".join(f"@triton.jit\ndef f{i}(x):\n    return f{i - 1}(x)\n" for i in range(1, 3000))
    handed = "def plain(x):\n    pass\n" + "triton.jit(plain)\n" * 20_000
    before = time.process_time()
    assert judge(KERNEL + calls + handed + MODEL)["outcome"] == "pass"
    assert time.process_time() - before < 10


def test_kernelbench_asks_for_no_kernel_but_for_the_class() -> None:
    assert judge(REFUSED["kernel_required"], "kernelbench")["outcome"] == "pass"
    assert outcome(REFUSED["entry_class"], "kernelbench") == ("form", "entry_class")


@pytest.mark.parametrize("use", ["kernels = async_compile.triton('add_kernel', ", "exec("])
def test_a_kernel_in_a_text_is_none_and_its_line_is_told(use: str) -> None:
    error = judge(f"\n{use}{KERNEL!r})\n{MODEL}")["error"]
    assert isinstance(error, dict) and error["line"] == 2 and "but in a text" in str(error["text"])


def test_leaving_at_import_is_not_for_this_stage() -> None:
    assert judge(KERNEL + "import os\nos._exit(0)\n" + MODEL)["outcome"] == "pass"


def test_kernels_are_found_wherever_they_stand() -> None:
    source = (
        KERNEL + "def make():\n    @triton.jit\n    def inner(x):\n        tl.store(x, tl.load(x))\n    return inner\n"
    )
    assert judge(source + MODEL)["kernels"] == ["add_kernel", "inner"]


@pytest.mark.parametrize("policy", ["strict", "hybrid", "classic", "of_their_own"])
def test_all_policies_but_one_ask_for_a_kernel(policy: str) -> None:
    assert judge(MODEL, policy=policy)["rule"] == "kernel_required"
    assert judge(MODEL, policy="kernelbench")["outcome"] == "pass"
