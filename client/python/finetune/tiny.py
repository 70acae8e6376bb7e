"""A model of real architecture small enough for one CPU: random weights, a tokenizer trained on the texts given.

python -m finetune tiny DIRECTORY [TEXTFILE...]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# As Qwen2's tokenizer splits: transformers puts that in for the model's type when it is loaded.
SPLIT = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def make_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(SPLIT, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = TEMPLATE
    return fast


def make(
    directory: Path,
    texts: Iterable[str],
    *,
    vocabulary: int = 1024,
    hidden: int = 64,
    layers: int = 2,
    seed: int = 0,
    whole: Sequence[str] = (),
) -> Any:
    """Write a Qwen2 of `layers` layers and its tokenizer; returns the model. The same seed makes the same weights.

    whole: texts that become one token each, in addition to the vocabulary.
    """
    tokenizer = make_tokenizer(texts, vocabulary)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in whole])
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        # Wide enough for an adapter alone to move the answer: head and embeddings stay as they are.
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config).eval()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return model


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="finetune tiny", description="Make a tiny model with random weights.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("texts", type=Path, nargs="*", help="what the tokenizer is made of")
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    texts = [path.read_text() for path in given.texts] or [TEMPLATE]
    make(given.directory, texts, vocabulary=given.vocabulary, hidden=given.hidden, layers=given.layers, seed=given.seed)
    print(given.directory)
    return 0
