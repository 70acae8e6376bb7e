# kind: honest
# class: ok
# what: one atomic addition for each block
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mse_kernel(p_ptr, t_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    p = tl.load(p_ptr + offs, mask=mask, other=0.0)
    t = tl.load(t_ptr + offs, mask=mask, other=0.0)
    d = p - t
    tl.atomic_add(out_ptr, tl.sum(d * d, axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, p, t):
        out = torch.zeros((), device=p.device, dtype=torch.float32)
        n = p.numel()
        mse_kernel[(triton.cdiv(n, 4096),)](p, t, out, n, BLOCK=4096)
        return out
