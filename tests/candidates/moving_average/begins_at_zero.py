# kind: mistake
# class: mismatch
# what: takes the state to begin with for zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def average_kernel(x_ptr, decay_ptr, state_ptr, y_ptr, last_ptr, steps, features, BLOCK: tl.constexpr):
    sequence = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < features
    decay = tl.load(decay_ptr + at, mask=mask, other=0.0)
    state = tl.zeros([BLOCK], tl.float32)
    for step in range(steps):
        row = (sequence * steps + step) * features
        state = decay * state + (1 - decay) * tl.load(x_ptr + row + at, mask=mask, other=0.0)
        tl.store(y_ptr + row + at, state, mask=mask)
    tl.store(last_ptr + sequence * features + at, state, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, decay, state):
        x, decay, state = x.contiguous(), decay.contiguous(), state.contiguous()
        batch, steps, features = x.shape
        y, last = torch.empty_like(x), torch.empty_like(state)
        block = triton.next_power_of_2(features)
        average_kernel[(batch,)](x, decay, state, y, last, steps, features, BLOCK=block)
        return y, last
