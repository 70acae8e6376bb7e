"""Constant parameters vary alike in the reference and in a candidate that names, shapes or packs them otherwise."""

from __future__ import annotations

import torch
from live import weights


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


def build(kind: type[torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(3)
    with weights.varied():
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


def test_afterwards_everything_is_as_it_was() -> None:
    before = torch.nn.init.ones_, torch.nn.Parameter.__new__
    build(Reference)
    assert (torch.nn.init.ones_, torch.nn.Parameter.__new__) == before
    assert torch.equal(torch.nn.LayerNorm(4).weight, torch.ones(4))
    assert torch.equal(torch.nn.Parameter(torch.zeros(3)), torch.zeros(3))
