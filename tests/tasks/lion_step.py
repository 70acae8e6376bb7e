# kind: optimizer
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """A step of Lion: the sign of an interpolation, and a momentum of another rate."""

    def forward(self, p: torch.Tensor, g: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        update = torch.sign(0.9 * m + 0.1 * g)
        p.mul_(1 - 0.01 * 0.1).sub_(0.01 * update)
        m.mul_(0.99).add_(g, alpha=0.01)
        return p * 1.0


size = 1500


def get_inputs():
    return [torch.randn(size), torch.randn(size), torch.randn(size)]


def get_init_inputs():
    return []
