# kind: gemm
# level: 2
# why: rows sorted by expert, whose counts are given
import torch
import torch.nn as nn


class Model(nn.Module):
    """Each row by the weight of its expert."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        return torch.einsum("mk,mkn->mn", x, weight[expert])


ROWS = 40
EXPERTS = 4
K = 20
N = 24


def get_inputs():
    expert = torch.sort(torch.randint(0, EXPERTS, (ROWS,))).values
    return [torch.randn(ROWS, K), torch.randn(EXPERTS, K, N), expert]


def get_init_inputs():
    return []
