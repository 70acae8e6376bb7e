"""Cases of a task: knobs found, sources rewritten, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from live import cases

CPU = torch.device("cpu")
TASK = """
import torch
M = 64 * 2
height, width = 48, 32
shape = (M, 16)
dim = 9
kernel_size = 7
eps = 1e-5
FLAG = True

class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = torch.nn.Linear(features, 8)
    def forward(self, x):
        return self.linear(x).relu()

def get_inputs():
    return [torch.rand(M, width, 24)[..., :24] if False else torch.rand(M, width)]

def get_init_inputs():
    return [width]
"""


def test_knobs_are_sizes_only() -> None:
    found = {knob.name: knob.value for knob in cases.find_knobs(TASK)[0]}
    assert found["M"] == 128 and found["height"] == 48 and found["width"] == 32 and found["shape[1]"] == 16
    assert "get_inputs:0" in found
    assert not {"dim", "kernel_size", "eps", "FLAG"} & set(found)


def test_a_number_behind_a_minus_is_no_size() -> None:
    """A reference whose labels hold -100 for "none" was asked with -4 there, and raised."""
    source = TASK.replace("def get_inputs():", "def get_inputs():\n    pad = -100, 3")
    found = {knob.name for knob in cases.find_knobs(source)[0]}
    assert "get_inputs:0" not in found and {"get_inputs:1", "get_inputs:2"} <= found


def test_a_task_whose_inputs_have_another_shape_for_another_seed_is_refused() -> None:
    source = TASK.replace("else torch.rand(M, width)", "else torch.rand(int(torch.randint(4, 40, ())), width)")
    with pytest.raises(cases.TaskRefused, match="other shapes"):
        cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=None)


def test_overrides_change_the_module() -> None:
    module = cases.load_module(TASK, {"M": 4, "width": 5})
    assert module.M == 4 and module.width == 5 and module.height == 48
    assert module.get_inputs()[0].shape == (4, 5)


def test_describe_finds_a_tiny_case_that_runs() -> None:
    spec = cases.describe(TASK, None, CPU, dynamic_shapes=True, declared=None, element_limit=None)
    own, tiny = spec["cases"]["own"], spec["cases"]["tiny"]
    assert own["inputs"]["list"][0]["tensor"]["shape"] == [128, 32]
    assert own["state_bytes"] == (32 * 8 + 8) * 4
    assert tiny["elements"] < own["elements"]
    assert tiny["outputs"]["tensor"]["shape"] == [4, 8]
    assert [case["name"] for case in spec["cases"]["shapes"]] == ["shape x0.75", "shape x1.25", "shape x2"]


@pytest.mark.parametrize(
    ("forward", "rows"),
    [
        ("return x + 1", 2),
        ("return (x + 1).view(-1)", 2),
        ("return (x + 1) * 2", 3),
        ("return ((x + 1) * 2 + 1) * 2", 3),
        ("a = x + 1; b = a * 2; return b + a", 4),
        ("x = x.clone(); x += 1; return x", 2),
        ("return self.weight * x", 2),
        ("return torch.stack([self.weight, self.weight])", 3),
    ],
)
def test_bytes_of_a_call_are_its_own_tensors_at_once(forward: str, rows: int) -> None:
    source = f"""
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1000))
    def forward(self, x):
        {forward}
def get_inputs():
    return [torch.rand(1000)]
def get_init_inputs():
    return []
"""
    spec = cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=None)
    assert spec["cases"]["own"]["call_bytes"] == rows * 4000


def test_other_sizes_are_looked_for_where_shapes_are_fixed() -> None:
    spec = cases.describe(TASK, None, CPU, dynamic_shapes=False, declared=None, element_limit=None)
    found = spec["cases"]
    assert found["shapes"] == [] and not spec["dynamic_shapes"]
    names = ["shape x0.75", "shape x1.25", "shape x2", "shape prime", "shape odd", "dtype float16"]
    assert [case["name"] for case in found["other"]] == names, "no float is an argument of the constructor"
    assert found["other"][2]["elements"] > found["own"]["elements"] > found["other"][0]["elements"]
    half = found["other"][-1]
    assert half["dtype"] == "float16" and half["overrides"] == {}
    assert half["inputs"]["list"][0]["tensor"]["dtype"] == half["outputs"]["tensor"]["dtype"] == "float16"


@pytest.mark.parametrize(
    ("forward", "dtypes"),
    [
        ("self.linear(x).relu()", ["float16"]),
        ("self.linear(x) * 1e5", ["bfloat16"]),  # beyond what float16 holds
        ("self.linear(x.float()).relu()", []),  # raises: its weights are of another dtype than its inputs
        ("torch.log_softmax(self.linear(x).float(), 1)", []),  # answers in float32 all the same
        ("torch.sin(self.linear(x) * 3000)", []),  # in half precision no digit is right
    ],
)
def test_half_precision_is_a_case_where_the_reference_takes_it(forward: str, dtypes: list[str]) -> None:
    source = TASK.replace("self.linear(x).relu()", forward)
    spec = cases.describe(source, None, CPU, dynamic_shapes=True, declared=None, element_limit=None)
    assert [case["dtype"] for case in spec["cases"]["other"]] == dtypes


def test_a_task_in_half_precision_has_no_case_in_it() -> None:
    source = TASK.replace("torch.rand(M, width)]", "torch.rand(M, width).half()]").replace(
        "self.linear(x).relu()", "x * 2"
    )
    spec = cases.describe(source, None, CPU, dynamic_shapes=True, declared=None, element_limit=None)
    assert spec["cases"]["other"] == []


def test_tells_where_matrices_are_multiplied() -> None:
    def found(forward: str) -> bool:
        source = TASK.replace("self.linear(x).relu()", forward)
        spec = cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=None)
        return bool(spec["cases"]["own"]["multiplies_matrices"])

    assert found("self.linear(x)") and found("x @ x.T") and found("torch.einsum('ij,kj->ik', x, x)")
    assert found("torch.nn.functional.conv1d(x[None], x[:, None, :3].repeat(1, x.shape[0], 1))")
    assert not found("torch.softmax(x * 2, 1)")


def test_greedy_where_sizes_hang_together() -> None:
    source = TASK.replace("torch.nn.Linear(features, 8)", "torch.nn.Linear(32, 8)")
    spec = cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=None)
    assert spec["cases"]["tiny"]["outputs"]["tensor"]["shape"] == [4, 8]
    assert spec["cases"]["tiny"]["inputs"]["list"][0]["tensor"]["shape"] == [4, 32]


def test_declared_cases_are_run_and_named() -> None:
    declared = [{"name": "tiny", "overrides": {"M": 2}}]
    spec = cases.describe(TASK, None, CPU, dynamic_shapes=False, declared=declared, element_limit=None)
    assert spec["tiny_declared"] and spec["cases"]["tiny"]["overrides"] == {"M": 2}
    with pytest.raises(cases.TaskRefused, match="no size is called 'N'"):
        cases.describe(
            TASK, None, CPU, dynamic_shapes=False, declared=[{"name": "x", "overrides": {"N": 1}}], element_limit=None
        )


def test_large_tasks_are_described_without_their_memory() -> None:
    source = TASK.replace("64 * 2", "1024 * 1024 * 64")
    spec = cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=1 << 16)
    assert spec["cases"]["own"]["elements"] == (1 << 26) * 40
    assert spec["cases"]["tiny"]["elements"] < 1 << 16


def test_kernelbook_arguments() -> None:
    source = "import torch\nclass Net(torch.nn.Module):\n  def __init__(self, a, b=1):\n    super().__init__()\n"
    source += "  def forward(self, x):\n    return x + 1\n"
    source += "def get_inputs():\n  return [torch.rand([4, 4])]\ndef get_init_inputs():\n  return [[2], {'b': 3}]\n"
    spec = cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=None)
    assert spec["entry_point"] == "Net"
    assert spec["cases"]["own"]["init"] == {"args": {"list": [2]}, "kwargs": {"dict": [["b", 3]]}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("def get_inputs", "def inputs"), "no function get_inputs"),
        (("class Model", "class Other"), None),
        (("self.linear(x).relu()", "None"), "returns no tensor"),
        (("self.linear(x).relu()", "self.linear(x) * float('nan')"), "no finite value"),
        (("self.linear(x).relu()", "self.linear(x)[:0]"), "no finite value"),
    ],
)
def test_what_is_no_task_is_refused(change: tuple[str, str], why: str | None) -> None:
    source = TASK.replace(*change)
    if why is None:
        source += "class Third(torch.nn.Module): pass\n"
        why = "no class Model"
    with pytest.raises(cases.TaskRefused, match=why):
        cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=None)


FORWARD = """
import random, torch
class Model(torch.nn.Module):
    calls = 0
    def forward(self, x):
        BODY
def get_inputs():
    return [torch.rand(128, 512)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("body", "flags"),
    [
        ("return torch.softmax(x, 1)", []),
        ("return x.mean(1)", []),
        ("return torch.nn.functional.dropout(x, 0.5)", ["random_reference"]),
        ("return (x > -0.5)", ["output_insensitive"]),
        ("return x.clamp(min=2) * 0.5", ["output_insensitive"]),
        ("return torch.relu(torch.minimum(x, x * 0) - 1)", ["output_constant"]),
        ("x.zero_(); return x + 1", ["output_constant"]),
    ],
)
def test_flags_say_what_answers_depend_on(body: str, flags: list[str]) -> None:
    source = FORWARD.replace("BODY", body)
    spec = cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=1 << 20)
    assert spec["flags"] == flags


@pytest.mark.parametrize("body", ["return x * random.random()", "self.calls += 1; return x * self.calls"])
def test_a_reference_without_one_right_answer_is_refused(body: str) -> None:
    with pytest.raises(cases.TaskRefused, match="answers differently when it is called again"):
        cases.describe(
            FORWARD.replace("BODY", body), None, CPU, dynamic_shapes=False, declared=None, element_limit=1 << 20
        )


def test_what_is_too_large_is_examined_at_its_tiny_case() -> None:
    source = FORWARD.replace("128, 512", "8192, 4096")
    for body, flags in (("return (x > -1)", []), ("return torch.nn.functional.dropout(x)", ["random_reference"])):
        spec = cases.describe(
            source.replace("BODY", body), None, CPU, dynamic_shapes=False, declared=None, element_limit=1 << 20
        )
        assert spec["flags"] == flags


def test_every_task_of_ours_has_a_small_case() -> None:
    root = Path(__file__).resolve().parents[1] / "tasks"
    files = sorted(root.glob("*.py"))
    assert len(files) >= 12
    for file in files:
        spec = cases.describe(file.read_text(), None, CPU, dynamic_shapes=False, declared=None, element_limit=1 << 20)
        assert spec["cases"]["tiny"] is not None or spec["cases"]["own"]["elements"] < 1 << 12, file.name


@pytest.mark.parametrize(
    ("forward", "inputs", "chooses", "varies"),
    [
        ("x.topk(2)[1]", "torch.rand(8, 8)", True, True),
        ("x.topk(2)[0]", "torch.rand(8, 8)", False, True),
        ("x.sort(-1).values * 2", "torch.rand(8, 8)", False, True),
        ("x.gather(1, x.topk(2)[1])", "torch.rand(8, 8)", True, False),
        ("x.argmax(-1)", "torch.rand(8, 8)", False, True),
        ("x % 7", "torch.randint(0, 9, (8, 8))", False, True),
        ("torch.ones(9)[x % 9]", "torch.randint(0, 9, (8, 8))", False, False),
        ("(x * 3).sum(-1)", "torch.randint(0, 9, (8, 8))", False, True),
        ("torch.nn.functional.embedding(x, torch.ones(9, 4))", "torch.randint(0, 9, (8, 8))", False, False),
        ("torch.ones(9)[x]", "torch.randint(0, 9, (8, 8))", False, False),
        ("torch.bincount(x.flatten())", "torch.randint(0, 9, (8, 8))", False, False),
        ("torch.arange(64.0).reshape(8, 8).gather(1, x)", "torch.randint(0, 8, (8, 8))", False, False),
        ("(x >> 3) & 15", "torch.randint(0, 8, (8, 8))", False, True),
        ("torch.ones(16)[(x >> 3) & 15]", "torch.randint(0, 8, (8, 8))", False, True),
        ("x.float().sin()", "torch.randint(0, 8, (8, 8), dtype=torch.uint8)", False, True),
        ("x.float().sin()", "torch.randint(0, 8, (8, 8))", False, False),
        ("(x % 4096)[:, :1].float().sin()", "torch.randint(0, 8, (8, 8))", False, True),
        ("torch.ones(9)[put(x)]", "torch.randint(0, 9, (8, 8))", False, False),
        ("1 << x", "torch.randint(0, 8, (8, 8))", False, False),
        ("x[0] >> x[1]", "torch.randint(0, 8, (8, 8))", False, False),
        ("x // 8 + x[:, :1]", "torch.randint(0, 8, (8, 8))", False, True),
        ("torch.arange(9) < x[:, :1]", "torch.randint(0, 8, (8, 8))", False, False),
        ("(x.unsqueeze(-1) == torch.arange(9)).sum(0)", "torch.randint(0, 9, (8, 8))", False, False),
        ("torch.ones(9)[(x * 0.5).long()]", "torch.randint(0, 9, (8, 8))", False, False),
        ("x[x[0, 0] * 0 : x[0, 1] + 1]", "torch.randint(0, 9, (8, 8))", False, False),
        ("x >> torch.arange(8)", "torch.randint(0, 9, (8, 8))", False, True),
        ("x >> x", "torch.randint(0, 9, (8, 8))", False, False),
        ("torch.sort(x, dim=-1, stable=True)[1]", "torch.randn(8, 8)", False, True),
        ("x.argsort(dim=-1, stable=False)", "torch.randn(8, 8)", True, True),
    ],
)
def test_it_is_known_what_ties_and_integers_mean_to_a_reference(
    forward: str, inputs: str, chooses: bool, varies: bool
) -> None:
    """Issue 24, point 2: an index out of range would end a GPU's context."""
    source = f"""
import torch
def put(x):
    y = torch.zeros(8, 9, dtype=x.dtype)
    y[:, 1:] = x
    return y
class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
    own = cases.describe(source, None, torch.device("cpu"), dynamic_shapes=False, declared=None, element_limit=1 << 20)[
        "cases"
    ]["own"]
    assert (own["breaks_ties"], own["varies_integers"]) == (chooses, varies)


@pytest.mark.parametrize(
    ("forward", "solves"), [("torch.linalg.inv(x)", True), ("x.inverse()", True), ("x + 1", False)]
)
def test_it_is_known_where_a_matrix_is_inverted(forward: str, solves: bool) -> None:
    source = TASK.replace("self.linear(x).relu()", f"self.linear(x).sum() + ({forward})")
    source = source.replace("else torch.rand(M, width)", "else torch.rand(width, width)")
    found = cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=None)
    assert found["cases"]["own"]["solves"] == solves


@pytest.mark.parametrize(
    ("forward", "searches"),
    [
        ("torch.searchsorted(torch.rand(4).cumsum(0), x)", True),
        ("torch.bucketize(2 * x, x.flatten())", False),
        ("torch.bucketize(x, 2 * x.flatten())", True),
    ],
)
def test_it_is_known_where_something_computed_has_to_be_sorted(forward: str, searches: bool) -> None:
    source = TASK.replace("self.linear(x).relu()", f"self.linear(x).sum() + ({forward})")
    found = cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=None)
    assert found["cases"]["own"]["searches"] == searches


def test_uneven_sizes_and_other_arguments_are_looked_for() -> None:
    """Issue 24, points 4 and 5."""
    source = TASK.replace("def __init__(self, features):", "def __init__(self, features, scale=1.0):")
    source = source.replace("return [width]", "return [width, 0.5]")
    found = cases.describe(source, None, CPU, dynamic_shapes=False, declared=None, element_limit=1 << 20)
    others = {case["name"]: case["overrides"] for case in found["cases"]["other"]}
    primes = others["shape prime"]
    assert primes["M"] == 127 and primes["width"] == 31, primes
    assert others["shape odd"] == {"M": 129}
    assert others["arguments x1.25"] == {"eps": 1.25e-5, "get_init_inputs:float0": 0.625}
    assert next(case for case in found["cases"]["other"] if case["name"] == "arguments x1.25")["init"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_equal_values_of_half_types_are_told_apart_and_others_keep_their_order(dtype: torch.dtype) -> None:
    x = torch.randn(4, 500, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[0, :4] = torch.tensor([2.0, -1.0, 2.0, -1.0])
    falling, rising = (cases.cast_untied([x, x.float(), torch.arange(3)], name) for name in cases.UNTIED)
    order = x.sort(stable=True, dim=-1).indices
    assert (x.sort(dim=-1).values.diff() == 0).any() and (rising[0].gather(-1, order).diff() > 0).all()
    order = x.sort(stable=True, dim=-1, descending=True).indices
    assert (falling[0].gather(-1, order).diff() < 0).all()
    assert falling[0][0, 0] > falling[0][0, 2] and falling[0][0, 1] > falling[0][0, 3], "the first is the largest"
    assert rising[0][0, 0] < rising[0][0, 2] and rising[0][0, 1] < rising[0][0, 3], "the first is the smallest"
    assert torch.equal(falling[1], x.double()) and torch.equal(falling[2], torch.arange(3))
    masked = torch.tensor([-torch.inf, 1.0, 1.0, torch.inf, torch.inf]).to(dtype)
    (apart,) = cases.cast_untied([masked], "float64 falling")
    assert apart[1] > apart[2] and torch.equal(apart[[0, 3, 4]], masked[[0, 3, 4]].double())
