# kind: routing
# level: 2
# why: of logits in bf16 some are equal, and the reference may take any of these
import torch
import torch.nn as nn


class Model(nn.Module):
    """For each token four experts, and their shares of one."""

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best = torch.topk(torch.softmax(logits.float(), dim=-1), 4, dim=-1)
        return best.values / best.values.sum(dim=-1, keepdim=True), best.indices.to(torch.int32)


TOKENS = 120
EXPERTS = 16


def get_inputs():
    return [torch.randn(TOKENS, EXPERTS, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
