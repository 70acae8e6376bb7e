# kind: scan
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear recurrence along the sequence, with a decay for each channel."""

    def __init__(self, channels: int):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[:, 0])
        out = []
        for step in range(x.shape[1]):
            state = self.decay * state + x[:, step]
            out.append(state)
        return torch.stack(out, dim=1)


batch = 3
length = 48
channels = 20


def get_inputs():
    return [torch.randn(batch, length, channels)]


def get_init_inputs():
    return [channels]
