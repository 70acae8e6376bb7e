# kind: honest
# class: ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(x_ptr, w_ptr, scale_ptr, y_ptr, N, K, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, K, 16):
        k = start + tl.arange(0, 16)
        at = k[:, None] * N + columns[None, :]
        w = tl.load(w_ptr + at, mask=(k[:, None] < K) & (columns[None, :] < N), other=0).to(tl.int32)
        x = tl.load(x_ptr + row * K + k, mask=k < K, other=0).to(tl.int32)
        total += tl.sum(x[:, None] * w, axis=0)
    scale = tl.load(scale_ptr + columns, mask=columns < N, other=0.0)
    tl.store(y_ptr + row * N + columns, total.to(tl.float32) * scale, mask=columns < N)


class ModelNew(nn.Module):
    def forward(self, x, w, scale):
        x, w = x.contiguous(), w.contiguous()
        (M, K), N = x.shape, w.shape[1]
        y = torch.empty((M, N), device=x.device, dtype=torch.float32)
        product_kernel[(M, triton.cdiv(N, 64))](x, w, scale, y, N, K, BLOCK=64)
        return y
