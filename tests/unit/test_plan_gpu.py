"""Plans on a GPU, judged and timed by a referee: the process that runs them has read no module of the candidate's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from daemon import first_gpu
from rig import TASK, Rig, policy
from test_together import ALONE, TELLING, told

from executor import archive  # isort: skip
from executor.launch import Compiled  # isort: skip
from shared import plan  # isort: skip

pytestmark = pytest.mark.gpu


@triton.jit
def _scaled_relu(x, w, y, n, total, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    value = tl.maximum(tl.load(x + at, mask=inside), 0.0) * tl.load(w + at % n, mask=inside)
    tl.store(y + at, value, mask=inside)


@triton.jit
def _bounded(x, w, y, n, total, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < total
    value = tl.minimum(tl.maximum(tl.load(x + at, mask=inside), 0.0), 40.0) * tl.load(w + at % n, mask=inside)
    tl.store(y + at, value, mask=inside)


@triton.jit
def _endless(x, w, y, n, total, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    while tl.load(x) * 0 == 0:
        tl.store(y, 1.0)


@triton.jit
def _far(x, w, y, n, total, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(y + (tl.program_id(0) + 1).to(tl.int64) * (1 << 42), 1.0)


SIGNATURE = (("x", "*fp32"), ("w", "*fp32"), ("y", "*fp32"), ("n", "i32"), ("total", "i32"), ("BLOCK", "constexpr"))


def compiled(kernel: Any, block: int) -> Compiled:
    """What the kernel compiler makes of it."""
    from triton.compiler import ASTSource

    constants = {(5,): block}
    found: Any = triton.compile(ASTSource(kernel, dict(SIGNATURE), constants, {}))
    meta = found.metadata
    return Compiled(
        found.asm["cubin"], meta.name, meta.num_warps, meta.num_ctas, meta.shared, meta.global_scratch_size,
        meta.profile_scratch_size, False, False, (),
    )  # fmt: skip


def trace(name: str, rows: int, columns: int, blocks: tuple[int, ...]) -> plan.Trace:
    """relu(x) * weight; with several block sizes an autotuned launch, kernel i being of blocks[i]."""
    f32 = "float32"
    x, y = plan.Leaf(1, (rows, columns), (columns, 1), f32), plan.Leaf(2, (rows, columns), (columns, 1), f32)
    weight = plan.Leaf(0, (columns,), (1,), f32)
    total = rows * columns
    on_gpu = (("device", plan.Device("cuda")), ("dtype", plan.TorchDtype(f32)))

    def launch(kernel: int) -> plan.Launch:
        args = (plan.Ref(1), plan.Ref(0), plan.Ref(2), columns, total, blocks[kernel])
        return plan.Launch(kernel, (math.ceil(total / blocks[kernel]), 1, 1), args, 7)

    launches: plan.Step = launch(0)
    if len(blocks) > 1:
        alternatives = tuple(plan.Alternative(f"BLOCK: {size}", (launch(i),)) for i, size in enumerate(blocks))
        launches = plan.Choose(alternatives, 7)
    return plan.Trace(
        case=name,
        inputs=(x,),
        parameters=(("weight", 0),),
        construct=(plan.Call("aten.empty.memory_format", (plan.List((columns,)),), on_gpu, weight, 4),),
        first=(),
        steps=(plan.Call("aten.empty_like.default", (plan.Ref(1),), (), y, 6), launches),
        output=y,
    )


def images(spec: dict[str, Any], kernel: Any = _scaled_relu, blocks: tuple[int, ...] = (256,)) -> bytes:
    function = plan.Function("kernel", 4, (), (), False)
    kernels = tuple(plan.Kernel(0, SIGNATURE, (((5,), size),), (), (("num_warps", 4),)) for size in blocks)
    cases = [spec["cases"]["own"], spec["cases"]["tiny"]]
    traces = []
    for case in cases:
        (tensor,) = [item["tensor"] for item in case["inputs"]["list"]]
        rows, columns = tensor["shape"]
        traces.append(trace(case["name"], rows, columns, blocks))
    whole = plan.Plan("cuda:90", "sha256:" + "0" * 64, (function,), kernels, tuple(traces))
    made = {index: compiled(kernel, size) for index, size in enumerate(blocks)}
    return archive.pack(whole.dump(), made, {})


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    if not torch.cuda.is_available():
        pytest.skip("gpu: no GPU on this machine")
    with Rig(tmp_path_factory.mktemp("plans"), device=first_gpu()) as found:
        yield found


@pytest.fixture(scope="module")
def task(rig: Rig) -> tuple[str, dict[str, Any]]:
    reference = rig.child()
    return reference, rig.register(reference, TASK)


ALL = ("tiny", "full", "timing")
NO_MODULE = "raise SystemExit('no process may import this')"


def judge(rig: Rig, task: tuple[str, dict[str, Any]], made: bytes, stages: tuple[str, ...] = ALL, **more: Any) -> Any:
    reference, spec = task
    return rig.judge(reference, spec, TASK, NO_MODULE, stages=stages, images=made, **more)


def passes(found: Any) -> bool:
    """All stages, or what failed is told."""
    outcomes = {stage: (report["outcome"], report["error"]) for stage, report in found.items()}
    assert outcomes == dict.fromkeys(("open", *ALL), ("pass", None)), found
    return True


def test_a_right_plan_passes_and_is_timed_by_events(rig: Rig, task: tuple[str, dict[str, Any]]) -> None:
    found = judge(rig, task, images(task[1]))
    assert passes(found)
    timing = found["timing"]["detail"]
    assert timing["method"] == "graph_events"
    assert timing["outcome"] in ("measured", "too_small"), (timing["why"], timing["clocks"]["blocks"])
    assert timing["calls"] > 1, "a call of some microseconds is timed as several in one graph"
    allocation, kernel = timing["step_shares"]
    assert allocation < 0.1 < 0.9 < kernel


def test_cases_that_are_judged_together_come_to_what_they_come_to_alone(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("gpu: no GPU on this machine")
    found = {}
    for name, prelude in (("alone", ALONE), ("together", TELLING)):
        (tmp_path / name).mkdir()
        with Rig(tmp_path / name, device=first_gpu(), prelude=prelude) as one:
            reference = one.child()
            task = reference, one.register(reference, TASK)
            found[name] = [judge(one, task, images(task[1]), ("tiny", "full"), seed=seed) for seed in (3, 4)]
            wrong = judge(one, task, images(task[1], _bounded), ("tiny", "full"))
            assert list(wrong.values())[-1]["class"] == "mismatch", wrong
            found[name].append(wrong)
    for alone, together in zip(found["alone"], found["together"], strict=True):
        assert told(alone) == told(together)
    counts = [
        {name: run["full"]["detail"]["together"] for name, run in zip(found, runs, strict=True)}
        for runs in zip(*found.values(), strict=True)
    ][:2]
    assert all(count["alone"] == 0 and count["together"] > 6 for count in counts), counts


def test_the_quickest_configuration_is_found_and_run(rig: Rig, task: tuple[str, dict[str, Any]]) -> None:
    found = judge(rig, task, images(task[1], blocks=(16, 256, 1024)))
    assert passes(found)


def test_a_plan_whose_kernel_does_nothing_that_matters_is_a_hack(rig: Rig, task: tuple[str, dict[str, Any]]) -> None:
    whole = archive.unpack(images(task[1]))[0]

    def without_work(found: plan.Trace) -> plan.Trace:
        y = found.output
        assert isinstance(found.inputs, tuple) and isinstance(found.inputs[0], plan.Leaf) and isinstance(y, plan.Leaf)
        x = found.inputs[0]
        relu = plan.Call("aten.relu.default", (plan.Ref(x.id),), (), replace(y, id=3), 5)
        product = plan.Call("aten.mul.Tensor", (plan.Ref(3), plan.Ref(0)), (), replace(y, id=4), 5)
        return replace(found, steps=(*found.steps, relu, product), output=replace(y, id=4))

    traces = tuple(without_work(found) for found in whole.traces)
    made = archive.pack(replace(whole, traces=traces).dump(), {0: compiled(_scaled_relu, 256)}, {})
    refused = judge(rig, task, made, ("tiny", "full"))
    assert refused["tiny"]["outcome"] == "fail", "the policy lets torch compute nothing"
    found = judge(rig, task, made, ("tiny", "full"), rules=policy(foreign="any"))
    assert (found["full"]["class"], found["full"]["rule"]) == ("hack", "idle_kernels"), found


def test_a_kernel_that_never_ends_is_a_timeout_and_harms_no_neighbour(
    rig: Rig, task: tuple[str, dict[str, Any]]
) -> None:
    found = judge(rig, task, images(task[1], _endless), ("tiny",), limit_ms=3000)
    assert found["tiny"]["class"] == "timeout", found
    assert passes(judge(rig, task, images(task[1])))


def test_a_kernel_that_writes_nowhere_is_its_own_failure(rig: Rig, task: tuple[str, dict[str, Any]]) -> None:
    found = judge(rig, task, images(task[1], _far), ("tiny",))
    assert found["tiny"]["class"] in ("launch", "crash"), found
    assert passes(judge(rig, task, images(task[1])))


def test_two_timings_of_one_plan_agree(rig: Rig, task: tuple[str, dict[str, Any]]) -> None:
    ratios = []
    for _ in range(6):
        timing = judge(rig, task, images(task[1]))["timing"]["detail"]
        ratios.append(statistics.median(timing["reference_ns"]) / statistics.median(timing["candidate_ns"]))
    print("ratios", [round(ratio, 4) for ratio in ratios])
    assert max(ratios) / min(ratios) < 1.08  # a call below 20 us ends at an interval of 2 % on either side
