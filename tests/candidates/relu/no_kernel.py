# expect: class=policy stage=ast
# why: no Triton kernel at all
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
