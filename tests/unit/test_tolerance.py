"""The comparison: every rule of docs/tolerances.md seen to accept and to refuse."""

from __future__ import annotations

import pytest
import tolerance
import torch
from tolerance import Limit, compare, limit_for, relative_error, unravel

LIMIT = Limit(1e-4, 1e-4)


def test_accepts_within_and_refuses_beyond() -> None:
    wanted = torch.linspace(-2, 2, 101)
    assert compare(wanted + 5e-5, wanted, LIMIT).is_match(LIMIT)
    got = wanted.clone()
    got[17] += 1e-2
    found = compare(got, wanted, LIMIT)
    assert not found.is_match(LIMIT) and found.differing == 1 and found.first == 17
    assert found.max_abs == pytest.approx(1e-2, rel=1e-3)


def test_nan_and_infinity_match_only_themselves() -> None:
    wanted = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
    assert compare(wanted.clone(), wanted, LIMIT).is_match(LIMIT)
    for index in range(4):
        got = wanted.clone()
        got[index] = float("nan") if index != 1 else 0.0
        found = compare(got, wanted, LIMIT)
        assert not found.is_match(LIMIT) and found.first == index
        assert found.nonfinite == (1 if index == 0 else 0)


def test_share_of_outliers_has_a_cap() -> None:
    limit = Limit(1e-2, 1e-2, ratio=0.99, outlier=10.0)
    wanted = torch.ones(1000)
    got = wanted.clone()
    got[:10] += 0.05
    assert compare(got, wanted, limit).is_match(limit)
    got[10] += 0.05
    assert not compare(got, wanted, limit).is_match(limit)
    got = wanted.clone()
    got[0] += 1.0
    assert not compare(got, wanted, limit).is_match(limit)


def test_integers_are_equal_or_not() -> None:
    wanted = torch.arange(10)
    limit = limit_for(torch.int64, wanted, 0.0, tf32=True)
    assert compare(wanted.clone(), wanted, limit).is_match(limit)
    got = wanted.clone()
    got[9] += 1
    assert not compare(got, wanted, limit).is_match(limit)


def test_limit_grows_with_the_references_own_error_up_to_a_cap() -> None:
    wanted = torch.ones(64, dtype=torch.float64)
    assert limit_for(torch.float32, wanted, 0.0, tf32=False).rtol == tolerance.TABLE[torch.float32].base
    assert limit_for(torch.float32, wanted, 1e-3, tf32=False).rtol == pytest.approx(4e-3)
    assert limit_for(torch.float32, wanted, 1.0, tf32=False).rtol == tolerance.TABLE[torch.float32].most
    assert limit_for(torch.float32, wanted, 0.0, tf32=True).rtol == tolerance.TF32_BASE


def test_half_precision_inside_a_float32_task_shows() -> None:
    wanted = torch.randn(4096, dtype=torch.float64)
    limit = limit_for(torch.float32, wanted, 1e-7, tf32=False)
    assert compare(wanted.float(), wanted, limit).is_match(limit)
    assert not compare(wanted.half().float(), wanted, limit).is_match(limit)
    assert not compare(wanted.bfloat16().float(), wanted, limit).is_match(limit)


def test_zeros_do_not_make_the_limit_zero() -> None:
    wanted = torch.relu(torch.randn(4096, dtype=torch.float64) - 2.0)
    assert tolerance.scale_of(wanted) > 0.1
    assert relative_error(wanted.float(), wanted) < 1e-6


def test_unravel() -> None:
    assert unravel(23, (2, 3, 4)) == [1, 2, 3]
    assert unravel(0, ()) == []


@pytest.mark.gpu
def test_fused_comparison_agrees_with_the_plain_one() -> None:
    if not torch.cuda.is_available():
        pytest.skip("gpu: no GPU on this machine")
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        wanted = torch.randn(1 << 20, dtype=torch.float64) * 3
        got = (wanted + torch.randn(1 << 20, dtype=torch.float64) * 1e-3).to(dtype)
        got[5], wanted[9], got[9] = float("nan"), float("inf"), float("inf")
        limit = Limit(1e-3, 1e-3, 0.999, 2.0)
        plain, fused = compare(got, wanted, limit), compare(got.cuda(), wanted.cuda(), limit)
        for name in ("elements", "differing", "beyond_outlier", "nonfinite", "first", "first_is_nonfinite"):
            assert getattr(plain, name) == getattr(fused, name), name
        assert plain.max_abs == pytest.approx(fused.max_abs) and plain.max_rel == pytest.approx(fused.max_rel, rel=1e-3)


def _tf32(x: torch.Tensor) -> torch.Tensor:
    """As a matrix unit reads it: the low 13 bits of the mantissa cut off."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("shape", [(72, 128, 96), (600, 24, 40), (256, 2048, 256)])
def test_products_in_tf32_pass_and_in_bfloat16_do_not(shape: tuple[int, int, int]) -> None:
    """TF32 cut in one library and rounded in the other, on inputs with both signs, over many draws."""
    rows, inner, columns = shape
    for seed in range(20):
        torch.manual_seed(seed)
        a, b = torch.randn(rows, inner), torch.rand(columns, inner) * 2 - 1
        wanted = (a.double() @ b.double().T).relu()
        own_error = relative_error((_tf32(a) @ _tf32(b).T).relu(), wanted) / 2  # rounding errs half as much
        limit = limit_for(torch.float32, wanted, own_error, tf32=True)
        assert compare((_tf32(a) @ _tf32(b).T).relu(), wanted, limit).is_match(limit), seed
        half = (a.bfloat16().float() @ b.bfloat16().float().T).relu()
        assert not compare(half, wanted, limit).is_match(limit), seed
