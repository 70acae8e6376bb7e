"""The referee and its children, without a daemon: honest kernels pass, others get their own class."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import referee
import torch
from live.child import Child
from oracle import clock, reference, timing, variations
from oracle.judge import Report
from oracle.peer import Peer, is_over
from rig import HONEST, TASK, Rig, policy
from shared import native


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("rig")) as found:
        yield found


@pytest.fixture(scope="module")
def task(rig: Rig) -> tuple[str, dict[str, object]]:
    child = rig.child()
    spec = rig.register(child, TASK)
    assert "refused" not in spec, spec
    return child, spec


def judge(
    rig: Rig, task: tuple[str, dict[str, object]], source: str, **options: object
) -> dict[str, dict[str, object]]:
    child, spec = task
    return rig.judge(child, spec, TASK, source, **options)  # type: ignore[arg-type]


def test_honest_kernel_passes_every_case(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    source = HONEST.replace("torch.rand(n)", "torch.zeros(n)")
    found = judge(rig, task, source)
    assert found["full"]["outcome"] == "pass", found
    detail = found["full"]["detail"]
    assert isinstance(detail, dict)
    names = [case["name"] for case in detail["cases"]]
    assert names[:3] == ["original", "signs", "spikes"] and names[4:] == ["scaled"]
    weights, _, secret = names[3].partition(", ")
    assert weights == "other weights" and secret in variations.SECRET
    assert {case["against"] for case in detail["cases"]} == {"fp64"}


def test_what_a_call_raises_is_looked_at_with_care(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    """An exception may run the candidate's code when it is looked at: here one that ends the process."""
    raising = (
        "def end(e): raise SystemExit(3)\n"
        "        kind = type('Kind', (type,), {'__name__': property(end)})\n"
        "        raise kind('Own', (Exception,), {'__traceback__': property(end)})"
    )
    report = judge(rig, task, HONEST.replace("return y", raising))["tiny"]
    assert (report["outcome"], report["class"]) == ("fail", "crash"), report


@pytest.mark.parametrize(
    ("change", "stage", "class_"),
    [
        (("return y", "return y[:, :-1]"), "tiny", "shape"),
        (("return y", "return y, y"), "tiny", "shape"),
        (("return y", "return None"), "tiny", "shape"),
        (("return y", "return y.double()"), "tiny", "dtype"),
        (("return y", "return y / 0"), "tiny", "nonfinite"),
        (("return y", "return y * 1.01"), "tiny", "mismatch"),
        (("return y", "x.zero_(); return y"), "tiny", "mutated_input"),
        (("return y", "x.copy_(y); return x"), "tiny", "mutated_input"),
        (("return y", "raise ValueError('no')"), "tiny", "launch"),
        (("return y", "os._exit(0)"), "tiny", "crash"),
        (("return y", "os.kill(os.getpid(), 9)"), "tiny", "crash"),
        (("return y", "return torch.empty(1 << 60)"), "tiny", "oom"),
        (("return y", "return y if self.calls < 2 else y.flip(0)"), "full", "nondeterministic"),
        (("return y", "return y + torch.rand_like(y)"), "full", "mismatch"),
        (("import os,", "raise ImportError('gone')\nimport os,"), "open", "import"),
        (("import os,", "import os; os._exit(0)\nimport os,"), "open", "crash"),
        (("super().__init__()", "raise TypeError('no')"), "tiny", "import"),
        (("x, self.weight, y", "x, torch.ones_like(self.weight), y"), "tiny", "mismatch"),
    ],
)
def test_each_failure_has_its_class(
    rig: Rig, task: tuple[str, dict[str, object]], change: tuple[str, str], stage: str, class_: str
) -> None:
    assert change[0] in HONEST
    found = judge(rig, task, HONEST.replace(*change, 1))
    last = list(found)[-1]
    report = found[last]
    assert (report["class"], report["outcome"]) == (class_, "fail"), found
    assert last == stage or class_ in ("mismatch", "nondeterministic"), found
    assert report["error"]


def test_first_mismatch_is_named(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    found = judge(rig, task, HONEST.replace("return y", "y.view(-1)[7] += 1; return y"))
    detail = found["tiny"]["detail"]
    assert isinstance(detail, dict)
    first = detail["first_mismatch"]
    assert first["index"] == [0, 7] and first["differing"] == 1 and first["of"] == 12000
    assert first["got"] == pytest.approx(first["expected"] + 1)


def test_endless_call_ends_at_its_limit(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    found = judge(rig, task, HONEST.replace("return y", "while True: pass"), limit_ms=500)
    assert found["tiny"]["class"] == "timeout"
    assert judge(rig, task, HONEST)["full"]["outcome"] == "pass"


def test_fixed_shape_kernel_is_judged_at_its_own_shape(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    found = judge(rig, task, HONEST.replace("return y", "assert x.shape[0] == 40; return y"))
    assert found["tiny"]["outcome"] == "pass" and "launch" in str(found["tiny"]["generality"])
    assert found["full"]["outcome"] == "pass"


def judged_at_other_sizes(rig: Rig, task: tuple[str, dict[str, Any]], source: str, **options: Any) -> dict[str, Any]:
    """As verifierd has it done under `shapes: require`: what was found for the task is judged as if it was dynamic."""
    child, spec = task
    wide = {**spec, "dynamic_shapes": True, "cases": {**spec["cases"], "shapes": spec["cases"]["other"]}}
    return rig.judge(child, wide, TASK, source, rules=policy(variations={"count": 8, "value": True}), **options)


@pytest.fixture
def fresh(rig: Rig) -> tuple[str, dict[str, Any]]:
    """A reference of its own: it has room for other sizes from the first job on."""
    child = rig.child()
    return child, rig.register(child, TASK)


def test_an_honest_kernel_is_right_at_other_sizes_and_in_half_precision(
    rig: Rig, fresh: tuple[str, dict[str, Any]]
) -> None:
    full = judged_at_other_sizes(rig, fresh, HONEST)["full"]
    assert full["outcome"] == "pass", full
    names = [case["name"] for case in full["detail"]["cases"]]
    assert len(names) == 8 and "dtype float16" in names and "shape x2, scaled" in names
    assert any(name.startswith(("shape x0.75", "shape x1.25")) for name in names)


@pytest.mark.parametrize(
    ("change", "case", "class_"),
    [
        ("assert x.shape[-1] <= 300; return y", "shape", "launch"),
        ("return y if x.shape[-1] <= 300 else y * 1.5", "shape x2, scaled", "mismatch"),
        ("return y if x.dtype == torch.float32 else y * 1.5", "dtype float16", "mismatch"),
        ("return y.float()", "dtype float16", "dtype"),
    ],
)
def test_a_kernel_for_one_size_or_one_dtype_is_found_out(
    rig: Rig, fresh: tuple[str, dict[str, Any]], change: str, case: str, class_: str
) -> None:
    found = judged_at_other_sizes(rig, fresh, HONEST.replace("return y", change))
    assert found["tiny"]["outcome"] == "pass" and found["full"]["outcome"] == "fail", found
    assert found["full"]["class"] == class_
    failed = [item["name"] for item in found["full"]["detail"]["cases"] if item["outcome"] == "fail"]
    assert failed and any(name.startswith(case) for name in failed)
    assert all(name.startswith(("shape", "dtype")) for name in failed)


def test_a_kernel_that_is_right_in_its_own_range_alone_is_found_by_doubled_values(
    rig: Rig, task: tuple[str, dict[str, object]]
) -> None:
    """It cuts off what the task's inputs, signs and permutations never reach, and spikes are beyond by far."""
    source = HONEST.replace("return y", "return torch.where((x > 5.5) & (x < 12), y * 0.5, y)")
    rules = policy(foreign="any")
    child, spec = task
    found = rig.judge(child, spec, TASK, source, rules=rules, seed=5)
    failed = [item["name"] for item in found["full"]["detail"]["cases"] if item["outcome"] == "fail"]
    assert found["full"]["class"] == "mismatch" and "scaled" in failed, found


def test_a_group_asks_for_the_right_answers_once(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    """All cases here are small. Whoever comes with another seed is asked other questions."""

    def recalled(source: str, seed: int) -> list[int]:
        found = judge(rig, task, source, seed=seed)
        outcomes.append([(stage, report["outcome"], report["class"]) for stage, report in found.items()])
        return [report["detail"]["recalled"] for stage, report in found.items() if stage != "open"]  # type: ignore[index]

    outcomes: list[list[tuple[str, object, object]]] = []
    wrong = HONEST.replace("0.0)", "0.125)")
    first, *others = [recalled(source, 77) for source in (HONEST, HONEST, wrong)]
    assert first[0] == 0, "nobody had asked before"
    tiny, full = others[0]
    assert tiny == 1 + len(variations.SECRET) - 6 + 1 and full >= 4  # all, less six that are not fit here, and NaN
    assert others[1] == [1]
    assert recalled(HONEST, 78)[0] == 0
    assert outcomes[0] == outcomes[1] == outcomes[3] and outcomes[2][-1] == ("tiny", "fail", "mismatch")


def test_a_group_asks_for_large_answers_once(rig: Rig) -> None:
    """Who is alone or has another seed asks itself."""
    source, honest = TASK.replace("N = 300", "N = 3000"), HONEST.replace("256", "4096")
    wrong = honest.replace("return y", "return y * 1.01 if x.numel() > 100_000 else y")
    child = rig.child()
    spec = rig.register(child, source)

    def full(candidate: str, seed: int, *, grouped: bool = False) -> tuple[Any, Any]:
        found = rig.judge(child, spec, source, candidate, seed=seed, grouped=grouped)
        assert found["open"]["outcome"] == found["tiny"]["outcome"] == "pass", found
        report, detail = found["full"], found["full"]["detail"]
        cases = [(case["name"], case["against"], case["class"]) for case in detail["cases"]]
        return (report["outcome"], report["class"], detail["recalled"]), cases

    alone, first, second = (full(honest, 7, grouped=grouped) for grouped in (False, True, True))
    assert (alone[0], first[0], second[0]) == (("pass", None, 0), ("pass", None, 0), ("pass", None, 5))
    assert alone[1] == first[1] == second[1]
    assert full(wrong, 7, grouped=True)[0] == ("fail", "mismatch", 5)
    assert full(honest, 8, grouped=True)[0] == ("pass", None, 0)
    assert full(honest, 7)[0] == ("pass", None, 0)


def test_kernelbench_policy_has_five_seeds(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    found = judge(rig, task, HONEST, rules=policy("kernelbench"))
    detail = found["full"]["detail"]
    assert isinstance(detail, dict)
    assert [case["name"] for case in detail["cases"]] == [f"seed {n}" for n in range(1, 6)]


def test_reference_that_does_not_run_is_refused_with_its_traceback(rig: Rig) -> None:
    found = rig.register(rig.child(), TASK.replace("torch.relu(x)", "torch.relu(y)"))
    error = found["refused"]
    assert "NameError" in error["text"] and "reference.py" in error["text"] and error["line"] == 9


STATELESS = TASK.replace("* self.weight", "* 1.5").replace("self.weight = torch.nn.Parameter(torch.rand(n))", "")
LAZY = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.known = {}
    def forward(self, x):
        y = torch.relu(x) * 1.5
        CHANGE
        return y
"""


@pytest.mark.parametrize(
    ("change", "case"),
    [
        ("y = y if float(x.mean()) < 500 else y * 0", "offset"),
        ("y = y if 0.1 < float(x.std()) < 50 or float(x.mean()) > 500 else y * 0", "large"),
        ("y = self.known.setdefault((x.shape, round(float(x.double().sum()), 3)), y)", "permuted|shifted"),
        ("y = torch.where(((x == x[..., :1]) & (x != 0)).all(-1, keepdim=True), y + 1, y)", "constant rows"),
    ],
)
def test_what_the_tiny_case_exposes_is_tried_at_the_own_size(rig: Rig, change: str, case: str) -> None:
    """Each of these is right on most inputs; the one secret transformation is then the one that shows it."""
    child = rig.child()
    spec = rig.register(child, STATELESS)
    found = rig.judge(child, spec, STATELESS, LAZY.replace("CHANGE", change))
    assert found["tiny"]["outcome"] == "pass" and found["tiny"]["generality"], found
    detail = found["full"]["detail"]
    failed = [item["name"] for item in detail["cases"] if item["outcome"] == "fail"]
    assert set(case.split("|")) & set(failed), detail["cases"]


def test_an_honest_answer_passes_every_secret_transformation(rig: Rig) -> None:
    child = rig.child()
    spec = rig.register(child, STATELESS)
    rules = policy(variations={"count": 13, "value": True, "shape": True, "dtype": True})
    found = rig.judge(child, spec, STATELESS, LAZY.replace("CHANGE", ""), rules=rules)
    names = [item["name"] for item in found["full"]["detail"]["cases"] if item["outcome"] == "pass"]
    # A relu of negative numbers is nothing; no integers; the one input has both signs, and many values.
    asked = set(variations.SECRET) - {"lowered", "ends", "wide", "opposed", "crossed", "filled"}
    assert len(names) == 13 and asked <= set(names), found["full"]
    assert found["tiny"]["generality"] is None


def test_a_transformation_that_leaves_the_answer_as_it_was_is_replaced(rig: Rig) -> None:
    """The sum over rows in another order is the first answer once more: whoever remembers it would pass."""
    source = STATELESS.replace("torch.relu(x) * 1.5", "x.sum(0)")
    child = rig.child()
    rules = policy(variations={"count": 14, "value": True, "shape": True, "dtype": True})
    answer = LAZY.replace("torch.relu(x) * 1.5", "x.sum(0)").replace("CHANGE", "")
    found = rig.judge(child, rig.register(child, source), source, answer, rules=rules)
    names = [item["name"] for item in found["full"]["detail"]["cases"] if item["outcome"] == "pass"]
    assert len(names) == 14 and "permuted" not in names and "shifted" in names, names


NORM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.LayerNorm(n)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(40, 300)]
def get_init_inputs():
    return [300]
"""
NORM_NEW = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.gamma, self.beta = torch.nn.Parameter(torch.ones(n)), torch.nn.Parameter(torch.zeros(n))
    def forward(self, x):
        y = torch.nn.functional.layer_norm(x, x.shape[-1:])
        return y * self.gamma + self.beta
"""


def test_parameters_that_begin_constant_are_not_left_out(rig: Rig) -> None:
    child = rig.child()
    spec = rig.register(child, NORM)
    found = rig.judge(child, spec, NORM, NORM_NEW)
    assert found["full"]["outcome"] == "pass", found
    for change in (" * self.gamma", " + self.beta"):
        found = rig.judge(child, spec, NORM, NORM_NEW.replace(change, ""))
        failed = [item["name"] for item in found["full"]["detail"]["cases"] if item["outcome"] == "fail"]
        assert len(failed) == 1 and failed[0].startswith("other weights"), found["full"]


def test_weights_that_the_reference_cannot_do_with_are_not_used(rig: Rig) -> None:
    source = NORM.replace("self.norm(x)", "self.norm(x) if float(self.norm.bias.sum()) == 0 else x / 0")
    child = rig.child()
    found = rig.judge(child, rig.register(child, source), source, NORM_NEW)
    assert found["full"]["outcome"] == "pass" and found["full"]["detail"]["passed"] == 5, found
    assert not any("weights" in item["name"] for item in found["full"]["detail"]["cases"])


BATCH = """
import torch
N = 64
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(n)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(32, N) * 3 + 1]
def get_init_inputs():
    return [N]
"""


@pytest.mark.parametrize(
    ("training", "differs"),
    [("self.norm.training", False), ("True", True), ("os._exit(0) if not self.training else True", True)],
)
def test_eval_mode_is_tried_and_told(rig: Rig, training: str, differs: bool) -> None:
    """Training mode binds, as the module is constructed; what fails in eval mode alone is told."""
    child = rig.child()
    spec = rig.register(child, BATCH)
    assert spec["has_modes"] and spec["flags"] == []
    n = "self.norm"
    call = f"torch.nn.functional.batch_norm(x, {n}.running_mean, {n}.running_var, {n}.weight, {n}.bias, {training})"
    answer = "import os\n" + BATCH.replace("Model", "ModelNew").replace("self.norm(x)", call)
    found = rig.judge(child, spec, BATCH, answer)
    assert found["full"]["outcome"] == "pass", found
    if "exit" in training:
        return  # judged again in a new process, at the own size alone
    assert ("eval mode" in str(found["tiny"]["generality"])) == differs, found["tiny"]
    assert found["tiny"]["detail"].get("flags", []) == (["eval_mode_differs"] if differs else [])


@pytest.mark.parametrize(
    ("reference", "answer", "differs"),
    [
        ("torch.relu(x) * 1.5", "torch.where(x > 0, x, 0.0) * 1.5", True),
        ("torch.relu(x) * 1.5", "torch.relu(x) * 1.5", False),
        ("torch.relu(x).nan_to_num() * 1.5", "torch.relu(x) * 1.5", False),
    ],
)
def test_inputs_with_nan_are_tried_and_told(rig: Rig, reference: str, answer: str, differs: bool) -> None:
    """Nothing rests on them; a reference that answers them with numbers is not asked."""
    child = rig.child()
    source = STATELESS.replace("torch.relu(x) * 1.5", reference)
    answer = LAZY.replace("torch.relu(x) * 1.5", answer).replace("CHANGE", "")
    found = rig.judge(child, rig.register(child, source), source, answer)
    assert found["full"]["outcome"] == "pass", found
    assert ("inputs have NaN" in str(found["tiny"]["generality"])) == differs, found["tiny"]
    assert found["tiny"]["detail"].get("flags", []) == (["nan_differs"] if differs else [])


def test_inputs_that_the_reference_refuses_are_not_used(rig: Rig) -> None:
    change = ("torch.relu(x) * 1.5", "torch.relu(x) * (1.5 if x.abs().max() < 100 else 1 // 0)")
    child = rig.child()
    source = STATELESS.replace(*change)
    found = rig.judge(child, rig.register(child, source), source, LAZY.replace("CHANGE", ""))
    assert found["full"]["outcome"] == "pass", found
    names = [item["name"] for item in found["full"]["detail"]["cases"]]
    assert "spikes" not in names and len(names) == 5 and not {"large", "offset"} & set(names), names


def test_rounding_shows_where_the_tolerance_is_too_wide_to_see_it(rig: Rig) -> None:
    """A reference that errs much itself: half precision fits into what is allowed, but its digits end early."""
    source = STATELESS.replace("torch.relu(x) * 1.5", "torch.sin(x * 3000)")
    child = rig.child()
    spec = rig.register(child, source)
    answer = LAZY.replace("torch.relu(x) * 1.5", "torch.sin(x * 3000)")
    assert rig.judge(child, spec, source, answer.replace("CHANGE", ""))["full"]["outcome"] == "pass"
    rules = policy(foreign="any")  # torch computes it
    found = rig.judge(child, spec, source, answer.replace("CHANGE", "y = y.half().float()"), rules=rules)
    report = list(found.values())[-1]
    assert report["class"] == "mismatch" and "half precision inside" in report["error"]["text"], found


def test_secret_transformations_come_in_the_seeds_order() -> None:
    from oracle.judge import Policy, plan

    rules = Policy.parse(policy())
    spec = {"dynamic_shapes": False, "cases": {"shapes": []}}
    steps = plan(rules, spec, False, ("offset", "large"))
    assert [step.name for step in steps] == ["original", "values", "spikes", "another seed", "original again"]
    assert steps[3].transforms == ("offset", "large", None)
    assert steps[4].transforms == ("scaled", None) and steps[4].seed_of == 0


SIZES = [
    {"name": "shape x0.75", "elements": 3},
    {"name": "shape x1.25", "elements": 5},
    {"name": "shape x2", "elements": 8},
    {"name": "dtype float16", "elements": 4, "dtype": "float16"},
]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("has_half", [False, True])
def test_of_five_cases_two_are_at_other_sizes_and_none_is_left_out(seed: int, has_half: bool) -> None:
    """Of the sizes near the task's own one, of twice that and of half precision, two are judged; what the task's own
    cases vary is varied all the same, at one of these."""
    from oracle.judge import Policy, plan

    rules = Policy.parse(policy())
    spec = {"dynamic_shapes": True, "cases": {"shapes": SIZES if has_half else SIZES[:3]}}
    steps = plan(rules, spec, True, ("offset",), random.Random(seed))
    assert len(steps) == 5 and [step.name for step in steps[:2]] == ["original", "values"]
    others = [SIZES[step.case]["name"] for step in steps if step.case is not None]
    assert len(set(others)) == 2 and not {"shape x0.75", "shape x1.25"} <= set(others)
    assert has_half or "shape x2" in others
    varied = [step.transforms for step in steps]
    assert sum("spikes" in transforms for transforms in varied) == sum("offset" in t for t in varied) == 1
    assert sum(step.weights for step in steps) == 1


def test_each_other_size_and_each_variation_at_the_own_size_is_drawn_by_some_seed() -> None:
    from oracle.judge import Policy, plan

    rules = Policy.parse(policy())
    spec = {"dynamic_shapes": True, "cases": {"shapes": SIZES}}
    drawn = [plan(rules, spec, True, ("offset",), random.Random(seed)) for seed in range(100)]
    assert {step.case for steps in drawn for step in steps} == {None, 0, 1, 2, 3}
    assert {step.name for steps in drawn for step in steps if step.case is None} >= {"spikes", "other weights"}


@pytest.mark.parametrize(("key", "left"), [("dtype", {0, 1, 2}), ("shape", {3})])
def test_a_kind_of_other_cases_can_be_turned_off(key: str, left: set[int]) -> None:
    from oracle.judge import Policy, plan

    rules = Policy.parse(policy(variations={"count": 9, "value": True, key: False}))
    spec = {"dynamic_shapes": True, "cases": {"shapes": SIZES}}
    steps = plan(rules, spec, True, ("offset",))
    assert {step.case for step in steps if step.case is not None} == left


def test_there_are_as_many_cases_as_the_policy_says() -> None:
    from oracle.judge import Policy, plan

    for shapes in ([], SIZES[:1], SIZES[:2], SIZES):
        spec = {"dynamic_shapes": True, "cases": {"shapes": shapes}}
        for count in range(1, 17):
            for value in (False, True):
                rules = Policy.parse(policy(variations={"count": count, "value": value, "shape": True}))
                assert len(plan(rules, spec, True, ("offset",))) == count


POISON = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n))
    def forward(self, x):
        self.weight.data.fill_(7.0)
        x.fill_(7.0)
        return torch.full_like(x, 7.0)
"""


def test_what_one_candidate_overwrites_is_its_own(rig: Rig, task: tuple[str, dict[str, object]]) -> None:
    """The reference, its weights and inputs stay loaded from one to the next: a candidate has copies."""
    child, spec = task

    def judged(source: str) -> list[tuple[object, ...]]:
        found = rig.judge(child, spec, TASK, source)
        cases = [case for stage in ("tiny", "full") if stage in found for case in found[stage]["detail"]["cases"]]
        return [(case["name"], case["outcome"], case["max_abs"], case["matched"], case["against"]) for case in cases]

    before = judged(HONEST)
    assert {outcome for _, outcome, *_ in before} == {"pass"}
    assert [outcome for _, outcome, *_ in judged(POISON)] == ["fail"]
    assert judged(HONEST) == before


BUSY = (
    TASK
    + """
import hashlib, threading
def work():
    while True:
        hashlib.sha256(bytes(1 << 20))  # without the lock of the interpreter, for which the reference would wait
threading.Thread(target=work, daemon=True).start()
"""
)


def test_a_reference_that_nobody_asks_has_no_cpu(rig: Rig) -> None:
    """What its author's threads would do is beside everybody else's stages: after its registration and after a job."""

    def is_idle() -> bool:
        deadline = time.monotonic() + 60
        while not rig.is_stopped(child):  # the answer comes first
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        for _ in range(5):  # what its threads used last may be counted late
            before = rig.cpu_s(child)
            time.sleep(0.2)
            if rig.cpu_s(child) == before:
                return True
        return False

    child = rig.child()
    spec = rig.register(child, BUSY)
    assert is_idle()
    for _ in range(2):
        reports = rig.judge(child, spec, BUSY, HONEST)
        assert [report["outcome"] for report in reports.values()] == ["pass"] * 3, reports
        assert is_idle()


MANY_KINDS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {"sum": x * 2, "mean": x.mean().item(), "nothing": float("nan")}
def get_inputs():
    return [torch.rand(40, 30)]
def get_init_inputs():
    return []
"""

HONEST_KINDS = """
import torch, triton, triton.language as tl
@triton.jit
def kernel(x, y, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    tl.store(y + at, 2 * tl.load(x + at, mask=inside), mask=inside)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return {"nothing": float("nan"), "mean": float(x.double().sum() / x.numel()) * (1 + FACTOR), "sum": y}
"""


@pytest.mark.parametrize(("factor", "class_"), [("1e-6", None), ("1e-2", "mismatch")])
def test_a_dict_has_no_order_and_a_float_is_held_to_a_limit(rig: Rig, factor: str, class_: str | None) -> None:
    """Issue 21, point 9: the order in which keys were put in, and a float's last bit, refused honest answers."""
    child = rig.child()
    spec = rig.register(child, MANY_KINDS)
    assert "refused" not in spec, spec
    found = rig.judge(child, spec, MANY_KINDS, HONEST_KINDS.replace("FACTOR", factor), rules=policy("hybrid"))
    last = list(found.values())[-1]
    assert last["class"] == class_, found
    assert ("output mean" in last["error"]["text"]) if class_ else list(found)[-1] == "full", found


IN_PLACE = """
import torch
class Model(torch.nn.Module):
    def forward(self, cache, x):
        cache[:20] += x
        return x * 2
def get_inputs():
    return [torch.randn(40, 30), torch.randn(20, 30)]
def get_init_inputs():
    return []
"""

HONEST_IN_PLACE = """
import torch, triton, triton.language as tl
@triton.jit
def kernel(cache, x, y, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    value = tl.load(x + at, mask=inside)
    tl.store(cache + at, tl.load(cache + at, mask=inside) + value, mask=inside)
    tl.store(y + at, 2 * value, mask=inside)
class ModelNew(torch.nn.Module):
    def forward(self, cache, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](cache, x, y, x.numel(), BLOCK=256)
        return y
"""


@pytest.mark.parametrize(
    ("change", "class_", "says"),
    [
        (("", ""), None, ""),
        (("+ value, mask=inside)", ", mask=inside)"), "mismatch", "input 0 after the call"),
        (("return y", "x.zero_(); return y"), "mutated_input", "input 1"),
        (("return y", "return x.mul_(2)"), "mutated_input", "input 1"),
        (("return y", "cache[20:] = y; return cache[20:]"), "mismatch", "input 0 after the call"),
    ],
    ids=["honest", "leaves it", "changes another", "answers in another", "answers in it"],
)
def test_what_a_reference_changes_is_compared(rig: Rig, change: tuple[str, str], class_: str | None, says: str) -> None:
    """Issue 21, point 9: of a task whose effect is the change, nothing but the output was looked at."""
    child = rig.child()
    spec = rig.register(child, IN_PLACE)
    found = rig.judge(child, spec, IN_PLACE, HONEST_IN_PLACE.replace(*change))
    last = list(found.values())[-1]
    assert last["class"] == class_, found
    assert (says in last["error"]["text"]) if class_ else list(found)[-1] == "full", found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nobody_spins_on_the_cores_that_the_other_side_computes_on(device: str) -> None:
    bell = Mock()
    peer = Peer("one", None, -1, torch.device(device))  # type: ignore[arg-type]
    peer.doorbell = bell
    peer.await_answer(1, 1000.0)
    child: Any = Child(None, torch.device(device))  # type: ignore[arg-type]
    child._arena, child._placer, child._doorbell = object(), object(), bell
    child._answer = Mock(return_value=(0, 0))
    child._answer_bells(1, is_timed=False)
    spans = [bell.await_answer.call_args.args[2], bell.wait.call_args.args[1]]
    assert [span > 0 for span in spans] == [device == "cuda"] * 2


def test_memory_of_the_host_that_a_plan_has_pinned_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one would be ended for it."""
    order = Mock()
    for owner, name in (
        (torch.cuda, "synchronize"), (torch.cuda, "empty_cache"), (torch._C, "_host_emptyCache"),
        (native, "heap_set"), (native, "scrub"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(order, name), raising=False)
    child: Any = Child(order.channel, torch.device("cuda"))
    child._plan, child._arena, child._doorbell = Mock(), Mock(), Mock()
    child._op_renew(Mock())
    done = [call[0] for call in order.mock_calls]
    assert done.index("synchronize") < done.index("_host_emptyCache") < done.index("channel.send")


def test_children_that_are_being_made_stand_still_meanwhile() -> None:
    """One that is ready runs on, one that ends meanwhile matters to nobody, and afterwards all run again."""

    def state(child: subprocess.Popen[bytes]) -> str:
        return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]

    found = referee.Referee.__new__(referee.Referee)
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    try:
        found._children = {
            str(at): Peer(str(at), None, os.pidfd_open(child.pid), torch.device("cpu"), is_ready=at == 2)  # type: ignore[arg-type]
            for at, child in enumerate(children)
        }
        with found._standing_still():
            assert [state(child) == "T" for child in children] == [True, True, False]
            children[0].kill()
            children[0].wait()
        assert "T" not in [state(child) for child in children[1:]]
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_memory_that_is_missing_is_waited_for_while_its_holder_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    found = referee.Referee.__new__(referee.Referee)
    found._device = torch.device("cuda", 0)
    child = subprocess.Popen(["sleep", "60"])
    pidfd = os.pidfd_open(child.pid)
    looks: list[bool] = []

    def free(device: torch.device) -> tuple[int, int]:
        """Its memory is back once it is gone, and it is killed at the third look."""
        looks.append(is_over(pidfd))
        if len(looks) == 3:
            child.kill()
        return (10 if looks[-1] else 5), 10

    try:
        monkeypatch.setattr(torch.cuda, "mem_get_info", free)
        found._ending = [pidfd]
        found._await_ends(5)
        assert len(looks) == 1  # enough
        found._await_ends(7)
        assert is_over(pidfd) and len(looks) >= 3
    finally:
        child.kill()
        child.wait()
    monkeypatch.setattr(referee, "ENDING_S", 0.05)
    found._ending = [os.pidfd_open(os.getpid())]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5, 10))
    found._await_ends(7)  # it does not end


def test_for_room_children_that_registered_another_task_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold contexts, and of nobody's is less lost: their task is loaded anew when it is asked for."""
    found = referee.Referee.__new__(referee.Referee)
    found._device, found._jobs = torch.device("cuda", 0), {}
    found._registered, found._answers = {"r1", "r2", "r3"}, Mock()
    gone: list[str] = []
    names = ("r0", "r1", "r2", "r3")
    found._children = {name: Mock(end=partial(gone.append, name)) for name in names}
    found._references = {"r0": Mock(), "r1": Mock()}
    found._channel = Mock()
    monkeypatch.setattr(referee.Referee, "_forget", lambda self, name: self._references.pop(name, None))
    monkeypatch.setattr(referee.Referee, "_await_ends", lambda self, needed: None)
    monkeypatch.setattr(referee.Referee, "_cached_bytes", lambda self: 0)
    sizes = Mock(inputs=0, outputs=0, reference_arena=0, candidate_arena=lambda device: 1 << 40)
    monkeypatch.setattr(reference.Sizes, "of", lambda spec, device: sizes)
    monkeypatch.setattr(referee, "fp64_room", lambda sizes, case: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 0))
    found._make_room({"cases": {"own": {}}}, "r3")
    assert gone == ["r0", "r1", "r2"], "references first, and never the one that is asked"


def test_why_a_plan_is_timed_live_leaves_why_a_bell_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(job: Any, gpu: Any) -> Any:
        raise timing.Uncapturable("the candidate: it reads a number")

    monkeypatch.setattr(timing, "DeviceTimer", captured)
    detail = {"one_call": "outputs of calls in a row share memory"}
    monkeypatch.setattr(clock, "time_job", lambda job, gpu: Report("timing", "pass", detail=detail))
    found = referee._time(Mock(is_planned=True), Mock()).detail
    assert found == {**detail, "not_captured": "the candidate: it reads a number"}
