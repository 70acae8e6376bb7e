# kind: norm
# level: 2
import torch
import torch.nn as nn


class Model(nn.Module):
    """The gradients of a layer norm: of its input, weight and bias."""

    def forward(
        self, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean = x.mean(-1, keepdim=True)
        rstd = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)
        normal = (x - mean) * rstd
        g = dy * w
        dx = rstd * (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True))
        return dx, (dy * normal).sum(0), dy.sum(0)


ROWS = 26
COLUMNS = 50


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS), torch.rand(COLUMNS) + 0.5]


def get_init_inputs():
    return []
