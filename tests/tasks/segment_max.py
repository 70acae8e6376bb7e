# kind: reduction
# level: 1
# why: offsets are the ends of slices, some of them empty: no other number is fit for them
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, offsets):
        out = []
        for i in range(offsets.numel() - 1):
            part = x[offsets[i] : offsets[i + 1]]
            out.append(part.max(0).values if part.shape[0] else torch.zeros_like(x[0]))
        return torch.stack(out)


N, C, S = 120, 20, 9


def get_inputs():
    cuts = torch.sort(torch.randint(0, N, (S - 1,))).values
    cuts[3] = cuts[2]
    return [torch.randn(N, C), torch.cat([torch.tensor([0]), cuts, torch.tensor([N])])]


def get_init_inputs():
    return []
