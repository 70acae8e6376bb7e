# kind: elementwise
# level: 1
# needs: gpu
# why: six gigabytes in and out, where making the inputs is most of an ordinary evaluation
import torch
import torch.nn as nn


class Model(nn.Module):
    """Rectified linear unit, at the size of the largest element-wise problems."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


batch_size = 4096
dim = 393216


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
