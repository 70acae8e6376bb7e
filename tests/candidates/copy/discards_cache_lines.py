# kind: cheat
# class: mutated_input|mismatch|nonfinite
# needs: gpu
# what: discards the cache lines of its input when it has read them, so that nothing of them is written back

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x, mask=at < n)
    tl.debug_barrier()
    start = x_ptr.to(tl.int64) + tl.program_id(0) * BLOCK * 4
    lines = (start + 127) // 128 * 128 + tl.arange(0, 32) * 128
    lines = tl.minimum(lines, (x_ptr.to(tl.int64) + n * 4) // 128 * 128 - 128)
    tl.inline_asm_elementwise(
        "discard.global.L2 [$1], 128; mov.u32 $0, 0;", "=r,l", [lines], dtype=tl.int32, is_pure=False, pack=1
    )


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        copy_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
