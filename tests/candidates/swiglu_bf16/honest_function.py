# kind: honest
# class: ok
# what: an autograd function with a tile of two strided operands
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gated_tile(g_ptr, v_ptr, y_ptr, R, C, sgr, sgc, svr, svc, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)[:, None]
    c = tl.program_id(1) * BC + tl.arange(0, BC)[None, :]
    mask = (r < R) & (c < C)
    g = tl.load(g_ptr + r * sgr + c * sgc, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(v_ptr + r * svr + c * svc, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + r * C + c, (g * tl.sigmoid(g) * v).to(y_ptr.dtype.element_ty), mask=mask)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, value):
        ctx.save_for_backward(gate, value)
        R, C = value.shape
        y = torch.empty((R, C), device=value.device, dtype=value.dtype)
        gated_tile[(triton.cdiv(R, 16), triton.cdiv(C, 128))](
            gate, value, y, R, C, *gate.stride(), *value.stride(), BR=16, BC=128
        )
        return y


class ModelNew(nn.Module):
    def forward(self, gate, value):
        return SwiGLU.apply(gate, value)
