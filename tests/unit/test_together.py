"""Cases of a plan that are judged together come to what they come to one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest
import rig
import torch

from executor import archive  # isort: skip
from executor.launch import Compiled  # isort: skip
from oracle import together  # isort: skip
from oracle.reference import Expected  # isort: skip
from shared import plan, values  # isort: skip

SIGNATURE = (("x", "*fp32"), ("w", "*fp32"), ("y", "*fp32"), ("n", "i32"), ("total", "i32"), ("BLOCK", "constexpr"))
TELLING = (
    "from oracle import judge; of = judge.Job._report; "
    "judge.Job._report = lambda job, *a: (lambda r: (r.detail.update(together=len(job._judged)), r)[1])(of(job, *a)); "
)
ALONE = TELLING + "from oracle import together; together.judge = lambda job, items: None; "
Judge = Callable[..., dict[str, Any]]


def trace(name: str, rows: int, columns: int) -> plan.Trace:
    """relu(x) * weight."""
    f32, total = "float32", rows * columns
    x, y = plan.Leaf(1, (rows, columns), (columns, 1), f32), plan.Leaf(2, (rows, columns), (columns, 1), f32)
    weight = plan.Leaf(0, (columns,), (1,), f32)
    on_gpu = (("device", plan.Device("cuda")), ("dtype", plan.TorchDtype(f32)))
    args = (plan.Ref(1), plan.Ref(0), plan.Ref(2), columns, total, 2048)
    return plan.Trace(
        case=name,
        inputs=(x,),
        parameters=(("weight", 0),),
        construct=(plan.Call("aten.empty.memory_format", (plan.List((columns,)),), on_gpu, weight, 4),),
        first=(),
        steps=(
            plan.Call("aten.empty_like.default", (plan.Ref(1),), (), y, 6),
            plan.Launch(0, (math.ceil(total / 2048), 1, 1), args, 7),
        ),
        output=y,
    )


def idle(found: plan.Trace) -> plan.Trace:
    """The same where torch computes what is answered."""
    y = found.output
    assert isinstance(y, plan.Leaf)
    relu = plan.Call("aten.relu.default", (plan.Ref(1),), (), replace(y, id=3), 5)
    product = plan.Call("aten.mul.Tensor", (plan.Ref(3), plan.Ref(0)), (), replace(y, id=4), 5)
    return replace(found, steps=(*found.steps, relu, product), output=replace(y, id=4))


def images(spec: dict[str, Any], change: Callable[[plan.Trace], plan.Trace] = lambda found: found) -> bytes:
    function = plan.Function("kernel", 4, (("tl", plan.ModuleRef("triton.language")),), (), False)
    kernel = plan.Kernel(0, SIGNATURE, (((5,), 2048),), (), (("num_warps", 4),))
    traces = []
    for case in (spec["cases"]["own"], spec["cases"]["tiny"], *spec["cases"]["shapes"]):
        (tensor,) = [item["tensor"] for item in case["inputs"]["list"]]
        if case.get("dtype") is None:
            traces.append(change(trace(case["name"], *tensor["shape"])))
    whole = plan.Plan("cuda:90", "sha256:" + "0" * 64, (function,), (kernel,), tuple(traces))
    compiled = Compiled(b"taken from the text instead", "kernel", 4, 1, 0, 0, 0, False, False, ())
    return archive.pack(whole.dump(), {0: compiled}, {})


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Judge]]:
    """Each gives the reports of a source."""
    found: dict[str, Judge] = {}
    running = []
    for name, prelude in (("alone", ALONE), ("together", TELLING)):
        referee = rig.Rig(tmp_path_factory.mktemp(name), prelude=prelude)
        running.append(referee)
        reference = referee.child()
        spec = referee.register(reference, rig.TASK, dynamic_shapes=True)
        found[name] = _judge(referee, reference, spec)
    yield found
    for referee in running:
        referee.__exit__()


def _judge(referee: rig.Rig, reference: str, spec: dict[str, Any]) -> Judge:
    rules = rig.policy(variations={"count": 5, "value": True, "shape": True, "dtype": False})

    def judge(source: str, foreign: str = "movement", **more: Any) -> dict[str, Any]:
        made = images(spec) if foreign == "movement" else images(spec, idle)
        chosen = {**rules, "foreign": foreign}
        return referee.judge(reference, spec, rig.TASK, source, images=made, rules=chosen, **more)

    return judge


def told(reports: dict[str, Any]) -> list[Any]:
    """What is told of each case, but for what it took; the largest errors to three digits."""
    found: list[Any] = []
    for stage in ("tiny", "full"):
        if stage in reports:
            report = reports[stage]
            found.append((report["outcome"], report["class"], report["done"], report["of"], report["generality"]))
            for case in report["detail"]["cases"]:
                errors = [f"{case[name] or 0:.2e}" for name in ("max_abs", "max_rel")]
                found.append((case["name"], case["class"], case["against"], case["matched"], case["note"], errors))
    return found


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("is_grouped", [False, True])
def test_what_is_right_is_right(judges: dict[str, Judge], seed: int, is_grouped: bool) -> None:
    more = {"seed": seed, "grouped": is_grouped, "limit_ms": 60_000 if seed == 3 else 3_600_000}
    for _ in range(2):  # the second of a group is given the first one's answers
        found = {name: judge(rig.HONEST, **more) for name, judge in judges.items()}
        assert [report["outcome"] for report in found["together"].values()] == ["pass"] * 3, str(found["together"])
        assert told(found["together"]) == told(found["alone"])
        assert found["alone"]["full"]["detail"]["together"] == 0
        assert found["together"]["full"]["detail"]["together"] > 6 + 4 * (seed == 4)
        assert found["together"]["tiny"]["detail"]["together"] > 4


WRONG = {
    "above a bound": ("tl.load(x + at, mask=inside)", "tl.minimum(tl.load(x + at, mask=inside), 40.0)"),
    "below a bound": ("0.0) * tl.load", "-30.0) * tl.load"),
    "in the last row": ("mask=inside)\n", "mask=inside & (at < total - 1))\n"),
    "at zeros": ("value = ", "value = tl.where(tl.load(x + at, mask=inside) == 0.0, 1.0, 0.0) + "),
    "into its input": ("    tl.store(y", "    tl.store(x + at, value, mask=inside)\n    tl.store(y"),
    "into the last of its input": (
        "    tl.store(y",
        "    tl.store(x + at, value + 1, mask=inside & (at == total - 1))\n    tl.store(y",
    ),
    "not a number": ("value, mask", "tl.where(value > 50.0, float('nan'), value), mask"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_wrong(judges: dict[str, Judge], what: str) -> None:
    source = rig.HONEST.replace(*WRONG[what])
    assert source != rig.HONEST
    found = {name: judge(source, seed=5) for name, judge in judges.items()}
    assert list(found["together"].values())[-1]["outcome"] == "fail"
    assert told(found["together"]) == told(found["alone"])


def test_of_a_small_case_no_more_is_compared_than_its_inputs_take() -> None:
    peer: Any = SimpleNamespace(arena=SimpleNamespace(bytes=torch.arange(3 << 12).to(torch.uint8)))
    tree = values.encode([torch.empty(100), 3], lambda tensor: values.TensorNote.of(tensor, 0))
    item: Any = SimpleNamespace(tree=tree)
    batch = together._Batch(Mock(reference=Mock(peer=peer, sizes=Mock(inputs=1 << 12))), [item] * 3)
    with patch.object(together, "_groups", lambda _: []):
        batch._draw()
    assert torch.equal(batch._pristine.view(torch.uint8), peer.arena.bytes.view(3, -1)[:, :512])
    for at, is_seen in ((2 << 12, True), ((2 << 12) + 511, True), ((2 << 12) + 512, False)):
        peer.arena.bytes[at] ^= 1
        assert batch._is_unchanged() != is_seen
        peer.arena.bytes[at] ^= 1


@pytest.mark.parametrize(
    ("transform", "weights", "is_original", "is_sure"),
    [
        (None, 0, True, False),
        ("signs", 0, False, False),
        (None, 0, False, True),
        ("signs", 1, False, True),
        ("scaled", 0, False, True),
    ],
)
def test_what_was_rounded_on_its_way_is_no_more_right_together_than_alone(
    transform: str | None, weights: int, is_original: bool, is_sure: bool
) -> None:
    """A product of half type with values of bfloat16 failed on a new reference, and passed on one that was known."""
    wide = torch.randn(4096, generator=torch.Generator().manual_seed(1)).double()
    own = wide.half()
    for answer, is_passed in ((own, True), (wide.bfloat16().half(), is_sure)):
        item = together.Item({"name": "own"}, transform, 1, weights, "own.0", [], is_original)
        item.expected = Expected([wide], [own], ["0"], "fp64", [0.0], False, [own], None)
        together._compare_rows(Mock(**{"policy.name": "strict"}), [item], [[answer[None]], [answer[None]]])
        assert (item.max_abs is not None) == is_passed


def test_kernels_that_do_nothing_that_matters_are_a_hack(judges: dict[str, Judge]) -> None:
    found = {name: judge(rig.HONEST, "any", seed=7) for name, judge in judges.items()}
    assert (found["together"]["full"]["class"], found["together"]["full"]["rule"]) == ("hack", "idle_kernels")
    assert told(found["together"]) == told(found["alone"])


def test_a_process_that_goes_is_told_of(judges: dict[str, Judge]) -> None:
    """At inputs that only other cases have; of which, is not known."""
    endless = "    while tl.max(tl.load(x + at, mask=inside), 0) > 50.0:\n        pass\n    value"
    source = rig.HONEST.replace("    value", endless, 1)
    reports = judges["together"](source, seed=6, limit_ms=3_000)
    last = list(reports.values())[-1]
    assert (last["outcome"], last["class"]) == ("fail", "timeout"), reports
