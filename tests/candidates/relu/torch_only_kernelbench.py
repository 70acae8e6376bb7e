# kind: honest
# policy: kernelbench
# expect: class=ok
# what: KernelBench's rule asks for no kernel
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp(min=0.0)
