# kind: optimizer
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """One step of Adam, in place: the parameter and both moments."""

    def forward(self, p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        p.sub_(1e-2 * m / (v.sqrt() + 1e-3))
        return p * 1.0


size = 2000


def get_inputs():
    return [torch.randn(size), torch.randn(size), torch.randn(size), torch.rand(size) + 0.1]


def get_init_inputs():
    return []
