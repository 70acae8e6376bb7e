# kind: quantisation
# level: 1
# why: so many codes that some lie beside the step that they are rounded at
import torch
import torch.nn as nn


GROUP_SIZE = 16


class Model(nn.Module):
    """Asymmetric eight bits by groups, and back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        groups = x.unflatten(-1, (-1, GROUP_SIZE))
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        scale = (high - low).clamp_min(1e-5) / 255
        code = torch.round((groups - low) / scale).clamp(0, 255)
        return (code * scale + low).flatten(-2)


ROWS = 600
GROUPS = 6


def get_inputs():
    return [torch.randn(ROWS, 16 * GROUPS)]


def get_init_inputs():
    return []
