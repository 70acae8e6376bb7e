"""The comparison: every rule of docs/tolerances.md seen to accept and to refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from oracle import tolerance
from oracle.tolerance import Limit, compare, limit_for, relative_error, unravel

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


def test_a_whole_answer_of_another_run_is_right_and_a_mixture_is_not() -> None:
    """Where TF32 moves a deep network by more than any limit, its own answer in TF32 is what a candidate can have."""
    wanted, other = torch.randn(256), torch.randn(256)
    limit = limit_for(torch.float32, wanted, 1.0, tf32=True)
    assert not compare(other, wanted, limit).is_match(limit)
    assert compare(other, wanted, limit, other).is_match(limit)
    assert compare(wanted.clone(), wanted, limit, other).is_match(limit)
    mixed = torch.where(torch.arange(256) < 128, wanted, other)
    assert not compare(mixed, wanted, limit, other).is_match(limit)
    assert tolerance.is_coarse(torch.float32, 0.1) and not tolerance.is_coarse(torch.float32, 1e-3)


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


def test_all_the_weight_in_a_few_elements_does_not_make_the_rest_exact() -> None:
    """A softmax of large values: beside the ones its values are below what float32 can hold."""
    x = 100 * torch.randn(4, 1024, generator=torch.Generator().manual_seed(1))
    wanted = torch.softmax(x.double(), -1)
    limit = limit_for(torch.float32, wanted, 0.0, tf32=False)
    got = torch.softmax(x, -1)
    got[got < torch.finfo(torch.float32).tiny] = 0.0  # as fast arithmetic does
    assert compare(got, wanted, limit).is_match(limit)
    assert not compare(0.999 * got, wanted, limit).is_match(limit)
    assert not compare(torch.zeros_like(got), wanted, limit).is_match(limit)
    seldom = got.clone()
    small = (got > 1e-11) & (got < 0.3)
    assert small.any()
    seldom[small] = 0.0
    assert not compare(seldom, wanted, limit).is_match(limit)


def test_a_softmax_in_half_precision_may_be_rounded_to_its_last_step() -> None:
    """Most of it is below the steps of float16: its reference was not fit for large logits."""
    x = (100 * torch.randn(64, 200, generator=torch.Generator().manual_seed(1))).half()
    wanted = torch.softmax(x.double(), -1)
    got = wanted.half()
    assert relative_error(got, wanted) < tolerance.TABLE[torch.float16].most
    limit = limit_for(torch.float16, wanted, 0.0, tf32=False)
    assert compare(got, wanted, limit).is_match(limit)
    assert not compare(got + 1e-6, wanted, limit).is_match(limit)


def test_chance_is_allowed_for_under_secret_transformations_alone() -> None:
    wanted = torch.randn(10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    plain = limit_for(torch.float32, wanted, 0.0, tf32=False)
    loose = limit_for(torch.float32, wanted, 0.0, tf32=False, ratio=tolerance.EXTREME_RATIO)
    half = limit_for(torch.float16, wanted, 0.0, tf32=False, ratio=tolerance.EXTREME_RATIO)
    assert (plain.ratio, loose.ratio, half.ratio) == (1.0, 0.995, 0.995) and loose.rtol == plain.rtol
    for count, factor, is_right in ((50, 5, True), (51, 5, False), (1, 20, False)):
        got = wanted.clone()
        got[:count] += factor * (plain.atol + plain.rtol * wanted[:count].abs())
        found = compare(got, wanted, loose)
        assert found.is_match(loose) == is_right, (count, factor)
        assert not compare(got, wanted, plain).is_match(plain)


@pytest.mark.parametrize(("scale", "error", "is_right"), [(1e-3, 3e-7, True), (1e-3, 4e-7, False), (1e-5, 2e-8, False)])
def test_small_answers_to_extreme_inputs_may_have_the_last_digits_of_one(
    scale: float, error: float, is_right: bool
) -> None:
    """A tanh as libraries write it, 2 * sigmoid(2 * x) - 1, was refused at inputs of a thousandth."""
    wanted = torch.full((1000,), scale, dtype=torch.float64)
    for ratio in (1.0, tolerance.EXTREME_RATIO):
        limit = limit_for(torch.float32, wanted, 0.0, tf32=False, ratio=ratio)
        assert compare(wanted + error, wanted, limit).is_match(limit) == (is_right and ratio < 1.0)


def test_an_answer_vanishes_beside_a_plain_one() -> None:
    """What log(1 + exp(-x)) answers at x = 20 is the last digit of one, or nothing."""
    plain = (0.7, None, 1.0)
    assert tolerance.vanishes((2e-9, None, 1e-8), plain)
    assert not tolerance.vanishes((2e-9, None, 1e-6), plain)
    assert not tolerance.vanishes((2e-9,), (3e-9,))
    assert not tolerance.vanishes((None,), (None,))


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, parts: int) -> torch.Tensor:
    """Causal; each logit a sum of so many sums."""
    width = q.shape[-1] // parts
    pairs = zip(q.split(width, -1), k.split(width, -1), strict=True)
    logits = sum((a @ b.transpose(-2, -1) for a, b in pairs), start=torch.zeros(())) * q.shape[-1] ** -0.5
    later = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    return torch.softmax(logits.masked_fill(later, float("-inf")), dim=-1) @ v


def test_an_attention_of_huge_logits_is_not_refused_by_chance() -> None:
    """Where the two greatest of a row are nearly one, the last bit of a sum moves the answer."""
    generator = torch.Generator().manual_seed(0)
    refused = {1.0: 0, tolerance.EXTREME_RATIO: 0}
    for _ in range(500):
        q, k, v = (100 * torch.randn(2, 3, 70, 32, generator=generator) for _ in range(3))
        wanted = _attention(q.double(), k.double(), v.double(), 1)
        own = relative_error(_attention(q, k, v, 1), wanted)
        got = _attention(q, k, v, 2)
        for ratio in refused:
            limit = limit_for(torch.float32, wanted, own, tf32=False, ratio=ratio)
            refused[ratio] += not compare(got, wanted, limit).is_match(limit)
    assert refused[1.0] > 0
    assert refused[tolerance.EXTREME_RATIO] == 0


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
        for expected, start in ((wanted, 0), (wanted.to(dtype), 0), (got.clone(), 16)):
            a, b = got[start:], expected[start:]
            plain, fused = compare(a, b, limit), compare(a.cuda(), b.cuda(), limit)
            for name in ("elements", "differing", "beyond_outlier", "nonfinite", "first"):
                assert getattr(plain, name) == getattr(fused, name), (name, dtype, expected.dtype)
            assert plain.max_abs == pytest.approx(fused.max_abs)
            assert plain.max_rel == pytest.approx(fused.max_rel, rel=1e-3)


INTERPRETED = """
import math, sys
import torch
from oracle import fused
from oracle import tolerance

screen, screened = fused._screen, []
def counted(got, expected, told, *limit):
    screen(got, expected, told, *limit)
    screened.append(not told[0])
fused._screen = counted

def changed(kind, wanted):
    got, middle = wanted.clone(), wanted.numel() // 2
    if kind == "near the limit":
        got = (wanted.float() * (1 + 0.0099)).to(wanted.dtype)
    elif kind == "just beyond it":
        got = (wanted.float() * (1 + 0.010001)).to(wanted.dtype)
    elif kind == "one off":
        got[-1] += 1
    elif kind == "zeros":
        wanted.zero_(), got.zero_()
    elif kind == "one is NaN":
        got[middle] = math.nan
    elif kind == "NaN is wanted":
        wanted[middle] = math.nan
    elif kind == "infinity is wanted":
        wanted[middle] = math.inf
    elif kind == "both infinite":
        wanted[middle] = got[middle] = math.inf
    elif kind == "the other infinity":
        wanted[0], got[0] = math.inf, -math.inf
    return got

KINDS = ("equal", "near the limit", "just beyond it", "one off", "zeros", "one is NaN", "NaN is wanted",
         "infinity is wanted", "both infinite", "the other infinity")
torch.manual_seed(0)
for kind in KINDS:
    for dtype in (torch.float32, torch.bfloat16):
        for atol, ratio, outlier in ((0.0, 1.0, 1.0), (1e-2, 0.999, 10.0)):
            wanted = torch.randn(1500).to(dtype)
            got = changed(kind, wanted)
            limit = tolerance.Limit(1e-2, atol, ratio, outlier)
            quick, plain = tolerance._compare_fused(got, wanted, limit), tolerance.compare(got, wanted, limit)
            for name in ("elements", "differing", "beyond_outlier", "nonfinite", "first"):
                assert getattr(quick, name) == getattr(plain, name), (kind, dtype, limit, name, quick, plain)
            assert math.isclose(quick.max_abs, plain.max_abs, rel_tol=1e-5), (kind, dtype, quick, plain)
print(sum(screened), len(screened))
"""


def test_the_quick_screen_lets_nothing_pass_that_the_whole_comparison_would_not() -> None:
    """The kernels of fused.py under Triton's interpreter."""
    environment = os.environ | {"PYTHONPATH": str(Path(tolerance.__file__).parents[1]), "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-c", INTERPRETED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    screened, asked = map(int, done.stdout.split())
    assert asked == 40 and 8 <= screened <= 20, done.stdout  # it is of use, and not to all


FAR_OFF = """
import math, torch
from oracle import fused
from oracle import tolerance
got, wanted = torch.full((4,), -torch.finfo(torch.float32).max), torch.full((4,), 1e-20)
for limit in (tolerance.Limit(1e-2, 1e-2), tolerance.Limit(0.0, 0.0)):
    found = tolerance._compare_fused(got, wanted, limit)
    assert found.differing == 4 and math.isfinite(found.max_abs) and math.isfinite(found.max_rel), found
"""


def test_an_error_that_single_precision_cannot_hold_is_told_as_its_largest_number() -> None:
    """Issue 21, point 9: a maximum that never ran answers with the least number of its type."""
    environment = os.environ | {"PYTHONPATH": str(Path(tolerance.__file__).parents[1]), "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-c", FAR_OFF]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr


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


def _rounded_tf32(x: torch.Tensor) -> torch.Tensor:
    """To the nearest value with 10 bits."""
    return ((x.view(torch.int32) + 0xFFF + ((x.view(torch.int32) >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def _product(kind: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b in float32 as each way of computing it would give it."""
    if kind == "ieee":
        return a @ b
    if kind == "tf32x3":
        high, low = (_rounded_tf32(a), _rounded_tf32(b)), (a - _rounded_tf32(a), b - _rounded_tf32(b))
        return high[0] @ high[1] + (high[0] @ _rounded_tf32(low[1]) + _rounded_tf32(low[0]) @ high[1])
    if kind == "tf32":
        return _tf32(a) @ _tf32(b)
    if kind == "bf16":
        return a.bfloat16().float() @ b.bfloat16().float()
    if kind == "fp16":
        return a.half().float() @ b.half().float()
    if kind == "bf16 result":
        return (a @ b).bfloat16().float()
    assert kind == "fp16 sums"
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float16)
    for k in range(0, a.shape[1], 16):
        total += (a[:, k : k + 16] @ b[k : k + 16]).half()
    return total.float()


@pytest.mark.parametrize(
    ("kind", "in_tf32", "in_ieee"),
    [
        ("ieee", True, True),
        ("tf32x3", True, True),
        ("tf32", True, False),
        ("bf16", False, False),
        ("bf16 result", False, False),
        ("fp16 sums", False, False),
        ("fp16", True, False),
    ],
)
def test_precisions_of_a_product(kind: str, in_tf32: bool, in_ieee: bool) -> None:
    """The table of docs/tolerances.md. fp16 operands err as TF32 ones do: their range tells them apart, below."""
    for seed, inner in enumerate((64, 256, 1024)):
        torch.manual_seed(seed)
        a, b = torch.randn(128, inner), torch.randn(inner, 96)
        wanted, own = a.double() @ b.double(), a @ b
        got = _product(kind, a, b)
        for tf32, passes in ((True, in_tf32), (False, in_ieee)):
            allowed = _rounded_tf32(a) @ _rounded_tf32(b) if tf32 else own
            limit = limit_for(torch.float32, wanted, relative_error(allowed, wanted), tf32=tf32)
            found = compare(got, wanted, limit).is_match(limit) and not tolerance.is_rounded(got, allowed)
            assert found == passes, (kind, inner, tf32)


def test_spikes_leave_the_range_of_fp16_operands() -> None:
    from oracle import variations

    torch.manual_seed(0)
    a, b = torch.randn(128, 256), torch.randn(256, 96)
    variations.apply("spikes", [a], 1)
    wanted = a.double() @ b.double()
    limit = limit_for(torch.float32, wanted, 1e-3, tf32=True)
    assert compare(_product("tf32", a, b), wanted, limit).is_match(limit)
    assert compare(_product("fp16", a, b), wanted, limit).nonfinite


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_reductions_and_maps_in_half_precision_show(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 2048)
    rows: list[tuple[torch.Tensor, torch.Tensor]] = [
        (x.to(dtype).cumsum(1)[:, -1].float(), x.double().sum(1)),
        (torch.softmax(x.to(dtype), 1).float(), torch.softmax(x.double(), 1)),
        (torch.sigmoid(x.to(dtype)).float(), torch.sigmoid(x.double())),
        ((x.to(dtype) * 1.5).float(), x.double() * 1.5),
    ]
    for got, wanted in rows:
        limit = limit_for(torch.float32, wanted, relative_error(wanted.float(), wanted), tf32=False)
        assert not compare(got, wanted, limit).is_match(limit)


def test_coarse_values_are_no_rounding_where_the_references_are_coarse_too() -> None:
    ones = torch.randint(-3, 3, (64, 64)).float()
    assert not tolerance.is_rounded(ones, ones)
    fine = torch.randn(64, 64)
    for dtype in (torch.float16, torch.bfloat16):
        assert tolerance.is_rounded(fine.to(dtype).float(), fine)
    assert tolerance.is_rounded(fine.bfloat16().half(), fine.half())
    assert not tolerance.is_rounded(fine, fine) and not tolerance.is_rounded(fine.half(), fine.half())
    picked = torch.eye(64) @ _tf32(fine)
    assert not tolerance.is_rounded(picked, picked), "a product with one term and 1, in TF32 on both sides"
    assert not tolerance.is_rounded(fine[:10, :10].half().float(), fine[:10, :10]), "too few to tell"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_values_of_eight_bits_that_are_cut_off_are_not_rounded(dtype: torch.dtype) -> None:
    exact = 20 * torch.randn(64, 128, generator=torch.Generator().manual_seed(3))
    digits = 20 if dtype is torch.float8_e4m3fn else 21
    cut = (exact.view(torch.int32) >> digits << digits).view(torch.float32).to(dtype)
    wanted = exact.double().to(dtype)
    noise = 1 + 3e-3 * torch.randn(exact.shape, generator=torch.Generator().manual_seed(4))
    own = tolerance.sample(exact.bfloat16().to(dtype))
    limit = limit_for(dtype, wanted, 0.0, tf32=False)
    for wrong in (cut, (exact * 0.95).to(dtype)):
        assert compare(wrong, wanted, limit).is_match(limit) and tolerance.is_misrounded(wrong, own, wanted)
    for honest in (exact.to(dtype), exact.bfloat16().to(dtype), (exact * noise).to(dtype)):
        assert not tolerance.is_misrounded(honest, own, wanted)
    zeroed, own, most = (
        wanted.double() * (exact > 0),
        own.double() * (tolerance.sample(exact) > 0),
        cut.double() * (exact > 0),
    )
    assert tolerance.is_misrounded(most.to(dtype), own.to(dtype), zeroed.to(dtype)), "a half of zeros hides nothing"
    own = tolerance.sample(exact.bfloat16().to(dtype))
    assert not tolerance.is_misrounded(cut[:2, :8], tolerance.sample(wanted[:2, :8]), wanted[:2, :8]), "too few to tell"


def test_of_several_right_answers_integers_may_mix_and_floats_may_not() -> None:
    a, b, c, exact = torch.tensor([1, 5, 9]), torch.tensor([2, 5, 9]), torch.tensor([1, 7, 9]), Limit(0.0, 0.0)
    others = torch.stack([b, c])
    for got in (a, b, c, torch.tensor([2, 7, 9])):
        assert compare(got, a, exact, others).is_match(exact)
    assert not compare(torch.tensor([1, 6, 9]), a, exact, others).is_match(exact)
    limit = Limit(1e-6, 1e-6)
    for got in (a, b, c, torch.tensor([2, 7, 9])):
        found = compare(got.float(), a.float(), limit, others.float())
        assert found.is_match(limit) == any(torch.equal(got, one) for one in (a, b, c))


def test_integers_are_surely_within_where_they_are_equal() -> None:
    a, exact = torch.arange(6).reshape(2, 3), Limit(0.0, 0.0)
    assert tolerance.are_surely_within([(a.clone(), a, exact), (a > 2, a > 2, exact)])
    for wrong in (a + (a == 5), a.reshape(3, 2)):
        assert not tolerance.are_surely_within([(a.clone(), a, exact), (wrong, a, exact)])
    x = torch.ones(3)
    assert not tolerance.are_surely_within([(a, a, exact), (x, x, exact)]), "of floats a GPU's kernel says so"


@pytest.mark.parametrize(("elements", "most"), [(64, 0), (1_000, 1), (14_400, 5), (1 << 20, 135), (1 << 28, 27_335)])
def test_so_many_integers_may_be_rounded_otherwise(elements: int, most: int) -> None:
    """One in 10,000, and as many more as such a count scatters by: a small output is not refused for its second one."""
    share = tolerance.ambiguous_most(tolerance.AMBIGUOUS_LEAST, elements, tolerance.AMBIGUOUS_MOST)
    assert int(share * elements) == most


def test_of_integers_that_come_from_integers_none_may_differ() -> None:
    assert tolerance.ambiguous_most(0.0, 100, tolerance.AMBIGUOUS_MOST) == 0.0
    assert tolerance.ambiguous_most(1.0, 100, tolerance.AMBIGUOUS_MOST) == tolerance.AMBIGUOUS_MOST
