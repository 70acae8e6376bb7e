# kind: attention
# level: 3
# why: logits that are far below zero where one input is raised and its neighbours lowered, and infinite the other way
import torch
import torch.nn as nn


class Model(nn.Module):
    """Attention with a penalty for distance, a slope for each head."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        at = torch.arange(q.shape[1], device=q.device)
        far = (at[None, :] - at[:, None]).abs().to(q.dtype)
        scores = torch.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5 - torch.exp(slopes)[:, None, None] * far
        return torch.einsum("hqk,hkd->hqd", torch.softmax(scores, dim=-1), v)


HEADS = 3
LENGTH = 40
WIDTH = 16


def get_inputs():
    size = (HEADS, LENGTH, WIDTH)
    return [torch.randn(size), torch.randn(size), torch.randn(size), -torch.arange(1.0, HEADS + 1)]


def get_init_inputs():
    return []
