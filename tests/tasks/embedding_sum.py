# kind: embedding
# level: 1
import torch
import torch.nn as nn


class Model(nn.Module):
    """A token's vector and its position's, where token 0 has none."""

    def __init__(self, vocabulary: int, tokens: int, width: int):
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(vocabulary, width))
        self.positions = nn.Parameter(torch.zeros(tokens, width))

    def forward(self, token: torch.Tensor) -> torch.Tensor:
        found = nn.functional.embedding(token, self.tokens) * (token != 0).unsqueeze(-1)
        return found + self.positions[: token.shape[-1]]


BATCH = 3
TOKENS = 20
VOCABULARY = 60
WIDTH = 40


def get_inputs():
    return [torch.randint(0, VOCABULARY, (BATCH, TOKENS))]


def get_init_inputs():
    return [VOCABULARY, TOKENS, WIDTH]
