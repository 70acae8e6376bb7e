# kind: optimizer
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """A step of SGD with Nesterov's momentum and weight decay, in place."""

    def __init__(self, rate: float, momentum: float, decay: float):
        super().__init__()
        self.rate, self.momentum, self.decay = rate, momentum, decay

    def forward(self, p: torch.Tensor, g: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        g = g + self.decay * p
        buffer.mul_(self.momentum).add_(g)
        p.sub_(self.rate * (g + self.momentum * buffer))
        return p.clone()


size = 1500


def get_inputs():
    return [torch.randn(size), torch.randn(size), torch.randn(size)]


def get_init_inputs():
    return [0.1, 0.9, 0.05]
