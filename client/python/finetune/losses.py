"""The losses, all as sums of per-token coefficients times negative log-likelihoods.

    supervised   sum over all answer tokens of a step / their number
    weighted     sum_i w_i NLL_i / sum_i w_i, NLL_i the mean over the answer's tokens
    REINFORCE    sum_i A_i sum_t NLL_it / N, N the answer tokens of the step: -A log p, whatever its sign

A step's coefficients are known before its first pass, so that neither the size of a pass nor how rows are spread over
GPUs changes the loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

IGNORED = -100
CHUNK = 1 << 25  # scores that token_nll works on at once: 128 MiB in fp32, SCORES_KEPT times
SCORES_KEPT = 3


class _TokenNll(torch.autograd.Function):
    """Negative log-likelihoods at chosen positions; neither fp32 scores nor probabilities are kept for backward."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, at: torch.Tensor, wanted: torch.Tensor, heat: float) -> torch.Tensor:
        """logits [positions, vocabulary]; at, wanted [n]: which positions, and the token after each."""
        size = max(1, CHUNK // logits.shape[1])
        sums, chosen = [], []
        for some, tokens in zip(at.split(size), wanted.split(size), strict=True):
            scores = logits[some].float().div_(heat)
            sums.append(torch.logsumexp(scores, -1))
            chosen.append(scores.gather(1, tokens.unsqueeze(1)).squeeze(1))
        total = torch.cat(sums)
        ctx.save_for_backward(logits, at, wanted, total)
        ctx.heat, ctx.size = heat, size
        return total - torch.cat(chosen)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, given: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """given (softmax - one_hot) / heat at each chosen position, 0 elsewhere; in the logits' own type."""
        logits, at, wanted, total = ctx.saved_tensors
        out = torch.zeros_like(logits)
        parts = (one.split(ctx.size) for one in (at, wanted, total, given))
        for some, tokens, sums, factors in zip(*parts, strict=True):
            slope = logits[some].float().div_(ctx.heat).sub_(sums.unsqueeze(1)).exp_()
            slope.scatter_add_(1, tokens.unsqueeze(1), slope.new_full((len(tokens), 1), -1.0))
            out[some] = slope.mul_((factors / ctx.heat).unsqueeze(1)).to(logits.dtype)
        return out, None, None, None


def token_nll(logits: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Negative log-likelihood of each label, [batch, length]; 0 at position 0 and where the label is IGNORED.

    logits [batch, length, vocabulary], the distribution of the *next* token; labels [batch, length]. In fp32 whatever
    the logits are in, CHUNK scores at a time, forward and backward: a vocabulary is large.
    """
    after = torch.full_like(labels, IGNORED)
    after[:, :-1] = labels[:, 1:]
    at = (after.flatten() != IGNORED).nonzero().squeeze(1)
    nll = _TokenNll.apply(logits.flatten(0, 1), at, after.flatten()[at], temperature)
    out = torch.zeros(labels.numel(), dtype=torch.float32, device=logits.device)
    return out.index_copy(0, at + 1, nll).view(labels.shape)


def supervised(counts: Sequence[int]) -> list[float]:
    """The coefficient of each token of each row. counts: answer tokens of each row."""
    total = sum(counts)
    return [1.0 / total for _ in counts]


def weighted(weights: Sequence[float], counts: Sequence[int]) -> list[float]:
    """The coefficient of each token of each row."""
    total = math.fsum(weights)
    return [w / (n * total) for w, n in zip(weights, counts, strict=True)]


def policy(advantages: Sequence[float], counts: Sequence[int]) -> list[float]:
    """REINFORCE: the coefficient of each token of each row."""
    total = sum(counts)
    return [a / total for a in advantages]


def advantages(rewards: Sequence[float | None], baseline: str) -> list[float | None]:
    """Of one group; None stays None (no verdict) and counts nowhere.

    leave_one_out: the reward less the mean of the others; a group of one has advantage 0. none: the reward itself.
    """
    known = [r for r in rewards if r is not None]
    if baseline == "none":
        return list(rewards)
    if len(known) < 2:
        return [None if r is None else 0.0 for r in rewards]
    total = math.fsum(known)
    return [None if r is None else r - (total - r) / (len(known) - 1) for r in rewards]


def is_constant(rewards: Sequence[float | None]) -> bool:
    """Nothing to learn from this group?"""
    known = [r for r in rewards if r is not None]
    return len(known) == 0 or max(known) - min(known) <= 1e-12


def _quantile(ordered: Sequence[float], p: float) -> float:
    at = p * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def weights_of(rewards: Sequence[float], kind: str, tau: float, cap: float) -> list[float]:
    """Weights of rows by their rewards; never negative.

    winsorized: the reward, moved to the 5th and 95th percentile where it is beyond.
    exponential: exp((r - mean)/tau), at most cap.
    """
    if kind == "exponential":
        mean = math.fsum(rewards) / len(rewards)
        return [min(math.exp(min((r - mean) / tau, 700.0)), cap) for r in rewards]
    ordered = sorted(rewards)
    low, high = _quantile(ordered, 0.05), _quantile(ordered, 0.95)
    return [max(0.0, min(max(r, low), high)) for r in rewards]
