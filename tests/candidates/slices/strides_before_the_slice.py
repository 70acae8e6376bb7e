# kind: mistake
# class: mismatch|nonfinite
# what: steps over the tensor of which its input is a slice
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gate_kernel(x, y, T, C, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    at = i // (T * C) * (T + 1) * 3 * C + i // C % T * 3 * C + i % C
    gate = tl.sigmoid(tl.load(x + at, mask=m, other=0.0))
    tl.store(y + i, gate * tl.load(x + at + C, mask=m) - tl.load(x + at + 2 * C, mask=m), mask=m)


class ModelNew(nn.Module):
    def forward(self, qkv, dtype):
        y = torch.empty(qkv[:, :, 0].shape, device=qkv.device, dtype=torch.float16)
        C = qkv.shape[3] * qkv.shape[4]
        gate_kernel[(triton.cdiv(y.numel(), 256),)](qkv, y, qkv.shape[1], C, y.numel(), BLOCK=256)
        return y
