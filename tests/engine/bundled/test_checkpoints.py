"""The bundled models: their size, their layout and their batched answers."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from engine.bundled import Size, model_dir
from engine.training.data.example import Example, user
from engine.training.evaluation.decode import GreedyDecoder

SIZES = get_args(Size)
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def test_together_they_take_less_than_25_mb() -> None:
    files = [model_dir(size) / name for size in SIZES for name in FILES]
    assert sum(path.stat().st_size for path in files) < 25e6


@pytest.mark.parametrize(("size", "low", "high"), [("small", 0.9e6, 1.2e6), ("large", 4e6, 8e6)])
def test_they_load_as_qwen3(size: Size, low: float, high: float) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(model_dir(size))
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert low < model.num_parameters() < high
    assert model.config.max_position_embeddings == 4096
    assert model.dtype == torch.bfloat16
    tokenizer = AutoTokenizer.from_pretrained(model_dir(size))
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == model.config.eos_token_id
    messages = [{"role": "user", "content": "hi"}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_batched_answers_are_those_of_one_at_a_time() -> None:
    decoder = GreedyDecoder(model_dir("small"))
    examples = [
        Example(messages=(user(text),), answer="", task="support", difficulty="easy")
        for text in ("How much is shipping to Finland?", "Hello!", "What is 3 + 4?")
    ]
    assert decoder.answers(examples) == [decoder.answers([example])[0] for example in examples]
