# kind: honest
# expect: class=ok
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(gate_ptr, value_ptr, out_ptr, width, stride_row, stride_column, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    gate = tl.load(gate_ptr + row * stride_row + columns * stride_column, mask=mask).to(tl.float32)
    value = tl.load(value_ptr + row * width + columns, mask=mask).to(tl.float32)
    out = gate / (1.0 + tl.exp(-gate)) * value
    tl.store(out_ptr + row * width + columns, out.to(tl.bfloat16), mask=mask)


class ModelNew(nn.Module):
    def forward(self, gate, value):
        value = value.contiguous()
        tokens, width = value.shape
        out = torch.empty_like(value)
        swiglu_kernel[(tokens, triton.cdiv(width, 256))](
            gate, value, out, width, gate.stride(0), gate.stride(1), BLOCK=256
        )
        return out
