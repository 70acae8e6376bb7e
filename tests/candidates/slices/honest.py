# kind: honest
# class: ok
# policy: strict,require_plan=true
# what: gives the kernel the strides of its views
import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


@triton.jit
def gate_kernel(q, k, v, y, sb, st, sh, sd, T, H, D, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    at = i // (D * H * T) * sb + i // (D * H) % T * st + i // D % H * sh + i % D * sd
    gate = tl.sigmoid(tl.load(q + at, mask=m, other=0.0))
    tl.store(y + i, (gate * tl.load(k + at, mask=m) - tl.load(v + at, mask=m)).to(DTYPE), mask=m)


class ModelNew(nn.Module):
    def forward(self, qkv, dtype):
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        y = torch.empty(q.shape, device=q.device, dtype=dtype)
        grid = (triton.cdiv(y.numel(), 256),)
        gate_kernel[grid](q, k, v, y, *q.stride(), *q.shape[1:], y.numel(), DTYPE=DTYPES[dtype], BLOCK=256)
        return y
