# kind: embedding
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """The gradient of an embedding's table, where token 0 is padding."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self.vocabulary = vocabulary

    def forward(self, token: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        dy = dy * (token != 0).unsqueeze(-1)
        table = torch.zeros(self.vocabulary, dy.shape[-1], device=dy.device, dtype=dy.dtype)
        return table.index_add_(0, token.flatten(), dy.flatten(0, 1))


BATCH = 3
TOKENS = 14
VOCABULARY = 12
WIDTH = 16


def get_inputs():
    return [torch.randint(0, VOCABULARY, (BATCH, TOKENS)), torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [VOCABULARY]
