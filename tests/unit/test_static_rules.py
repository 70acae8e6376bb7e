"""The static rules: each with what it must catch, and with what looks like it and is honest."""

from __future__ import annotations

import re
from pathlib import Path

import ast_stage
import pytest
import static_rules

SOURCE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
{top}

@triton.jit
def own_kernel(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        {call}
        o = torch.empty_like(x)
        own_kernel[(1,)](x, o, x.numel(), B=64)
        return o
"""

# rule: what it catches. A line that begins with `>` stands in forward, the others at the top.
CAUGHT = {
    "native_code": [
        "import ctypes",
        "from ctypes import CDLL",
        "import torch.utils.cpp_extension\nmake = torch.utils.cpp_extension.load",
        "from torch.utils.cpp_extension import load_inline\nmake = load_inline",
        "> torch.ops.load_library('x.so')",
        "> triton.runtime.driver.active.utils.load_binary('k', b'', 0, 0)",
        "> torch.cuda.jiterator._create_jit_fn('template <typename T> T own(T x) { return x; }')",
        "> torch.ctypes.CDLL(None)",
        "from torch import ctypes",
    ],
    "process": [
        "import subprocess",
        "import multiprocessing.shared_memory",
        "import os as o\no.fork()",
        "from os import system\nsystem('true')",
        "import os\nrun = getattr(os, 'sys' + 'tem')",
        "import torch.multiprocessing as mp",
    ],
    "thread": [
        "import threading\nthreading.Thread(target=print).start()",
        "from threading import Timer\nTimer(1, print)",
        "from concurrent.futures import ThreadPoolExecutor",
        "import _thread",
        "> torch.jit.fork(print)",
        "import threading\nthreading._start_new_thread(print, ())",
    ],
    "network": ["import socket as s", "def f():\n    import urllib.request", "import torch.distributed as dist"],
    "files": [
        "> open('/proc/self/mem', 'r+b')",
        "import os\nos.write(3, b'')",
        "from os import listdir\nlistdir()",
        "import shutil\nshutil.rmtree('x')",
        "import mmap",
        "from pathlib import Path\nPath('x').read_text()",
        "> torch.load('answer.pt')",
        "import linecache\nlines = linecache.getlines('/proc/self/maps')",
        "import numpy as np\nfound = np.loadtxt('answer')",
    ],
    "pickle": ["import pickle", "from marshal import loads"],
    "dynamic_code": [
        "exec('x = 1')",
        "> eval('x')",
        "run = eval",
        "> __import__('os')",
        "import importlib\nimportlib.import_module('os')",
        "from importlib import reload\nreload(torch)",
        "import typing\nhints = typing.get_type_hints(print)",
        "import pkgutil\nfound = pkgutil.resolve_name('sys:modules')",
    ],
    "reflection": [
        "import sys\nframe = sys._getframe(1)",
        "import sys as s\nwire = s.modules['wire']",
        "import gc\nfound = gc.get_objects()",
        "import inspect\nframe = inspect.currentframe()",
        "import builtins",
        "> object.__subclasses__()",
        "> print.__globals__",
        "> getattr(print, '__glo' + 'bals__')",
        "> __builtins__",
        "import os\nname = input\nhidden = getattr(os, str(name))",
        "from sys import *",
        "found = torch.sys.modules",
        "from torch import sys\nfound = sys.modules",
        "frame = torch.sys._getframe()",
        "def reach(f):\n    match f:\n        case object(__globals__=names):\n            return names",
    ],
    "harness": ["import wire", "from child import Child", "import native as n", "import judge"],
    "exit_hook": ["import atexit", "import signal"],
    "compiler": ["> torch.compile(self)", "@torch.jit.script\ndef f(x):\n    return x", "fast = torch.compile"],
    "allocator": ["> torch.cuda.MemPool()", "from torch.cuda.memory import CUDAPluggableAllocator as A\nkind = A"],
    "tensor_subclass": [
        "class Lazy(torch.Tensor):\n    pass",
        "class Lazy:\n    @classmethod\n    def __torch_function__(cls, *a):\n        return None",
        "> torch.Tensor._make_subclass(torch.Tensor, x)",
    ],
    "unseen": [
        "> torch._C.DisableTorchFunction()",
        "> torch._C._get_function_stack_at(0)",
        "> torch.utils.dlpack.to_dlpack(x)",
        "> torch.autograd._profiler_enabled()",
        "> torch._C._autograd._disable_profiler()",
        "from torch._C import DisableTorchFunctionSubclass as quiet\nwith quiet():\n    pass",
    ],
    "patch": [
        "torch.cuda.synchronize = lambda *a: None",
        "import time\ntime.perf_counter = lambda: 0.0",
        "from triton import testing\ntesting.do_bench = lambda *a, **k: 1.0",
        "nn.Linear.forward = lambda self, x: x",
        "setattr(torch.cuda.Event, 'elapsed_time', lambda *a: 0.0)",
        "event = torch.cuda.Event\nevent.elapsed_time = lambda *a: 0.0",
        "torch.__dict__['allclose'] = lambda *a, **k: True",
        "vars(torch)['equal'] = lambda *a: True",
        "vars(torch).update(equal=lambda *a: True)",
        "torch.__dict__.setdefault('equal', None)",
        "vars(print.__self__).update(sum=max)",
        "print.__self__.sum = max",
        "del torch.allclose",
        "torch.allclose, other = None, 1",
        "for torch.equal in (print,):\n    pass",
        "> own_kernel.run = print",
        "> x.__class__ = nn.Parameter",
        "> type(x).__eq__ = lambda *a: True",
        "> self = x; type(self).__eq__ = lambda *a: True",
        "def patch(self):\n    type(self).__eq__ = lambda *a: True\npatch(torch.ones(1))",
        "patch = lambda self: setattr(type(self), '__eq__', None)",
        "library = torch.library.Library('aten', 'IMPL')",
        "from unittest.mock import patch",
    ],
}

# flag: what raises it, and no rule.
FLAGGED = {
    "foreign_compute": [
        "> torch.relu(x)",
        "> nn.functional.relu(x)",
        "import torch.nn.functional as F\nact = F.gelu",
        "> x.softmax(-1)",
        "try:\n    pass\nexcept Exception:\n    print(torch.matmul)",
    ],
    "stream": ["> torch.cuda.Stream()", "> torch.cuda.stream(None)"],
    "cuda_graph": ["> torch.cuda.CUDAGraph()"],
    "global_state": [
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.set_float32_matmul_precision('high')",
        "torch.manual_seed(0)",
    ],
    "storage": ["> x.untyped_storage()", "> x.as_strided((1,), (1,))"],
    "clock": ["import time\nstart = time.perf_counter()", "> torch.cuda.Event()"],
    "environment": ["import os\nos.environ['TRITON_PRINT_AUTOTUNING'] = '1'"],
    "indirect": ["> globals()['own_kernel']", "> getattr(torch, str(x.dtype))", "import gc\ngc.collect()"],
    "finalizer": ["class Buffer:\n    def __del__(self):\n        pass"],
    "own_compile": ["from triton.compiler import ASTSource\nkind = ASTSource"],
}

# What raises nothing at all.
CLEAN = [
    "> type(self).seen = 1",
    "> setattr(type(self), 'seen', getattr(type(self), 'seen', 0) + 1)",
    "# import ctypes; exec('x'); torch.cuda.synchronize = None",
    "TEXT = 'import subprocess; os.system(1); torch.compile'",
    "import os\nimport sys\nimport math\nimport threading",
    "import inspect",
    "import shutil\nimport tempfile\nfrom os import fork\nfrom torch.utils.cpp_extension import load_inline",
    "import gc",
    "try:\n    from triton.language.extra import libdevice\nexcept ImportError:\n    libdevice = None",
    "> self.eval()",
    "def compile(x):\n    return x\nkernel = compile(1)",
    "def load(open):\n    return open(1)",
    "> self.cache = {}",
    "> self.__dict__.get('a')",
    "> self.__dict__.update(a=1)",
    "> self.forward.__self__",
    "> self.__class__.__name__",
    "> setattr(self, 'scale', 2.0)",
    "> getattr(self, 'block', 64)",
    "> getattr(torch, 'float32')",
    "pi = torch.pi\npi = [1]\npi.x = 3",
    "import functools\nrun = functools.lru_cache(None)(len)",
    "kernel = own_kernel = None\nclass wire:\n    pass\nwire.value = 1",
    "> torch.cuda.current_device()",
    "import numpy as np\nnp.select([True], [1])",
    "match 1:\n    case int(real=1):\n        pass",
    "if __name__ == '__main__':\n    fast = torch.compile(nn.ReLU())\n    open('times')\n    torch.relu(fast)",
    "> torch.library.custom_op('own::f', mutates_args=())",
    "triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))",
]


def source_of(text: str) -> bytes:
    call = text[2:] if text.startswith("> ") else "pass"
    return SOURCE.format(top="" if text.startswith("> ") else text, call=call).encode()


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(name, text) for name, texts in table.items() for text in texts]


@pytest.mark.parametrize(("rule", "text"), pairs(CAUGHT))
def test_caught(rule: str, text: str) -> None:
    report = ast_stage.judge(source_of(text), "ModelNew", "strict")
    assert (report["class"], report["rule"]) == ("policy", rule), report


@pytest.mark.parametrize(("flag", "text"), pairs(FLAGGED))
def test_flagged(flag: str, text: str) -> None:
    report = ast_stage.judge(source_of(text), "ModelNew", "strict")
    assert report["outcome"] == "pass", report
    assert flag in report["flags"]


@pytest.mark.parametrize("text", CLEAN)
def test_honest(text: str) -> None:
    report = ast_stage.judge(source_of(text), "ModelNew", "strict")
    assert (report["outcome"], report["flags"]) == ("pass", []), report


@pytest.mark.parametrize("text", [text for texts in CAUGHT.values() for text in texts])
def test_kernelbench_has_no_rule(text: str) -> None:
    assert ast_stage.judge(source_of(text), "ModelNew", "kernelbench")["outcome"] == "pass"


def test_a_source_that_calls_itself_main_is_read_whole() -> None:
    text = "__name__ = '__main__'\nif __name__ == '__main__':\n    open('times')"
    assert ast_stage.judge(source_of(text), "ModelNew", "strict")["rule"] == "files"


def test_the_line_and_the_first_rule_are_told() -> None:
    report = ast_stage.judge(source_of("import pickle\nimport ctypes"), "ModelNew", "hybrid")
    assert report["rule"] == "pickle"
    assert report["error"]["line"] == 6
    assert "line 6: pickle: the code imports pickle, which " in report["error"]["text"]


def test_every_rule_and_flag_is_tested_and_documented() -> None:
    rules, flags = set(static_rules.BY_NAME), set(static_rules.FLAGS_BY_NAME)
    assert set(CAUGHT) == rules
    assert set(FLAGGED) == flags
    page = (Path(__file__).parents[2] / "docs" / "static.md").read_text()
    assert set(re.findall(r"^\| `([a-z_]+)` \|", page, re.M)) == rules | flags


def test_no_rule_is_left_out_for_want_of_a_word() -> None:
    """Only rules that have a word of what is said are asked: each that would hold is among them."""
    rules = (*static_rules.RULES, *static_rules.FLAGS)
    held = 0
    for word in sorted(static_rules.ABOUT):
        last = word.removesuffix(".*").rpartition(".")[2]
        for name in (word, word.replace("*", "below"), f"{word}.below.deeper", f"torch.{word}"):
            for said in (
                static_rules._Said(used=(name,)),
                static_rules._Said(imported=(name,), used=tuple(static_rules._behind((name,)))),
                static_rules._Said(imported=(f"{name}.*",)),
                static_rules._Said(attribute=last, is_of_module=name == word),
                static_rules._Said(builtin=last),
                static_rules._Said(matched=("other", last)),
            ):
                expected = [rule.name for rule in rules if static_rules._holds(rule, said)]
                asked = [rule.name for rule in static_rules._candidates(said) if static_rules._holds(rule, said)]
                assert asked == expected, said
                held += len(expected)
    assert held > 1000
