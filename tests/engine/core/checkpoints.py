"""A tiny random Qwen3 checkpoint, and the greedy answers transformers gives on it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB_SIZE = 128
MAX_MODEL_LEN = 256


def write_checkpoint(folder: Path, seed: int = 7, vocab_size: int = VOCAB_SIZE) -> None:
    """Save the model; large weights make one token clearly the likeliest, so that rounding changes no answer."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=MAX_MODEL_LEN,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    model: Any = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)


def transformers_greedy(folder: Path, prompt: SequenceOf[int], num_tokens: int) -> list[int]:
    """The reference answer, recomputed from the whole text for every token."""
    model: Any = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(num_tokens):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]
