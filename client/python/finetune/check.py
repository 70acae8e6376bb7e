"""Does this training fit in memory, and do the shapes agree? On meta tensors: no weights are read, nothing is computed.

    python -m finetune check METHOD REQUEST

REQUEST may name a "model_config" (a config.json), for machines without the model; and "gpu_memory_gb". The findings are
printed, and put into REQUEST as "found": so the caller knows that this program ended normally.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from .errors import TrainError
from .model import with_adapter
from .settings import Settings, settings_of

Json = dict[str, Any]
GIB = float(1 << 30)
TILE = (1 << 12, 1 << 15)
CONTEXT_GIB = 1.0  # of CUDA, its libraries and the allocator's slack


def configuration(settings: Settings, path: str | None) -> Any:
    try:
        if path:
            document = json.loads(Path(path).read_text())
            return AutoConfig.for_model(**document)
        return AutoConfig.from_pretrained(settings.model)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainError(f"no configuration of {settings.model}: {str(error)[:200]}") from error


def sampled_at_once(settings: Settings, method: str) -> int:
    """How many answers a GPU holds while it samples them: at most a step's. 0: none is sampled here."""
    step = settings.tasks_per_step * settings.samples
    is_here = method in ("reinforce", "grpo") and not settings.rollouts.startswith("vllm")
    return min(settings.sampling_batch, step) if is_here else 0


def estimate(settings: Settings, config: Any, method: str, card_gib: float) -> Json:
    """Parameters and GiB of one GPU, from the shapes alone. A GPU samples or learns: the larger need counts.

    card_gib: the memory of the GPU, of which vLLM takes its share in addition to the training; 0: not known.
    """
    has_vllm = method in ("reinforce", "grpo") and settings.rollouts == "vllm_colocate"
    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="eager")
        total = sum(p.numel() for p in base.parameters())
        model = with_adapter(base, settings)
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        ids = torch.zeros((settings.batch, min(settings.length, 64)), dtype=torch.long)
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    if tuple(logits.shape) != (*ids.shape, config.vocab_size):
        raise TrainError(f"the model gives {tuple(logits.shape)}, not {(*ids.shape, config.vocab_size)}")
    positions = getattr(config, "max_position_embeddings", settings.length)
    if settings.length > positions:
        raise TrainError(f"length = {settings.length} is more than the model's {positions} positions")
    tokens = settings.batch * settings.length
    width = 1 if settings.base_bits == 8 else 4 if settings.precision == "fp32" else 2
    inner = getattr(config, "intermediate_size", 4 * config.hidden_size)
    layer = tokens * (8 * config.hidden_size + 3 * inner) * 2
    kept = tokens * config.hidden_size * 2 * config.num_hidden_layers
    # TRL has a tile of the logits at a time, in fp32: scores, probabilities and gradient.
    logit_bytes = min(tokens, TILE[0]) * min(config.vocab_size, TILE[1]) * 4 * 3
    learning = {
        "activations": (kept + layer if settings.checkpointing else layer * config.num_hidden_layers) / GIB,
        "logits": logit_bytes / GIB,
    }
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    cached = 2 * config.num_hidden_layers * (getattr(config, "num_key_value_heads", None) or heads) * head * 2
    sampling = {"keys and values": sampled_at_once(settings, method) * settings.length * cached / GIB}
    parts = {
        "base": total * width / GIB if settings.lora_r else 0,
        "trained weights, gradients, AdamW": trained * 16 / GIB,
        **(learning if sum(learning.values()) > sum(sampling.values()) else sampling),
        **({"vLLM": settings.vllm_memory * card_gib} if has_vllm else {}),
        "context": CONTEXT_GIB,
    }
    return {"parameters": total, "trained": trained, "gib": parts, "total_gib": sum(parts.values())}


def main(arguments: list[str]) -> int:
    method, path = arguments
    request = json.loads(Path(path).read_text())
    settings = settings_of(method, request["settings"])
    limit = request.get("gpu_memory_gb")
    found = estimate(settings, configuration(settings, request.get("model_config")), method, limit or 0.0)
    print(json.dumps({"method": method, **found, "gpu_memory_gb": limit}))
    Path(path).write_text(json.dumps(request | {"found": found}))
    if limit and found["total_gib"] > limit:
        is_sampled = sampled_at_once(settings, method) > 0
        also = " or sampling_batch" if is_sampled else " or vllm_memory" if "vLLM" in found["gib"] else ""
        raise TrainError(
            f"{method} needs about {found['total_gib']:.0f} GiB of a GPU and has {limit:g}: lower batch or length"
            f"{also}, turn on checkpointing, or set base_bits = 8"
        )
    return 0
