"""Honest candidates by their plans, on CPU tensors, held against their tasks (test_plans_of_candidates.py starts this).

    TRITON_INTERPRET=1 python interpreted_candidates.py FOLDER

FOLDER/cases.json has a list of {name, task, candidate, plan, lost, init, shapes}. Prints {name: null or error}.
"""

from __future__ import annotations

import json
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import torch
from compiler.extract import Functions, Source
from executor.interpreter import Model
from shared import operators, plan

SEED = 3


def reference(path: str) -> types.ModuleType:
    module = types.ModuleType("task")
    exec(compile(Path(path).read_text(), path, "exec", dont_inherit=True), module.__dict__)
    return module


def close(wanted: Any, got: Any) -> None:
    assert type(wanted) is type(got) or isinstance(wanted, torch.Tensor), f"{type(got)} for {type(wanted)}"
    if isinstance(wanted, dict):
        assert wanted.keys() == got.keys()
        wanted, got = list(wanted.values()), list(got.values())
    if isinstance(wanted, list | tuple):
        for one, other in zip(wanted, got, strict=True):
            close(one, other)
    else:
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)


def judge(case: dict[str, Any]) -> None:
    document = plan.parse(Path(case["plan"]).read_bytes())
    functions = Functions(Source(Path(case["candidate"]).read_bytes()), document.functions)
    trace = document.trace("own")
    model = Model(
        trace,
        functions,
        document.kernels,
        allows=lambda call: operators.kind_of(call) in ("movement", "library"),
        lost=frozenset(case["lost"]),
    )
    task = reference(case["task"])
    for seed in (SEED, SEED + 1):
        torch.manual_seed(seed)
        right = task.Model(*case["init"])
        model.construct(SEED)
        names = {name.removeprefix(plan.BUFFER) for name, _ in trace.parameters}
        loaded = model.load(right.state_dict()) if seed != SEED else names
        assert loaded == names == set(right.state_dict()), f"{loaded} of {set(right.state_dict())}"
        inputs = [torch.randn(shape) for shape in case["shapes"]]
        with torch.no_grad():
            close(right(*[value.clone() for value in inputs]), model.call(inputs))


def main() -> int:
    found: dict[str, str | None] = {}
    for case in json.loads(Path(sys.argv[1], "cases.json").read_text()):
        try:
            judge(case)
            found[case["name"]] = None
        except Exception:
            found[case["name"]] = traceback.format_exc()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
