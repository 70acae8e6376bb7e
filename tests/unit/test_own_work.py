"""What calls without the candidate's kernels say of a plan, and that they leave nothing: from a text to a class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rig
import tracing

Judge = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """The reports of a candidate's plan, by its task."""
    with rig.Rig(tmp_path_factory.mktemp("own_work")) as found:

        def judge(task: str, source: str) -> dict[str, Any]:
            reference = found.child()
            spec = found.register(reference, task)
            assert "refused" not in spec, spec
            source = tracing.HEAD + source
            return found.judge(reference, spec, task, source, images=tracing.images(source, spec))

        yield judge


def told(reports: dict[str, Any]) -> tuple[str | None, str | None]:
    """Class and rule of the last report; two times None where all passed."""
    last = list(reports.values())[-1]
    assert last["outcome"] in ("pass", "fail"), reports
    return last["class"], last["rule"]


def task(forward: str, inputs: str) -> str:
    return (
        f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x, *more):\n        {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )


STEPS_DOWN = task("return x.sub_(0.1 * more[0]) * 1.0", "torch.randn(4, 300), torch.randn(4, 300)")
COPIES_BACK = """
@triton.jit
def step(P, G, N, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = i < n
    tl.store(N + i, tl.load(P + i, mask=k) - 0.1 * tl.load(G + i, mask=k), mask=k)

class ModelNew(nn.Module):
    def forward(self, x, g):
        new = torch.empty_like(x)
        step[(triton.cdiv(x.numel(), 1024),)](x, g, new, x.numel(), BLOCK=1024)
        x.copy_(new)
        return new
"""


def test_inputs_that_a_call_without_kernels_overwrote_are_there_again_for_the_next(judge: Judge) -> None:
    """Without them x.copy_(new) copies what nothing wrote: the first answer was wrong, the second right."""
    assert told(judge(STEPS_DOWN, COPIES_BACK)) == (None, None)


RELU = """
@triton.jit
def relu(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.maximum(tl.load(X + i, mask=i < n), 0.0), mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = MADE
        spare = torch.empty_like(y)
        relu[(triton.cdiv(y.numel(), 1024),)](FROM, TO, y.numel(), BLOCK=1024)
        return y
"""


def relu(made: str, source: str, target: str) -> str:
    """A candidate that answers with what is made so, and whose kernel reads and writes these."""
    return RELU.replace("MADE", made).replace("FROM", source).replace("TO", target)


POSITIVE = task("return torch.relu(x)", "torch.rand(4, 300)")
NEGATIVE = task("return torch.relu(-x.abs())", "torch.randn(4, 300)")
TURNED = task("return x.t().contiguous() * 1.0", "torch.randn(4, 300)")
IDLE = ("hack", "idle_kernels")


@pytest.mark.parametrize(
    ("task", "candidate", "wanted"),
    [
        (POSITIVE, relu("x.clone()", "y", "y"), (None, None)),
        (POSITIVE, relu("x.clone()", "x", "spare"), IDLE),  # and wrong where there is something below 0
        (TURNED, relu("x.t().contiguous()", "x", "spare"), IDLE),
        (NEGATIVE, relu("torch.zeros_like(x)", "y", "y"), (None, None)),  # whatever is computed, it is 0
        (POSITIVE, relu("torch.zeros_like(x)", "x", "spare"), ("mismatch", None)),
    ],
    ids=["in place on a copy", "a copy", "a transposition", "a constant", "wrong"],
)
def test_kernels_are_idle_that_no_case_needs(
    judge: Judge, task: str, candidate: str, wanted: tuple[str | None, str | None]
) -> None:
    """The original inputs alone decided, and on those of torch.rand() relu changes nothing."""
    assert told(judge(task, candidate)) == wanted


REFLECTS = task("return torch.nn.functional.pad(x, (2, 2), mode='reflect').relu()", "torch.randn(2, 4, 50)")
REPEATS = task("return torch.nn.functional.pad(x, (1, 2, 3, 0), mode='replicate').relu()", "torch.randn(2, 4, 50)")
ROWS = "torch.randn(9, 30), torch.randint(0, 9, (40,))"
LOOKS_UP = task("return torch.nn.functional.embedding(more[0], x)", ROWS)
LOOKS_UP_AND_MORE = task("return torch.nn.functional.embedding(more[0], x).relu()", ROWS)
LOOK_UP = "nn.functional.embedding(more[0], x)"


@pytest.mark.parametrize(
    ("task", "candidate", "wanted"),
    [
        (REFLECTS, relu("nn.functional.pad(x, (2, 2), mode='reflect')", "y", "y"), (None, None)),
        (REPEATS, relu("nn.functional.pad(x, (1, 2, 3, 0), mode='replicate')", "y", "y"), (None, None)),
        (LOOKS_UP_AND_MORE, relu(LOOK_UP, "y", "y"), (None, None)),
        (LOOKS_UP, relu(LOOK_UP, "y", "spare"), IDLE),
    ],
    ids=["reflection", "replication", "embedding", "embedding alone"],
)
def test_who_pads_or_looks_up_copies(judge: Judge, task: str, candidate: str, wanted: tuple[str | None, ...]) -> None:
    """As a gather does; the candidate's own kernels are to matter all the same."""
    assert told(judge(task, candidate.replace("self, x", "self, x, *more"))) == wanted
