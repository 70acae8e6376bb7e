# kind: sampling
# level: 1
# why: a search in sums that rise only as long as probabilities are positive
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, p, u):
        c = torch.cumsum(p, -1)
        return torch.searchsorted(c, (u * c[:, -1])[:, None], right=True)[:, 0].clamp(max=p.shape[1] - 1)


R, V = 60, 50


def get_inputs():
    return [torch.rand(R, V), torch.rand(R)]


def get_init_inputs():
    return []
