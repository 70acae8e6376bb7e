"""Honest candidates from their text to an answer without a GPU: traced, compiled, and run by the interpreter."""

from __future__ import annotations

import json
from typing import Any

import compiler
import pytest
import torch
import tracing
from shared import plan
from test_interpreter import ROOT, run

CASES: dict[str, tuple[list[Any], list[tuple[int, ...]]]] = {
    "argmax/honest": ([], [(5, 70)]),
    "attention/honest": ([32], [(1, 2, 20, 32)] * 3),
    "layer_norm/honest": ([64], [(2, 3, 64)]),
    "layer_norm_backward/honest_autograd": ([], [(5, 70), (5, 70), (70,)]),
    "linear_relu/honest_autotuned": ([40, 24], [(20, 40)]),
    "moments/honest": ([], [(5, 70)]),
    "relu/honest_inductor_decorator": ([], [(8, 100)]),
    "rms_norm/honest": ([100], [(4, 100)]),
    "rotate_halves/honest": ([], [(4, 16), (4, 8)]),
    "softmax/honest": ([], [(8, 100)]),
    "softmax/honest_constexpr_function": ([], [(8, 100)]),
    "softmax/honest_heuristics": ([], [(8, 100)]),
    "tied_mlp/honest": ([32], [(6, 32)]),
}
"""By candidate: the constructor's arguments and the shapes of the inputs."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    folder = tmp_path_factory.mktemp("plans")
    cases = []
    for name, (init, shapes) in CASES.items():
        task, candidate = name.split("/")
        path = ROOT / "tests" / "candidates" / task / f"{candidate}.py"
        source = path.read_bytes()
        found = tracing.traced(source, {"own": tracing.case([torch.empty(shape) for shape in shapes], init)})
        assert found.plan is not None, (name, found.refusals)
        images = compiler.build(source, plan.parse(found.plan), 2)
        assert images.failure is None, (name, images.failure)
        written = folder / f"{task}-{candidate}.json"
        written.write_bytes(found.plan)
        cases.append(
            {
                "name": name,
                "task": str(ROOT / "tests" / "tasks" / f"{task}.py"),
                "candidate": str(path),
                "plan": str(written),
                "lost": [index for index, image in enumerate(images.images) if image is None],
                "init": init,
                "shapes": shapes,
            }
        )
    (folder / "cases.json").write_text(json.dumps(cases))
    (answered,) = run("interpreted_candidates.py", str(folder), cwd=folder)
    assert isinstance(answered, dict)
    return answered


@pytest.mark.parametrize("name", CASES)
def test_an_honest_candidate_is_right_by_its_plan(name: str, answers: dict[str, str | None]) -> None:
    assert answers[name] is None, answers[name]
