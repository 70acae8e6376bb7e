"""The losses of fine-tuning against cases worked out by hand, and their gradients against autograd."""

from __future__ import annotations

import math

import pytest
import torch
from finetune import losses

# Two rows of three tokens over a vocabulary of two. The logits of a position are of the token after it.
LOGITS = torch.tensor([[[0.0, 0.0], [math.log(3), 0.0], [9.0, 9.0]], [[0.0, math.log(4)], [0.0, 0.0], [9.0, 9.0]]])
LABELS = torch.tensor([[-100, 0, 1], [-100, -100, 1]])
# p = 1/2 and 1/4 in the first row; 1/2 in the second.
NLL = torch.tensor([[0.0, math.log(2), math.log(4)], [0.0, 0.0, math.log(2)]])


def test_nll_is_of_the_answer_only() -> None:
    torch.testing.assert_close(losses.token_nll(LOGITS, LABELS), NLL)


def test_nll_at_a_temperature() -> None:
    # Logits ln 3 and 0 at temperature 1/2 are ln 9 and 0: the second has probability 1/10.
    nll = losses.token_nll(LOGITS, LABELS, temperature=0.5)
    assert nll[0, 2].item() == pytest.approx(math.log(10))


@pytest.mark.parametrize(("kind", "most"), [(torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
def test_nll_in_chunks_is_that_of_autograd(kind: torch.dtype, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of different lengths, some without a label, in chunks that are no row's; nothing large kept in fp32."""
    vocabulary = 13
    monkeypatch.setattr(losses, "CHUNK", 4 * vocabulary + 1)
    draw = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(4, 9, vocabulary, generator=draw)).to(kind)
    labels = torch.randint(0, vocabulary, (4, 9), generator=draw)
    labels[0, :4] = labels[1, 6:] = labels[2] = losses.IGNORED
    coefficients = torch.randn(4, 9, generator=draw)
    ours, plain = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    kept: list[torch.Tensor] = []

    def keep(one: torch.Tensor) -> torch.Tensor:
        kept.append(one)
        return one

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
        nll = losses.token_nll(ours, labels, 0.7)
    (nll * coefficients).sum().backward()
    chances = torch.log_softmax(plain.float() / 0.7, -1)[:, :-1]
    wanted = labels[:, 1:]
    expected = -chances.gather(2, wanted.clamp(0).unsqueeze(2)).squeeze(2) * (wanted != losses.IGNORED)
    (expected * coefficients[:, 1:]).sum().backward()
    torch.testing.assert_close(nll[:, 1:], expected)
    assert nll.dtype == torch.float32 and not nll[:, 0].any() and not nll[2].any()
    assert ours.grad is not None and plain.grad is not None and ours.grad.dtype == kind
    torch.testing.assert_close(ours.grad, plain.grad, rtol=most, atol=most)
    assert kept and all(one.numel() <= labels.numel() or one.data_ptr() == ours.data_ptr() for one in kept)


def test_nothing_to_learn_has_no_gradient() -> None:
    logits = LOGITS.clone().requires_grad_()
    losses.token_nll(logits, torch.full_like(LABELS, losses.IGNORED)).sum().backward()
    assert logits.grad is not None and not logits.grad.any()


def test_supervised_is_the_mean_over_tokens() -> None:
    coefficients = losses.supervised([2, 1])
    loss = sum(c * float(row.sum()) for c, row in zip(coefficients, NLL, strict=True))
    assert loss == pytest.approx((math.log(2) + math.log(4) + math.log(2)) / 3)


def test_weighted_is_by_row_not_by_batch() -> None:
    # Means of the rows: 1.5 ln 2 and ln 2; weights 1 and 3.
    coefficients = losses.weighted([1.0, 3.0], [2, 1])
    loss = sum(c * float(row.sum()) for c, row in zip(coefficients, NLL, strict=True))
    assert loss == pytest.approx((1.5 * math.log(2) + 3 * math.log(2)) / 4)


def test_gradient_of_the_weighted_loss() -> None:
    """By hand: d/dlogits = coefficient (softmax - one_hot) at each answer token, 0 elsewhere."""
    logits = LOGITS.clone().requires_grad_()
    each = losses.weighted([1.0, 3.0], [2, 1])
    coefficients = torch.tensor([[0.0, each[0], each[0]], [0.0, 0.0, each[1]]])
    (losses.token_nll(logits, LABELS) * coefficients).sum().backward()
    by_hand = torch.zeros_like(LOGITS)
    for row, position in ((0, 1), (0, 2), (1, 2)):
        one_hot = torch.nn.functional.one_hot(LABELS[row, position], 2)
        by_hand[row, position - 1] = each[row] * (torch.softmax(LOGITS[row, position - 1], 0) - one_hot)
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, by_hand)
    assert by_hand.abs().sum() > 0.1


def test_leave_one_out() -> None:
    assert losses.advantages([1.0, 0.0, 0.5], "leave_one_out") == pytest.approx([0.75, -0.75, 0.0])
    assert losses.advantages([1.0, 0.0, 0.5], "none") == [1.0, 0.0, 0.5]


def test_no_verdict_is_no_reward() -> None:
    assert losses.advantages([1.0, None, 0.0], "leave_one_out") == [1.0, None, -1.0]
    assert losses.advantages([1.0, None], "leave_one_out") == [0.0, None]
    assert losses.is_constant([0.3, None, 0.3]) and not losses.is_constant([0.3, 0.0])


def test_reinforce_by_hand() -> None:
    """Loss and gradient of -A log p / N over two answers of two and one tokens with advantages 1 and -1."""
    logits = LOGITS.clone().requires_grad_()
    advantages = losses.advantages([1.0, 0.0], "leave_one_out")
    each = losses.policy([a for a in advantages if a is not None], [2, 1])
    coefficients = torch.tensor([[0.0, each[0], each[0]], [0.0, 0.0, each[1]]])
    loss = (losses.token_nll(logits, LABELS) * coefficients).sum()
    assert loss.item() == pytest.approx((math.log(2) + math.log(4) - math.log(2)) / 3)
    loss.backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[1, 1], -(torch.tensor([0.5, 0.5]) - torch.tensor([0.0, 1.0])) / 3)


def test_weights_are_winsorized() -> None:
    rewards = [0.0] * 10 + [1.0] * 10 + [100.0]
    weights = losses.weights_of(rewards, "winsorized", 1.0, 20.0)
    assert max(weights) == pytest.approx(1.0) and min(weights) == 0.0
    assert losses.weights_of([-1.0, 1.0], "winsorized", 1.0, 20.0)[0] == 0.0


def test_exponential_weights_are_clipped() -> None:
    weights = losses.weights_of([0.0, 1.0], "exponential", 0.5, 2.0)
    assert weights == pytest.approx([math.exp(-1), 2.0])
    assert losses.weights_of([0.0, 1e6], "exponential", 1e-3, 20.0)[1] == 20.0
