# kind: scan
# level: 2
# why: its state is zero where get_inputs() makes it
import torch
import torch.nn as nn


class Model(nn.Module):
    """An exponential moving average along time, from a state that is given; and the last state."""

    def forward(self, x: torch.Tensor, decay: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        averages = []
        for step in range(x.shape[1]):
            state = decay * state + (1 - decay) * x[:, step]
            averages.append(state)
        return torch.stack(averages, dim=1), state


BATCH = 6
STEPS = 12
FEATURES = 40


def get_inputs():
    return [torch.randn(BATCH, STEPS, FEATURES), torch.rand(FEATURES), torch.zeros(BATCH, FEATURES)]


def get_init_inputs():
    return []
