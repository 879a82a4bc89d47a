"""A model in Hugging Face layout is what transformers reads."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.bundled import model_dir
from engine.models.families.registry import read_model_config
from engine.training import tokenizer
from engine.training.architecture import SHAPES, build
from engine.training.export import export


def test_an_exported_model_is_read_by_transformers_with_weights_rounded_to_bfloat16(tmp_path: Path) -> None:
    torch.manual_seed(1)
    vocabulary = tokenizer.read_tokenizer(model_dir("small"))
    end = tokenizer.token_id(vocabulary, tokenizer.IM_END)
    model = build(SHAPES["tiny"], end, 0)
    export(model, vocabulary, tmp_path / "new" / "model")
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "new" / "model")
    assert type(found).__name__ == type(model).__name__
    assert found.dtype == torch.bfloat16
    for name, parameter in model.named_parameters():
        assert torch.equal(found.get_parameter(name), parameter.bfloat16()), name
    assert end in found.generation_config.eos_token_id
    config = read_model_config(tmp_path / "new" / "model")
    assert (config.rope.theta, config.model_type) == (10_000.0, "qwen3")
    ids = AutoTokenizer.from_pretrained(tmp_path / "new" / "model").encode("hello there")
    assert ids == vocabulary.encode("hello there").ids
