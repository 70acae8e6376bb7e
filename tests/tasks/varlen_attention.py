# kind: attention
# level: 3
# why: sequences of several lengths in one tensor
import torch
import torch.nn as nn


class Model(nn.Module):
    """Each token attends to the tokens of its own sequence."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        at = torch.arange(q.shape[0], device=q.device)
        owner = torch.searchsorted(offsets, at, right=True)
        scores = torch.einsum("thd,shd->hts", q, k) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(owner[:, None] != owner[None, :], float("-inf"))
        return torch.einsum("hts,shd->thd", torch.softmax(scores, dim=-1), v)


TOKENS = 40
HEADS = 2
WIDTH = 16
SEQUENCES = 3


def get_inputs():
    cuts = torch.sort(torch.randint(0, TOKENS + 1, (SEQUENCES - 1,))).values
    offsets = torch.cat([torch.tensor([0]), cuts, torch.tensor([TOKENS])])
    return [*(torch.randn(TOKENS, HEADS, WIDTH) for _ in range(3)), offsets]


def get_init_inputs():
    return []
