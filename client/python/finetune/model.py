"""The base model, its tokenizer and the adapter. Only the adapter is trained, or with lora_r = 0 the whole model."""

from __future__ import annotations

import hashlib
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from .checkpoint import digest_of
from .errors import TrainError
from .settings import Settings

ADAPTER = "adapter_model.safetensors"
HEAD = 1 << 20  # bytes of each weights file that enter a base's digest, with its size

Say = Callable[[str], None]

transformers_logging.disable_progress_bar()
# peft asks an attribute under its old name.
warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)


def tokenizer_of(model: str) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        raise TrainError(f"cannot load the tokenizer of {model}: {_first_line(error)}") from error
    if not getattr(tokenizer, "chat_template", None):
        raise TrainError(
            f"the tokenizer of {model} has no chat template: use an instruction-tuned model, or put a "
            "chat_template.jinja beside its tokenizer_config.json"
        )
    if tokenizer.eos_token_id is None:
        raise TrainError(f"the tokenizer of {model} has no end-of-text token")
    return tokenizer


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def precision_of(settings: Settings) -> str:
    """bf16, fp16 or fp32; auto is resolved by what the device can do."""
    if settings.precision != "auto":
        return settings.precision
    if not torch.cuda.is_available():
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported() else "fp16"


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def base_of(settings: Settings) -> Any:
    """The base model's weights, frozen later by peft; in fp32 where they are trained themselves."""
    options: dict[str, Any] = {"dtype": DTYPES[precision_of(settings)] if settings.lora_r else torch.float32}
    if settings.base_bits == 8:
        try:
            import bitsandbytes  # noqa: F401
        except ImportError as error:
            raise TrainError("base_bits = 8 needs bitsandbytes: pip install bitsandbytes") from error
        from transformers import BitsAndBytesConfig

        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    try:
        model = AutoModelForCausalLM.from_pretrained(settings.model, **options)
    except (OSError, ValueError, KeyError) as error:
        raise TrainError(f"cannot load the model {settings.model}: {_first_line(error)}") from error
    if settings.base_bits == 8:
        from peft import prepare_model_for_kbit_training

        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=settings.checkpointing)
    return model


def base_digest(model: Any) -> str:
    """Which base this is: its configuration, and each weights file's name, size and first MiB. Not of the path."""
    config = model.config.to_dict()
    for key in ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "quantization_config"):
        config.pop(key, None)
    total = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    directory = Path(model.config._name_or_path)
    for path in sorted(directory.glob("*.safetensors")) if directory.is_dir() else []:
        with path.open("rb") as file:
            total.update(f"{path.name} {path.stat().st_size}".encode() + file.read(HEAD))
    return "sha256:" + total.hexdigest()


def lora_config(settings: Settings) -> LoraConfig:
    return LoraConfig(
        r=settings.lora_r,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=[name.strip() for name in settings.lora_targets.split(",") if name.strip()],
        task_type="CAUSAL_LM",
        bias="none",
    )


def with_adapter(base: Any, settings: Settings) -> Any:
    """base with an adapter over it, which does nothing yet; base itself with lora_r = 0."""
    if not settings.lora_r:
        return base
    try:
        return get_peft_model(base, lora_config(settings))
    except ValueError as error:
        raise TrainError(f"lora_targets = {settings.lora_targets}: {_first_line(error)}") from error


def check_adapter(path: Path, model: str, digest: str) -> dict[str, Any]:
    """An adapter's configuration; TrainError where it is of another base: by our manifest, where there is one."""
    try:
        config = json.loads((path / "adapter_config.json").read_text())
    except (OSError, ValueError) as error:
        raise TrainError(f"{path} is no adapter: {_first_line(error)}") from error
    try:
        base = json.loads((path / "manifest.json").read_text()).get("base_digest")
    except (OSError, ValueError):
        base = None
    named = config.get("base_model_name_or_path")
    if base is not None and base != digest:
        raise TrainError(
            f"the adapter {path} is of another base ({named}, {base[:19]}), not of {model} ({digest[:19]})"
        )
    if base is None and named and Path(named).name != Path(model).name:
        raise TrainError(f"the adapter {path} is of another base: {named}, not {model}")
    return dict(config)


def adapter_state(model: Any) -> dict[str, torch.Tensor]:
    """The adapter's tensors on the CPU, under the names of peft's file."""
    state = get_peft_model_state_dict(model)
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in state.items()}


def load_adapter_state(model: Any, path: Path) -> None:
    """Put a file's tensors into the adapter. TrainError: other names or shapes."""
    wanted = get_peft_model_state_dict(model)
    try:
        state = load_file(path / ADAPTER)
    except Exception as error:  # safetensors has an error class of its own, not exported everywhere
        raise TrainError(f"{path / ADAPTER} cannot be read: {_first_line(error)}") from error
    differing = sorted(set(wanted) ^ set(state)) or [n for n in wanted if wanted[n].shape != state[n].shape]
    if differing:
        raise TrainError(
            f"the adapter {path} does not fit the model: {len(differing)} tensors differ, the first is {differing[0]} "
            "(lora_r and lora_targets have to be as it was made)"
        )
    set_peft_model_state_dict(model, state)


def prepare(settings: Settings, say: Say) -> tuple[Any, Any, str]:
    """Model with adapter (lora_r = 0: without), tokenizer, and the base's digest."""
    if not settings.lora_r and (settings.adapter or settings.base_bits == 8):
        raise TrainError("lora_r = 0 trains the whole model: there is no adapter, and base_bits cannot be 8")
    tokenizer = tokenizer_of(settings.model)
    if settings.adapter:  # read before minutes are spent on the base
        check_adapter_files(Path(settings.adapter))
    base = base_of(settings)
    digest = base_digest(base)
    torch.manual_seed(settings.seed)
    if settings.adapter:
        check_adapter(Path(settings.adapter), settings.model, digest)
    model = with_adapter(base, settings)
    if settings.adapter:
        load_adapter_state(model, Path(settings.adapter))
    if settings.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    say(f"model {settings.model}: {total:,} parameters, {trainable:,} of them trained; {precision_of(settings)}")
    return model, tokenizer, digest


def check_adapter_files(path: Path) -> None:
    for name in ("adapter_config.json", ADAPTER):
        if not (path / name).is_file():
            raise TrainError(f"adapter: {path / name} does not exist")


def identity_of_adapter(settings: Settings) -> str | None:
    return digest_of(Path(settings.adapter) / ADAPTER) if settings.adapter else None


def random_state() -> dict[str, Any]:
    """Of this process: all that a draw depends on."""
    return {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def restore_random(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    numpy.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"])


def check_written(model: Any, directory: Path) -> None:
    """An adapter that was written is what the model holds: read back before it is called a checkpoint."""
    if not isinstance(model, PeftModel):
        return
    expected = adapter_state(model)
    written = load_file(directory / ADAPTER)
    if set(written) != set(expected):
        raise TrainError(f"{directory / ADAPTER} cannot be loaded back: other tensors than the model's")
    for name, value in expected.items():
        if not torch.equal(written[name].to(value.dtype), value):
            raise TrainError(f"{directory / ADAPTER} cannot be loaded back: {name} differs from the model's")
