"""Constant parameters vary alike in the reference and in a candidate that names, shapes or packs them otherwise."""

from __future__ import annotations

import torch
import tracing
from executor.replay import Replay
from live import weights
from shared import plan


class Reference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(6)
        self.linear = torch.nn.Linear(6, 4)
        self.batch = torch.nn.BatchNorm1d(4)
        self.scale = torch.nn.Parameter(torch.tensor(0.5))


class Candidate(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.ones(2, 3))
        self.packed = torch.stack([self.gamma.detach().flatten(), torch.zeros(6)])
        self.linear = torch.nn.Linear(6, 4)
        self.factor = torch.nn.Parameter(torch.full((1,), 0.5))
        self.late = torch.nn.Parameter(torch.empty(6))
        self.late.data.fill_(1.0)


def build(kind: type[torch.nn.Module], *, statistics: bool = True) -> torch.nn.Module:
    torch.manual_seed(3)
    with weights.varied(statistics=statistics):
        model = kind()
    weights.vary_rest(model)
    return model


def test_no_parameter_of_a_norm_is_constant() -> None:
    model = build(Reference)
    for name in ("norm.weight", "norm.bias", "batch.weight", "batch.bias", "batch.running_mean", "batch.running_var"):
        found = model.state_dict()[name]
        assert len(found.unique()) == found.numel(), name
        assert float(found.min()) >= 0, name
    assert float(model.state_dict()["norm.weight"].min()) >= 1
    assert int(model.state_dict()["batch.num_batches_tracked"]) == 0


class Buffers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean_ema", torch.zeros(1, 6, 1))
        self.register_buffer("scale", torch.tensor(1.0))
        self.register_buffer("filter", torch.ones(3, 3) / 9)
        self.register_buffer("mask", torch.ones(4, 4))
        self.register_buffer("decay", torch.full((6,), 0.9))
        self.register_buffer("made_anew", torch.zeros(6), persistent=False)
        self.folded = self.scale * 2


def test_statistics_in_buffers_of_any_name_vary_and_other_constants_stay() -> None:
    """Issue 24: a kernel with a mean of 0 and a scale of 1 written into it was right."""
    found, plain = build(Buffers), Buffers()
    assert len(found.mean_ema.unique()) == 6 and found.scale != 1
    assert found.folded == found.scale * 2
    for name in ("filter", "mask", "decay", "made_anew"):
        assert torch.equal(getattr(found, name), getattr(plain, name)), name
    own = build(Buffers, statistics=False)
    assert torch.equal(own.mean_ema, plain.mean_ema), "a candidate's zeros may be a bias that there is not"


def test_what_is_drawn_at_random_stays() -> None:
    torch.manual_seed(3)
    plain = Reference()
    assert torch.equal(build(Reference).state_dict()["linear.weight"], plain.linear.weight)


def test_other_names_and_shapes_get_the_same_values() -> None:
    theirs, mine = build(Reference), build(Candidate)
    assert torch.equal(mine.gamma.flatten(), theirs.norm.weight)
    assert torch.equal(mine.packed[0], theirs.norm.weight)
    assert torch.equal(mine.late, theirs.norm.weight)
    assert mine.factor.item() == theirs.scale.item() != 0.5
    assert torch.equal(mine.linear.weight, theirs.linear.weight)


MODULE = f"""
{tracing.HEAD}
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(2, 3))
        self.packed = self.gamma.detach() * 2
        self.factor = nn.Parameter(torch.full((1,), 0.5))
        self.half = self.factor.detach() / 2
        self.line = nn.Linear(1, 1)
        self.norm = nn.BatchNorm1d(6)
        self.linear = nn.Linear(6, 4)
        self.register_buffer("mean_ema", torch.zeros(6))
        self.register_buffer("mask", torch.ones(2, 3))
    def forward(self, x):
        n = self.norm
        return (self.gamma, self.packed, n.weight, n.bias, n.running_mean, n.running_var, self.linear.weight,
                self.mean_ema, self.mask, self.factor, self.half, self.line.weight)
"""


def test_a_parameter_of_one_element_varies_once() -> None:
    """Under a device's context torch fills it from inside, too: one of another name had other values."""
    with torch.device("cpu"), weights.varied(statistics=True):
        slope, other = torch.nn.PReLU().weight, torch.nn.Parameter(torch.full((1,), 0.25))
    assert torch.equal(slope, other) and slope != 0.25


def test_a_parameter_that_a_method_fills_varies() -> None:
    """A kernel with 0.5 written into it was right."""
    with weights.varied(statistics=True), torch.no_grad():
        filled, other = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.full((1,), 0.5))
        filled.fill_(0.5)
        plain = torch.empty(1).fill_(0.5)
    assert torch.equal(filled, other) and filled != 0.5 == plain


def test_the_plan_of_a_module_varies_what_the_module_would() -> None:
    """An honest kernel with a gamma of its own was refused: its plan made a gamma of ones."""
    found = tracing.traced(MODULE, {"own": tracing.case([torch.zeros(6)])})
    assert found.plan is not None, found.refusals
    trace = plan.parse(found.plan).trace("own")
    names: dict[str, type[torch.nn.Module]] = {}
    exec(MODULE, names)
    live = build(names["ModelNew"], statistics=False)

    def nothing(*_: object) -> None:
        raise AssertionError("there is nothing to launch")

    model = Replay(trace, torch.device("cpu"), nothing, nothing, allows=lambda _: True, prepares=lambda _: True)
    model.construct(3, weights.vary_made)
    x = torch.zeros(6)
    for mine, theirs in zip(model.call([x]), live(x), strict=True):
        assert torch.equal(mine, theirs), (mine, theirs)
    assert model.load({"mean_ema": torch.full((6,), 2.0)}) == {"mean_ema"}


def test_afterwards_everything_is_as_it_was() -> None:
    before = torch.nn.init.ones_, torch.nn.Parameter.__new__, torch.nn.Module.register_buffer
    build(Reference)
    assert (torch.nn.init.ones_, torch.nn.Parameter.__new__, torch.nn.Module.register_buffer) == before
    assert torch.equal(torch.nn.LayerNorm(4).weight, torch.ones(4))
    assert torch.equal(torch.nn.Parameter(torch.zeros(3)), torch.zeros(3))
