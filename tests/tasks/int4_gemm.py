# kind: quantisation
# level: 2
# why: weights of four bits in groups with a scale and a zero each
import torch
import torch.nn as nn


GROUP_SIZE = 16


class Model(nn.Module):
    """A product with weights that are packed eight to an int32 along the inner dimension."""

    def forward(self, x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        shifts = torch.arange(0, 32, 4, device=x.device, dtype=torch.int32)
        w = (packed[:, None, :] >> shifts[None, :, None]) & 15
        w = w.reshape(-1, packed.shape[1]).to(x.dtype)
        group = torch.arange(w.shape[0], device=x.device) // GROUP_SIZE
        return x @ ((w - zero[group]) * scale[group])


M = 10
N = 24
PACKED = 8


def get_inputs():
    packed = torch.randint(-(1 << 31), 1 << 31, (PACKED, N), dtype=torch.int32)
    groups = -(-8 * PACKED // GROUP_SIZE)
    zero = torch.randint(4, 12, (groups, N)).float()
    return [torch.randn(M, 8 * PACKED), packed, torch.rand(groups, N) + 0.5, zero]


def get_init_inputs():
    return []
