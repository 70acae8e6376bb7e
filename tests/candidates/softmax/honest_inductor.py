# kind: honest
# class: ok
# what: the form that torch.compile prints: reinterpreted pointers, xnumel and rnumel, a call()
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers

empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda


@triton.jit
def triton_per_fused__softmax_0(in_ptr0, out_ptr2, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    r0_1 = r0_index
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (r0_1 + r0_numel * x0), r0_mask & xmask, other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = tl.where(r0_mask & xmask, tmp1, float("-inf"))
    tmp4 = triton_helpers.max2(tmp3, 1)[:, None].to(tl.float32)
    tmp5 = tmp0 - tmp4
    tmp6 = tl.exp(tmp5)
    tmp7 = tl.broadcast_to(tmp6, [XBLOCK, R0_BLOCK])
    tmp9 = tl.where(r0_mask & xmask, tmp7, 0)
    tmp10 = tl.sum(tmp9, 1)[:, None].to(tl.float32)
    tmp11 = tmp6 / tmp10
    tl.store(out_ptr2 + (r0_1 + r0_numel * x0), tmp11, r0_mask & xmask)


def call(args):
    (arg0_1,) = args
    args.clear()
    s0, s1 = arg0_1.size()
    buf2 = empty_strided_cuda((s0, s1), (s1, 1), torch.float32)
    grid = (triton.cdiv(s0, 8), 1, 1)
    triton_per_fused__softmax_0[grid](arg0_1, buf2, s0, s1, XBLOCK=8, R0_BLOCK=triton.next_power_of_2(s1))
    return (buf2,)


class ModelNew(nn.Module):
    def forward(self, x):
        return call([x.contiguous()])[0]
