# kind: mistake
# class: mismatch
# what: what the softplus is at more than 5 is taken for a straight line
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def preference_kernel(chosen, rejected, out, tokens, beta, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, tokens, BLOCK):
        at = start + tl.arange(0, BLOCK)
        kept = at < tokens
        a = tl.load(chosen + row * tokens + at, kept, 0.0)
        b = tl.load(rejected + row * tokens + at, kept, 0.0)
        z = beta * (a - b)
        loss = tl.where(tl.abs(z) > 5.0, 0.0, tl.log(1.0 + tl.exp(-tl.abs(z)))) + tl.maximum(-z, 0.0)
        total += tl.sum(tl.where(kept, loss, 0.0))
    tl.store(out + row, total / tokens)


class ModelNew(nn.Module):
    def forward(self, chosen, rejected):
        chosen, rejected = chosen.contiguous(), rejected.contiguous()
        pairs, tokens = chosen.shape
        out = torch.empty(pairs, device=chosen.device, dtype=chosen.dtype)
        preference_kernel[(pairs,)](chosen, rejected, out, tokens, 0.1, BLOCK=64)
        return out
