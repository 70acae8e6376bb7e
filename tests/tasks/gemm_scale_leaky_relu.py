# kind: gemm
# level: 2
# needs: gpu
# policy: hybrid
# why: a product that fills a large GPU, with a short epilogue
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Linear layer, a constant factor, leaky ReLU."""

    def __init__(self, in_features: int, out_features: int, factor: float, slope: float):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.factor = factor
        self.slope = slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(self.gemm(x) * self.factor, negative_slope=self.slope)


batch_size = 1024
in_features = 8192
out_features = 8192
factor = 2.0
negative_slope = 0.1


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, factor, negative_slope]
