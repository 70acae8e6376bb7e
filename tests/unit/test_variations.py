"""The transformations of inputs: what they change, and what a task's structure keeps."""

from __future__ import annotations

import torch
import variations


def test_signs_change_about_half_and_keep_magnitudes() -> None:
    tensor = torch.rand(64, 64) + 0.5
    before = tensor.clone()
    assert variations.apply("signs", [tensor], 3)
    assert torch.equal(tensor.abs(), before)
    assert 0.4 < float((tensor < 0).float().mean()) < 0.6


def test_spikes_leave_the_range_of_half_precision_on_both_sides() -> None:
    for seed in range(20):
        tensor = torch.randn(40, 50)
        variations.apply("spikes", [tensor], seed)
        assert float(tensor.max()) > 100 and float(tensor.min()) < -100
        assert int((tensor.abs() > 20).sum()) < 20


def test_positive_inputs_stay_positive_under_spikes() -> None:
    tensor = torch.rand(40, 50) + 0.1
    variations.apply("spikes", [tensor], 1)
    assert float(tensor.min()) > 0


def test_zeros_stay_zeros() -> None:
    tensor = torch.tril(torch.randn(64, 64) + 2.0)
    for name in variations.TRANSFORMS:
        changed = tensor.clone()
        variations.apply(name, [changed], 5)
        assert torch.equal(changed.triu(1), torch.zeros(64, 64)), name
        assert not torch.equal(changed, tensor), name


def test_symmetric_matrices_stay_symmetric() -> None:
    tensor = torch.randn(32, 32)
    tensor = tensor + tensor.T
    for name in variations.TRANSFORMS:
        changed = tensor.clone()
        variations.apply(name, [changed], 5)
        assert torch.equal(changed, changed.T), name
        assert not torch.equal(changed, tensor), name


def test_integers_are_left_alone() -> None:
    tensor = torch.arange(10)
    assert not variations.apply("signs", [tensor], 1)
    assert torch.equal(tensor, torch.arange(10))


def test_views_with_gaps_are_changed_too() -> None:
    tensor = torch.rand(8, 8)[:, ::2]
    before = tensor.clone()
    assert variations.apply("signs", [tensor], 1)
    assert torch.equal(tensor, -before)
