# kind: loss
# level: 1
# why: targets that are zeros and ones in a dtype that could hold any number
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, gamma: float):
        super().__init__()
        self.gamma = gamma

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(x)
        entropy = F.binary_cross_entropy_with_logits(x, target, reduction="none")
        return entropy * (1 - (p * target + (1 - p) * (1 - target))) ** self.gamma


ROWS = 30


def get_inputs():
    return [torch.randn(ROWS, 20), torch.randint(0, 2, (ROWS, 20)).float()]


def get_init_inputs():
    return [2.0]
