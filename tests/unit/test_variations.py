"""The transformations of inputs: what they change, and what a task's structure keeps."""

from __future__ import annotations

import pytest
import torch
from oracle import variations


def test_signs_change_about_half_and_keep_magnitudes() -> None:
    tensor = torch.rand(64, 64) + 0.5
    before = tensor.clone()
    assert variations.apply("signs", [tensor], 3)
    assert torch.equal(tensor.abs(), before)
    assert 0.4 < float((tensor < 0).float().mean()) < 0.6


def test_the_first_input_alone_may_change_its_signs() -> None:
    """A slope below zero was left out beside a variance, which is never below."""
    x, variance = torch.rand(64, 64), torch.rand(64, 64)
    kept = variance.clone()
    assert variations.apply("first signs", [x, variance], 3)
    assert (x < 0).any() and torch.equal(variance, kept)
    assert not variations.apply("first signs", [x], 3)
    assert variations.name_for("first signs", {"searches": True}) is None


def test_inputs_of_one_sign_become_large_on_both_sides() -> None:
    for sign in (1.0, -1.0):
        tensor = sign * torch.rand(40, 50)
        wanted = 100 * tensor.abs()
        wanted[-1, -1] = 1.25 * wanted.max()  # further below than any other
        assert variations.apply("wide", [tensor], 3) and torch.allclose(tensor.abs(), wanted)
        assert tensor[-1, -1] == tensor.min()
        assert float(tensor.min()) < -90 and float(tensor.max()) > 90
        assert not variations.apply("wide", [tensor], 3), "`large` does what is left"


def test_spikes_leave_the_range_of_half_precision_on_both_sides() -> None:
    for seed in range(20):
        tensor = torch.randn(40, 50)
        variations.apply("spikes", [tensor], seed)
        assert float(tensor.max()) > 100 and float(tensor.min()) < -100
        assert int((tensor.abs() > 20).sum()) < 20


def test_the_first_and_the_last_value_are_spikes() -> None:
    """Else a mean of many may leave one of them out."""
    for x in (torch.rand(128, 513) + 0.5, torch.randn(64)):
        changed, first, last = x.clone(), x.clone(), x.clone()
        assert variations.apply("spikes", [changed], 3) and variations.apply("spikes", [last, first], 3)
        assert changed.flatten()[0].abs() > 100 and changed.flatten()[-1].abs() > 100
        assert first.flatten()[0].abs() > 100 and last.flatten()[-1].abs() > 100, "of two tensors at one end each"
    few = torch.rand(8) + 0.5
    assert variations.apply("spikes", [few], 3) and int((few > 1000).sum()) <= 2


def test_the_last_value_is_the_greatest_of_all_or_the_least() -> None:
    """A maximum of a whole tensor that leaves its last block out was right, but by chance."""
    for seed in range(8):
        for name in ("spikes", "large"):
            x = torch.rand(64, 130) + 0.1
            assert variations.apply(name, [x], seed) and x[-1, -1] > 1.2 * x.flatten()[:-1].max(), name
    x, lower, masked = torch.rand(64, 130), torch.rand(64, 64).tril() - 2, torch.tensor([0.5, -torch.inf, 0.25])
    assert variations.apply("wide", [x], 3) and x[-1, -1] < 1.2 * x.flatten()[:-1].min()
    lower[-1, -1] = 0
    assert variations.apply("large", [lower, masked], 3) and lower[-1, -1] == 0 and masked[-1] == 25


def test_complex_numbers_are_changed_by_their_parts() -> None:
    z = torch.complex(torch.rand(8, 64), torch.rand(8, 64))
    kept = z.clone()
    assert variations.apply("large", [z], 3) and torch.allclose(z.flatten()[:-1], 100 * kept.flatten()[:-1])
    assert variations.apply("signs", [z], 3) and (z.real < 0).any() and (z.imag < 0).any()


def test_what_is_the_same_throughout_gets_values_and_nothing_else() -> None:
    x, bias, flags, none = torch.randn(8, 64), torch.zeros(64), (torch.arange(64) % 2).float(), torch.zeros(4).long()
    kept, scale = (x.clone(), flags.clone()), torch.ones(1)
    assert variations.apply("filled", [x, bias, flags, none, scale], 3)
    assert 1 < scale.item() < 2
    assert torch.equal(x, kept[0]) and torch.equal(flags, kept[1]) and not none.any()
    assert bool((bias >= 0).all()) and bias.max() > 8 and (bias < 1).any() and len(bias.unique()) > 32
    assert not variations.apply("filled", [x, flags, none], 3)


def test_products_of_opposed_inputs_are_far_below_zero() -> None:
    """A finite fill of a mask is then the greatest logit."""
    for name, side in (("opposed", 1), ("crossed", -1)):
        q, k = torch.randn(4, 32), torch.randn(9, 32)
        assert variations.apply(name, [q, k], 7) and (q @ k.T * 32**-0.5).max() < -20000
        assert (side * q > 0).all(), "a reference that is not finite one way may be the other way"
    assert not variations.apply("opposed", [torch.randn(4, 32), torch.ones(4)], 1), "one alone is `offset`"


def test_an_end_in_a_row_that_is_made_constant_is_a_spike() -> None:
    for seed in range(64):
        x, y = torch.rand(8, 64), torch.rand(8, 64)
        variations.apply("spikes", [x, y], seed)
        assert max(float(x[-1, -1]), float(y[-1, -1])) > 1000


def test_a_small_value_at_an_end_becomes_a_spike_as_others() -> None:
    for seed in (1, 2):
        x = torch.linspace(-1, 1, 257)
        x[0], x[-1] = 1e-6, -1e-6
        y = x.clone()
        variations.apply("spikes", [x, y], seed)
        large = [abs(float(ends[at])) > 0.4 * 131072 for ends in (x, y) for at in (0, -1)]
        assert sorted(large) == [False, False, True, True]
        assert x[0] > 0 > x[-1]


def test_rows_that_spikes_make_constant_have_an_exact_sum() -> None:
    """Else a layer norm tells kernels apart by how they round the mean: what is left of it is divided by 0.003."""
    for seed in range(20):
        tensor = torch.randn(40, 6, 770, generator=torch.Generator().manual_seed(seed))
        variations.apply("spikes", [tensor], seed)
        same = (tensor == tensor[..., :1]).all(-1)
        assert same.any(), "a slice is constant but for spikes"
        chosen = tensor[same]
        assert torch.equal(chosen.sum(-1), chosen[:, 0] * 770) and chosen.abs().max() <= 1


def test_some_rows_are_constant_but_for_one_place() -> None:
    """A kernel that looks at some places of a row takes it for constant."""
    for seed in range(20):
        tensor = torch.randn(64, 512, generator=torch.Generator().manual_seed(seed))
        variations.apply("spikes", [tensor], seed)
        others = (tensor != tensor.mode(-1).values[:, None]).sum(-1)
        assert (others == 1).any() and (others == 0).any()


def test_positive_inputs_stay_positive_under_spikes() -> None:
    tensor = torch.rand(40, 50) + 0.1
    variations.apply("spikes", [tensor], 1)
    assert float(tensor.min()) > 0


def test_zeros_stay_zeros() -> None:
    tensor = torch.tril(torch.randn(64, 64) + 2.0)
    for name in variations.TRANSFORMS:
        changed = tensor.clone()
        is_changed = variations.apply(name, [changed], 5)
        assert torch.equal(changed.triu(1), torch.zeros(64, 64)), name
        assert is_changed == (not torch.equal(changed, tensor)), name
        unfit = ("first signs", "permuted", "shifted", "constant rows", "ends", "wide", "opposed", "crossed", "filled")
        assert is_changed != (name in unfit), name


def test_symmetric_matrices_stay_symmetric() -> None:
    tensor = torch.randn(32, 32)
    tensor = tensor + tensor.T
    for name in variations.TRANSFORMS:
        changed = tensor.clone()
        is_changed = variations.apply(name, [changed], 5)
        assert torch.equal(changed, changed.T), name
        assert is_changed == (not torch.equal(changed, tensor)), name
        unfit = ("first signs", "shifted", "constant rows", "zeros", "nan", "ends", "wide", *variations.OPPOSED_NAMES)
        assert is_changed != (name in (*unfit, "filled")), name


def test_zeros_and_ones_keep_their_meaning() -> None:
    flags = (torch.arange(64.0).reshape(8, 8) % 3 == 0).float()
    for name in set(variations.TRANSFORMS) - set(variations.REARRANGING):
        changed = flags.clone()
        assert not variations.apply(name, [changed], 5) and torch.equal(changed, flags), name
    ones = torch.ones(8, 8)
    assert variations.apply("signs", [ones], 5) and (ones == -1).any(), "a constant may be any"


def test_integers_are_left_alone() -> None:
    tensor = torch.arange(10)
    assert not variations.apply("signs", [tensor], 1)
    assert torch.equal(tensor, torch.arange(10))


@pytest.mark.parametrize("name", variations.TRANSFORMS)
def test_a_number_that_is_nan_is_taken_as_it_is(name: str) -> None:
    """It is no label, as others without dimensions are."""
    number = torch.tensor(float("nan"))
    variations.apply(name, [torch.randn(4, 4), number], 3)
    assert number.isnan()


def test_views_with_gaps_are_changed_too() -> None:
    tensor = torch.rand(8, 8)[:, ::2]
    before = tensor.clone()
    assert variations.apply("signs", [tensor], 1)
    assert torch.equal(tensor, -before)


def test_offset_is_what_a_dtype_can_carry() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        tensor = torch.randn(64, 64).to(dtype)
        before = tensor.clone()
        assert variations.apply("offset", [tensor], 1)
        moved = tensor.double() - before.double()
        assert float(moved.min()) > 3
        assert len(tensor.unique()) > 100, "the values still differ"


def test_rearranged_inputs_have_the_same_values() -> None:
    tensor = torch.randn(41, 7, 5)
    for name in variations.REARRANGING:
        changed = tensor.clone()
        assert variations.apply(name, [changed], 3)
        assert not torch.equal(changed, tensor)
        assert torch.equal(changed.flatten().sort().values, tensor.flatten().sort().values), name
    changed = tensor.clone()
    variations.apply("permuted", [changed], 3)
    assert sorted(map(str, changed.tolist())) == sorted(map(str, tensor.tolist())), "whole rows move"
    assert int((changed != tensor).any(-1).any(-1).sum()) == 40, "but for the odd one, every row"


def test_rearranging_in_parts_is_rearranging(monkeypatch: object) -> None:
    tensor = torch.randn(41, 35)
    whole = tensor.clone(), tensor.clone(), tensor.clone(), tensor.clone()
    names = ("permuted", "shifted", "constant rows", "offset")
    for name, changed in zip(names, whole, strict=True):
        variations.apply(name, [changed], 3)
    monkeypatch.setattr(variations, "CHUNK", 100)  # type: ignore[attr-defined]
    for name, wanted in zip(names, whole, strict=True):
        changed = tensor.clone()
        variations.apply(name, [changed], 3)
        assert torch.equal(changed, wanted), name


def test_constant_rows_are_half_of_them() -> None:
    tensor = torch.randn(40, 6, 50)
    assert variations.apply("constant rows", [tensor], 3)
    assert int((tensor == tensor[..., :1]).all(-1).all(-1).sum()) == 20
    assert len(tensor[..., 0].unique()) > 180, "rows have values of their own"
    chosen = tensor[(tensor == tensor[..., :1]).all(-1).all(-1)]
    assert chosen.abs().max() <= 1
    assert torch.equal(chosen.sum(-1), chosen[..., 0] * 50), "exact in whatever order"


def test_labels_keep_their_values() -> None:
    for tensor in (torch.randint(0, 2, (100,)) * 2.0 - 1.0, torch.ones(8, 8)):
        before = tensor.clone()
        assert not variations.apply("large", [tensor], 3) and not variations.apply("offset", [tensor], 3)
        assert torch.equal(tensor, before)


def test_sparse_spikes_many_sets_at_once_each_in_places_of_its_own() -> None:
    plain = torch.randn(8 * 1024, generator=torch.Generator().manual_seed(1))
    memory = plain.clone()
    assert variations.sparse_sets(memory[:2000].view(40, 50), 4, 2048 * 4, 7)
    changed = [
        (row != before).nonzero().flatten().tolist()
        for row, before in zip(memory.split(2048), plain.split(2048), strict=True)
    ]
    assert [len(places) for places in changed] == [2, 2, 2, 2]
    assert len({tuple(places) for places in changed}) > 1
    assert all(place < 2000 for places in changed for place in places)
    for row, before, places in zip(memory.split(2048), plain.split(2048), changed, strict=True):
        assert sorted(torch.sign(row[places]).tolist()) == [-1, 1]
        assert torch.equal(row[places].abs(), before[places].abs() * variations.SPIKE[torch.float32])


def test_new_values_are_where_mistakes_show() -> None:
    """Issue 24, point 2: far below zero, tiny, zero, halfway between integers, at the ends of their type."""
    x = torch.randn(64, 64)
    lowered, small, zeros, ties = (x.clone() for _ in range(4))
    assert variations.apply("lowered", [lowered], 1) and lowered.max() < -900
    assert variations.apply("small", [small], 1) and torch.equal(small, x * 1e-3)
    assert variations.apply("zeros", [zeros], 1)
    assert 0.1 < (zeros == 0).double().mean() < 0.4 and (zeros == 0).all(-1).any()
    assert variations.apply("ties", [ties], 1) and torch.equal(ties * 16, torch.round(ties * 16))
    assert all(int((ties * scale % 1 == 0.5).sum()) > ties.numel() // 20 for scale in (1, 2, 4, 8)), ties
    integers = torch.randint(-9, 9, (64, 64), dtype=torch.int8)
    assert variations.apply("ends", [integers], 1) and {-128, -127, 126, 127} <= set(integers.flatten().tolist())
    sums = integers.float() @ torch.ones(64), torch.ones(64) @ integers.float()
    assert all(one.max() > 60 * 127 for one in sums), "no product of a row and a column leaves 16 bits"
    few = torch.zeros(240, dtype=torch.int32)
    assert variations.apply("ends", [few], 1)
    assert bool(((few < 0) & (few > torch.iinfo(few.dtype).min)).any()), "a shift and a division differ only there"
    codes = torch.zeros(40, 40, dtype=torch.int32)
    variations.apply("ends", [codes], 1)
    assert len({int(code) >> 16 & 0xFF for code in codes.flatten()}) > 4, "some have any bits, and not all alike"
    assert bool((codes == -1).any())
    assert not variations.apply("ends", [x.clone()], 1) and not variations.apply("zeros", [integers], 1)


@pytest.mark.parametrize("name", sorted(variations.TRANSFORMS))
def test_sorted_rows_stay_sorted(name: str) -> None:
    """Edges of intervals: searched while they were not sorted, an honest kernel was told wrong."""
    edges = torch.linspace(-2, 2, 9)
    x = torch.randn(64, 9)
    assert variations.is_sorted(edges) and not variations.is_sorted(x) and not variations.is_sorted(torch.ones(9))
    variations.apply(name, [edges, x, torch.arange(9)], 5)
    numbers = edges[~edges.isnan()]
    assert bool((numbers[1:] >= numbers[:-1]).all()), edges


def test_some_row_is_zero_throughout() -> None:
    for seed in range(40):
        x = torch.rand(5, 33) + 1
        assert variations.apply("zeros", [x], seed)
        assert (x == 0).all(-1).any() and not (x == 0).all()


def test_who_chooses_among_equals_gets_none_and_an_index_is_never_varied() -> None:
    chooses, computes = {"breaks_ties": True}, {"breaks_ties": False, "varies_integers": True}
    names = ("ties", "zeros", "spikes", "ends", "small")
    assert [variations.name_for(name, chooses) for name in names] == [None, None, None, None, "small"]
    assert [variations.name_for(name, computes) for name in ("ties", "spikes", "ends")] == ["ties", "spikes", "ends"]
    solves = {**computes, "solves": True}
    assert [variations.name_for(name, solves) for name in ("offset", "lowered", "small")] == [None, None, "small"]
    stand_ins = [variations.name_for(name, chooses) for name in ("offset", "lowered", "large")]
    assert stand_ins == [None, "negative", "loud"], "rounding makes ties"
    assert variations.name_for("small", chooses, is_half=True) is None
    searches = {**computes, "searches": True}
    assert [variations.name_for(name, searches) for name in ("signs", "lowered", "large")] == [None, None, "large"]
    asked = [{**computes, "multiplies_matrices": found} for found in (False, True)]
    products = [variations.name_for("eightfold", case) for case in asked]
    assert products == ["eightfold", None], "of logits TF32 may err by more than a softmax of them allows"
    assert variations.name_for("ties", {}) is None, "of a task of before it is not known"


def test_who_chooses_gets_logits_of_which_a_softmax_leaves_none_zero() -> None:
    logits = torch.randn(120, 64, generator=torch.Generator().manual_seed(5))
    logits[:, 3] = -torch.inf
    changed = logits.clone()
    assert variations.loud(changed, 1)
    assert torch.equal(changed.argsort(-1), logits.argsort(-1)) and bool(torch.isinf(changed[:, 3]).all())
    finite = changed[torch.isfinite(changed)]
    assert torch.isinf(finite.exp()).any() and float(finite.min()) > 4.9 and float(finite.max()) < 90.1
    assert int((torch.softmax(changed, -1) == 0).sum()) == 120, "those of the mask alone"
    assert not variations.loud(torch.ones(8), 1) and not variations.loud(torch.full((8,), -torch.inf), 1)


def test_who_chooses_gets_values_below_zero_that_stay_apart() -> None:
    x, half = torch.randn(64, 24), torch.randn(64, 24).half()
    made = x.clone()
    assert variations.apply("negative", [made], 1) and bool((made < 0).all()) and torch.equal(made.abs(), x.abs())
    assert not variations.apply("negative", [half], 1)


def test_a_jitter_moves_each_value_by_its_last_digit() -> None:
    x = torch.cat([torch.randn(1000), torch.zeros(8)])
    moved = x.clone()
    variations.jitter(moved, 3)
    assert (moved[:1000] != x[:1000]).all() and (moved[1000:] == 0).all()
    assert ((moved - x).abs() <= x.abs() * 2**-22).all()


def test_two_spikes_never_take_each_others_last_digits_away() -> None:
    x = torch.randn(700)
    x[100], x[400] = 131072.0 * 1.2, -131072.0 * 1.3
    for seed in range(20):
        moved = x.clone()
        variations.jitter(moved, seed)
        assert (moved - x)[[100, 400]].double().sum() > 0.01, seed
        assert 200 < int((moved > x).sum()) < 500, "the others move both ways"


def test_values_are_moved_by_as_many_last_digits_to_either_side() -> None:
    before = torch.cat((torch.zeros(8), torch.rand(4096) + 1))
    tensor = before.clone()
    variations.move(tensor, 3, 8)
    digits = ((tensor - before) / torch.finfo(torch.float32).eps).tolist()
    assert digits[:8] == [0.0] * 8 and all(7 <= abs(one) <= 17 for one in digits[8:])
    assert 0.4 < sum(one > 0 for one in digits[8:]) / 4096 < 0.6
