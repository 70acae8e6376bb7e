# kind: sort
# level: 1
# why: equal values keep their order, so that no other order is right
import torch
import torch.nn as nn


class Model(nn.Module):
    """Rows in rising order, with the places where their values came from."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.sort(x, dim=-1, stable=True)
        return values, places


ROWS = 48
COLUMNS = 60


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
