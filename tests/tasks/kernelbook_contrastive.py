# kind: loss
# level: 1
# entry: ContrastiveMargin
# why: the form of a KernelBook row: the class by its own name, [[arguments], {keywords}], sizes as literals
import torch
import torch.nn as nn


class ContrastiveMargin(nn.Module):
    """Element-wise hinge of a squared distance."""

    def __init__(self, weight, margin=1.0):
        super().__init__()
        self.weight = weight
        self.margin = margin

    def forward(self, a, b):
        return self.weight * torch.clamp(self.margin - (a - b) ** 2, min=0.0)


def get_inputs():
    return [torch.rand([4, 4, 4, 4]), torch.rand([4, 4, 4, 4])]


def get_init_inputs():
    return [[2], {"margin": 0.75}]
