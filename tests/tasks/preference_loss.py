# kind: loss
# level: 1
# why: an answer that is nothing beside the one that log(1 + x) is made for, where one input is raised and one lowered
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
        return -F.logsigmoid(0.1 * (chosen - rejected)).mean(-1)


PAIRS = 32
TOKENS = 70


def get_inputs():
    return [torch.randn(PAIRS, TOKENS) * 4, torch.randn(PAIRS, TOKENS) * 4]


def get_init_inputs():
    return []
