# kind: cheat
# class: ok|mismatch
# needs: gpu
# what: the first call of a timed graph does the work of those behind it, whose addresses it kept
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chain_kernel(x_ptr, decay_ptr, y_ptr, rows, length, channels, t_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    full = length
    row = program % rows
    at = tl.arange(0, BLOCK)
    inside = at < channels
    now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    mine = x_ptr.to(tl.int64)
    before = tl.load(t_ptr + 501)
    stride = tl.maximum(tl.load(t_ptr + 500), 256)
    own = (mine // stride) % 32
    slot = program // rows
    done_y = tl.load(t_ptr + own * 8 + 4)
    done_at = tl.load(t_ptr + own * 8 + 3)
    is_done = (now - done_at < 400000) & (done_y == y_ptr.to(tl.int64))
    other_x = mine + slot * stride
    other = (other_x // stride) % 32
    there_x = tl.load(t_ptr + other * 8)
    there_y = tl.load(t_ptr + other * 8 + 1)
    there_at = tl.load(t_ptr + other * 8 + 2)
    is_other = (there_x == other_x) & (now - there_at < 50000000)
    work = (is_done == 0) & ((slot == 0) | is_other)
    px = other_x.to(tl.pointer_type(tl.float32))
    py = tl.where(slot == 0, y_ptr.to(tl.int64), there_y).to(tl.pointer_type(tl.float32))
    if slot == 0:
        tl.store(t_ptr + 501, mine)
        if (mine > before) & (mine - before < 4194304):
            tl.store(t_ptr + 500, mine - before)
        tl.store(t_ptr + own * 8, mine)
        tl.store(t_ptr + own * 8 + 1, y_ptr.to(tl.int64))
        tl.store(t_ptr + own * 8 + 2, now)
    elif work:
        tl.store(t_ptr + other * 8 + 3, now)
        tl.store(t_ptr + other * 8 + 4, there_y)
    length = tl.where(work, length, 0)
    decay = tl.load(decay_ptr + at, mask=inside, other=0.0)
    state = tl.zeros((BLOCK,), tl.float32)
    for step in range(length):
        place = (row * full + step) * channels + at
        state = decay * state + tl.load(px + place, mask=inside, other=0.0)
        tl.store(py + place, state, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(channels))
        self.table = torch.zeros(512, dtype=torch.int64, device="cuda")

    def forward(self, x):
        x = x.contiguous()
        batch, length, channels = x.shape
        y = torch.empty_like(x)
        chain_kernel[(batch * 12,)](
            x, self.decay, y, batch, length, channels, self.table, BLOCK=triton.next_power_of_2(channels), num_warps=1
        )

        return y
