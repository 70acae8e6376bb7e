# kind: norm
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """Local response normalisation over five channels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.local_response_norm(x, size=5, alpha=0.5, beta=0.75, k=1.0)


BATCH = 2
CHANNELS = 12
HEIGHT = 5
WIDTH = 7


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
