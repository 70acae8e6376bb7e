# kind: attention
# level: 3
# why: one query for each sequence, whose cache is filled to a length of its own
import torch
import torch.nn as nn


class Model(nn.Module):
    """One new token of each sequence attends to its cache up to its length."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("bhd,bthd->bht", q, k) * q.shape[-1] ** -0.5
        empty = torch.arange(k.shape[1], device=q.device)[None, :] >= length[:, None]
        share = torch.softmax(scores.masked_fill(empty[:, None, :], float("-inf")), dim=-1)
        return torch.einsum("bht,bthd->bhd", share, v)


BATCH = 3
HEADS = 2
CAPACITY = 40
WIDTH = 16


def get_inputs():
    cache = (BATCH, CAPACITY, HEADS, WIDTH)
    length = torch.randint(1, CAPACITY + 1, (BATCH,))
    return [torch.randn(BATCH, HEADS, WIDTH), torch.randn(cache), torch.randn(cache), length]


def get_init_inputs():
    return []
