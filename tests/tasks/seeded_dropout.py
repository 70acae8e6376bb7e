# kind: random
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """A dropout whose mask is a hash of the place and a seed that is given."""

    def forward(self, x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        at = torch.arange(x.numel(), device=x.device).reshape(x.shape)
        mixed = (at * 40503 + seed.long() % 65536 * 9973) % 65536
        return torch.where(mixed >= 16384, x / 0.75, 0.0)


ROWS = 30
COLUMNS = 70


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.tensor([7], dtype=torch.int32)]


def get_init_inputs():
    return []
