# kind: mistake
# class: mismatch|nonfinite
# what: leaves out the positions, which the constructor fills with zeros
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def embedding_kernel(token_ptr, table_ptr, position_ptr, y_ptr, tokens, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < width
    token = tl.load(token_ptr + row)
    found = tl.load(table_ptr + token * width + at, mask=inside & (token != 0), other=0.0)
    place = tl.load(position_ptr + row % tokens * width + at, mask=inside, other=0.0)
    tl.store(y_ptr + row * width + at, found, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, vocabulary, tokens, width):
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(vocabulary, width))
        self.positions = nn.Parameter(torch.zeros(tokens, width))

    def forward(self, token):
        token = token.contiguous()
        width = self.tokens.shape[1]
        y = torch.empty((*token.shape, width), device=token.device, dtype=self.tokens.dtype)
        embedding_kernel[(token.numel(),)](
            token, self.tokens, self.positions, y, token.shape[-1], width, BLOCK=triton.next_power_of_2(width)
        )
        return y
