# kind: mistake
# class: mismatch|nondeterministic
# what: stores the gradient of a token that occurs again
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def grad_kernel(token_ptr, dy_ptr, dw_ptr, width, PADDING: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0)
    token = tl.load(token_ptr + at)
    if token != PADDING:
        d = tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + at * width + d, mask=d < width, other=0.0)
        tl.store(dw_ptr + token * width + d, dy, mask=d < width)


class ModelNew(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary = vocabulary

    def forward(self, token, dy):
        token, dy = token.contiguous(), dy.contiguous()
        width = dy.shape[-1]
        dw = torch.zeros((self.vocabulary, width), dtype=dy.dtype, device=dy.device)
        grad_kernel[(token.numel(),)](token, dy, dw, width, PADDING=0, BLOCK=triton.next_power_of_2(width))
        return dw
