# kind: suspicious
# class: ok
# needs: gpu
# what: one cooperative launch whose programs wait for each other at a counter, then each adds the parts

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mse_kernel(p_ptr, t_ptr, parts_ptr, gate_ptr, out_ptr, n, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(program * BLOCK, n, BLOCKS * BLOCK):
        at = start + tl.arange(0, BLOCK)
        p = tl.load(p_ptr + at, mask=at < n, other=0.0)
        t = tl.load(t_ptr + at, mask=at < n, other=0.0)
        total += (p - t) * (p - t)
    tl.store(parts_ptr + program, tl.sum(total, axis=0))
    tl.debug_barrier()
    turn = tl.atomic_add(gate_ptr, 1, sem="acq_rel")
    goal = (turn // BLOCKS + 1) * BLOCKS
    while tl.atomic_add(gate_ptr, 0, sem="acquire") < goal:
        pass
    if program == 0:
        parts = tl.load(parts_ptr + tl.arange(0, BLOCKS), volatile=True)
        tl.store(out_ptr, tl.sum(parts, axis=0) / n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.parts = torch.zeros(32, device="cuda")

    def forward(self, p, t):
        p, t = p.contiguous(), t.contiguous()
        out = torch.empty((), device=p.device, dtype=p.dtype)
        mse_kernel[(32,)](
            p, t, self.parts, self.gate, out, p.numel(), BLOCK=1024, BLOCKS=32, launch_cooperative_grid=True
        )
        return out
