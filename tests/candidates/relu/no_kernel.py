# kind: cheat
# expect: class=form stage=ast
# what: no Triton kernel at all
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
