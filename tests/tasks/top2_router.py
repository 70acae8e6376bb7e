# kind: routing
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """For each token two experts, and their shares of one."""

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best = torch.topk(torch.softmax(logits, dim=-1), 2, dim=-1)
        return best.values / best.values.sum(dim=-1, keepdim=True), best.indices


TOKENS = 60
EXPERTS = 24


def get_inputs():
    return [torch.randn(TOKENS, EXPERTS)]


def get_init_inputs():
    return []
