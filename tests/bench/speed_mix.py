"""What speed.py has judged under load: tasks of KernelBench's sizes, and a realistic mix of answers to each.

Twenty answers make two groups of ten: 6 fail in `ast`, 5 in `compile`, 3 are wrong, 6 are right. Each is an honest
kernel of the corpus with one thing changed, and a comment in its kernel that no other has, so that neither a verdict
nor a compiled kernel is known of any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import corpus

KERNEL = re.compile(r"@triton\.jit\ndef (\w+)\(.*?\):\n", re.DOTALL)


@dataclass(frozen=True)
class Bench:
    """A task, and how its honest kernel is spoilt."""

    task: str
    sizes: tuple[tuple[str, str], ...]
    """On a GPU: constants of the reference's source, and what they become."""
    wrong: tuple[str, str]
    """Makes it wrong at any size."""
    limit: tuple[str, str]
    """Makes it wrong where only a large input has anything."""
    needs_gpu: bool = False


BENCHES = (
    Bench(
        "relu",
        (("ROWS = 48", "ROWS = 8192"), ("COLUMNS = 1000", "COLUMNS = 16384")),
        ("tl.where(x < 0, 0.0, x)", "tl.where(x < 0, 0.01 * x, x)"),
        ("tl.where(x < 0, 0.0, x)", "tl.where((x < 0) & (offsets < 40000), 0.0, x)"),
    ),
    Bench(
        "softmax",
        (("batch_size = 32", "batch_size = 8192"), ("dim = 1024", "dim = 8192")),
        ("e / tl.sum(e, axis=0)", "e"),
        ("e / tl.sum(e, axis=0)", "tl.where(row < 16, e / tl.sum(e, axis=0), e)"),
    ),
    Bench(
        "rms_norm",
        (("batch_size = 64", "batch_size = 8192"), ("features = 16 * 48", "features = 8192")),
        ("x / rms", "x / (rms + 0.1)"),
        ("x / rms", "tl.where(offsets < 600, x / rms, x)"),
    ),
    Bench(
        "layer_norm",
        (("batch_size, tokens = 4, 9", "batch_size, tokens = 16, 512"), ("features = 770", "features = 8192")),
        ("centred * scale * w + b", "centred * scale * w"),
        ("centred * scale * w + b", "tl.where(offsets < 600, centred * scale * w + b, b)"),
    ),
    Bench(
        "gemm_scale_leaky_relu",
        (),
        ("x * slope", "x * slope * slope"),
        ("tl.where(x > 0, x, x * slope)", "tl.where((x > 0) | (offsets >= 40000), x, x * slope)"),
        needs_gpu=True,
    ),
)

AST, COMPILE, TINY, FULL, RIGHT = "ast", "compile", "tiny", "full", "right"
EXPECTED = {
    AST: {"syntax", "form"},
    COMPILE: {"compile", "import"},
    TINY: {"mismatch", "nonfinite"},
    FULL: {"mismatch", "nonfinite"},
    RIGHT: {"ok"},
}
"""The classes that an answer may get, by the stage where it is to fail."""

GROUPS = (
    (AST, COMPILE, RIGHT, AST, COMPILE, RIGHT, AST, TINY, RIGHT, COMPILE),
    (RIGHT, AST, FULL, RIGHT, COMPILE, AST, TINY, RIGHT, AST, COMPILE),
)


@dataclass(frozen=True)
class Answer:
    """One candidate, and where it fails."""

    fails_at: str
    source: str


def _once(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ValueError(f"{old!r} stands {text.count(old)} times in the source, not once")
    return text.replace(old, new)


def into_kernel(text: str, line: str) -> str:
    found = KERNEL.search(text)
    if found is None:
        raise ValueError("no @triton.jit function in the candidate")
    return f"{text[: found.end()]}    {line}\n{text[found.end() :]}"


class Mix:
    """A task with its answers, each of which is new."""

    def __init__(self, bench: Bench, run: str, on_gpu: bool) -> None:
        """run: what tells this run's sources from all others'."""
        task = corpus.load_task(corpus.HERE / "tasks" / f"{bench.task}.py")
        honest = corpus.load_candidate(corpus.HERE / "candidates" / bench.task / "honest.py")
        self.bench, self.policy, self.run = bench, honest.policy, run
        self.honest = honest.text
        self.registration = task.registration()
        self._numbers = count()
        if on_gpu:
            source = task.source
            for old, new in bench.sizes:
                source = _once(source, old, new)
            self.registration = {**self.registration, "name": f"{bench.task}_bench", "reference": source}

    def answer(self, fails_at: str) -> Answer:
        """One that ends as said: the next way to fail there, in turn."""
        number = next(self._numbers)
        source = into_kernel(self._spoilt(fails_at, number), f"# run {self.run}.{number}")
        return Answer(fails_at, source)

    def _spoilt(self, fails_at: str, number: int) -> str:
        text = self.honest
        if fails_at == AST:
            ways = (
                _once(text, "class ModelNew(nn.Module):", "class ModelNew(nn.Module)"),
                _once(text, "class ModelNew(nn.Module):", "class Model2(nn.Module):"),
                _once(text, "import torch\n", "import torch as\n"),
            )
            return ways[number % len(ways)]
        if fails_at == COMPILE:
            ways = (
                into_kernel(text, "unknown = tl.no_such_function(0)"),
                into_kernel(text, "unknown = no_such_name + 1"),
                _once(text, "import torch\n", "import no_such_module\nimport torch\n"),
            )
            return ways[number % len(ways)]
        if fails_at == TINY:
            return _once(text, *self.bench.wrong)
        return _once(text, *self.bench.limit) if fails_at == FULL else text

    def groups(self) -> Iterator[list[Answer]]:
        """Groups of ten without end."""
        for number in count():
            yield [self.answer(fails_at) for fails_at in GROUPS[number % len(GROUPS)]]
