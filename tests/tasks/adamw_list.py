# kind: optimizer
# level: 2
# why: lists of tensors, each changed in place
import torch
import torch.nn as nn


class Model(nn.Module):
    """AdamW's third step over a list of parameters, with bias correction."""

    def forward(
        self, params: list[torch.Tensor], grads: list[torch.Tensor], m: list[torch.Tensor], v: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        out = []
        for p, g, first, second in zip(params, grads, m, v, strict=True):
            p.mul_(1 - 0.1 * 0.2)
            first.lerp_(g, 0.1)
            second.mul_(0.99).addcmul_(g, g, value=0.01)
            step = (first / (1 - 0.9**3)) / ((second / (1 - 0.99**3)).sqrt() + 1e-3)
            p.sub_(0.1 * step)
            out.append(p.clone())
        return out


A = 300
B = 24


def get_inputs():
    shapes = [(A,), (B, 7), (B,)]
    return [
        [torch.randn(s) for s in shapes], [torch.randn(s) for s in shapes], [torch.randn(s) for s in shapes],
        [torch.rand(s) + 0.1 for s in shapes],
    ]


def get_init_inputs():
    return []
