"""On which device an output lies, where there is no GPU that would show it: the plan says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rig
import torch
import tracing

from executor.replay import on_host  # isort: skip
from oracle import judge, reference  # isort: skip
from shared import plan, values  # isort: skip


@pytest.mark.parametrize(
    ("answers", "is_there"),
    [
        ("y", False),
        ("y.to('cpu')", True),
        ("y.cpu().view(-1)[1:]", True),
        ("y.cpu().cuda()", False),
        ("y * torch.tensor(2.0)", False),
        ("torch.zeros(3)", True),
        ("torch.zeros(3, device=x.device)", False),
        ("torch.tensor([1.0, 2.0]).to(x.device)", False),
    ],
)
def test_a_plan_says_where_its_outputs_lie(answers: str, is_there: bool) -> None:
    source = tracing.HEAD + "\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        y = x + 1\n"
    own = tracing.case([torch.ones(3)])
    (trace,) = plan.parse(tracing.traced(f"{source}        return {answers}\n", {"own": own}).plan).traces
    (output,) = plan.tree_leaves(trace.output)
    assert (output.id in on_host(trace)) == is_there


def test_an_output_on_the_host_is_refused(tmp_path: Path) -> None:
    """Where it was copied into the arena it looked like any other, and KernelBench's allclose raises for it."""
    source = rig.HONEST.replace("return y", "return y.to('cpu')")
    with rig.Rig(tmp_path) as found:
        one = found.child()
        spec = found.register(one, rig.TASK)
        for text, class_ in ((rig.HONEST, None), (source, "dtype")):
            reports = found.judge(one, spec, rig.TASK, text, images=tracing.images(text, spec))
            last: dict[str, Any] = list(reports.values())[-1]
            assert last["class"] == class_, reports
    assert "output 0 is a tensor of the CPU" in last["error"]["text"]


@pytest.mark.parametrize("is_there", [False, True])
def test_the_reference_may_answer_on_the_host(is_there: bool) -> None:
    own = torch.ones(3)
    expected = reference.Expected([own], [own], ["0"], "own", [0.0], False, [own], None, on_host=(is_there,))
    result = judge.CaseResult("original")
    answer = [("0", values.marked(own.clone(), frozenset({values.ON_HOST})))]
    assert judge._check_form(answer, expected, result, dtypes=False) == is_there
