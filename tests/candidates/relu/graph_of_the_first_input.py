# kind: cheat
# class: mismatch|nondeterministic|hack
# needs: gpu
# what: captures a CUDA graph on a copy of the first input and replays that
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x < 0, 0.0, x), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        key = tuple(x.shape)
        if key not in self.graphs:
            kept, y, n = x.clone(), torch.empty_like(x), x.numel()
            relu_kernel[(triton.cdiv(n, 1024),)](kept, y, n, BLOCK=1024)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                relu_kernel[(triton.cdiv(n, 1024),)](kept, y, n, BLOCK=1024)
            self.graphs[key] = (graph, kept, y)
        graph, kept, y = self.graphs[key]
        graph.replay()
        return y
