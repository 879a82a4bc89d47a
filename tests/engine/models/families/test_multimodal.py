"""The text part of a multimodal checkpoint computes what transformers computes for text."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel

from engine.models.config.checkpoint import CheckpointError
from engine.models.config.config_reader import ModelConfigError
from engine.models.families.registry import read_model_config
from tests.engine.models.checkpoints import SHAPE, VARIANTS
from tests.engine.models.families.parity import (
    IN_CHUNKS,
    OVER_BLOCKS,
    PROMPT,
    TOLERANCE,
    check_greedy_text_of,
    check_logits_of,
    reference_logits,
)
from tests.engine.models.paged import PagedRunner, Row

VISION: dict[str, dict[str, Any]] = {
    "gemma3": {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16, "image_size": 28},
    "qwen3_5": {"hidden_size": 16, "intermediate_size": 16, "depth": 1, "num_heads": 2, "out_hidden_size": 48},
    "qwen3_5_moe": {"hidden_size": 16, "intermediate_size": 16, "depth": 1, "num_heads": 2, "out_hidden_size": 48},
    "mistral3": {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "image_size": 28},
}
EACH = pytest.mark.parametrize("kind", ["gemma3", "mistral3", "qwen3_5", "qwen3_5_moe"])


def make_multimodal(kind: str) -> PreTrainedModel:
    """A model for text and images with random weights, of the smallest image part there is."""
    text = {**SHAPE, "tie_word_embeddings": False, **VARIANTS["mistral" if kind == "mistral3" else kind]}
    vision: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 14, **VISION[kind]}
    tied = {"tie_word_embeddings": bool(text["tie_word_embeddings"])}
    config = AutoConfig.for_model(kind, text_config=text, vision_config=vision, **tied)
    torch.manual_seed(11)
    model: PreTrainedModel = AutoModelForImageTextToText.from_config(  # type: ignore[no-untyped-call]
        config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Most norms of the other two add 1 to their weights.
            parameter.normal_(1.0 if "norm" in name and kind == "mistral3" else 0.0, 0.2)
    return model


def rename(folder: Path, renamed: dict[str, str]) -> None:
    """Give the tensors whose names begin with a key the value in its place."""
    tensors = load_file(folder / "model.safetensors")
    found = {}
    for name, tensor in tensors.items():
        prefix = next((prefix for prefix in renamed if name.startswith(prefix)), "")
        found[renamed.get(prefix, "") + name.removeprefix(prefix)] = tensor
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@EACH
@IN_CHUNKS
def test_logits_equal_transformers(kind: str, chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits_of(make_multimodal(kind), chunk_sizes, tmp_path)


@EACH
@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(kind: str, shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text_of(make_multimodal(kind), shuffle_seed, tmp_path)


@EACH
def test_both_published_layouts_of_names_are_read(kind: str, tmp_path: Path) -> None:
    reference = make_multimodal(kind)
    reference.save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    older = any(name.startswith("language_model.model.") for name in names)
    swaps = {
        "language_model.model.": "model.language_model.",
        "language_model.lm_head.": "lm_head.",
        "vision_tower.": "model.vision_tower.",
    }
    rename(tmp_path, swaps if older else {new: old for old, new in swaps.items()})

    logits = PagedRunner(tmp_path).prefill(Row(list(PROMPT)), [512])

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE


def test_ignored_tensors_are_counted_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_multimodal("gemma3").save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    num_others = sum("vision_tower" in name or "projector" in name for name in names)

    with caplog.at_level(logging.INFO, logger="engine.models.loading.loader"):
        PagedRunner(tmp_path)

    assert num_others
    assert f"text only; {num_others} tensors of other parts are ignored" in caplog.text


def test_tensors_of_no_known_part_are_named(tmp_path: Path) -> None:
    make_multimodal("mistral3").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "model.adapter.weight": torch.zeros(2)}, tmp_path / "model.safetensors")

    with pytest.raises(CheckpointError, match=r"unexpected tensors: model\.adapter\.weight"):
        PagedRunner(tmp_path)


def test_settings_that_gemma3_leaves_out_have_their_defaults(tmp_path: Path) -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    values = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps({**values, "text_config": text, "eos_token_id": [1, 106]}))

    config = read_model_config(tmp_path)

    assert (config.vocab_size, config.num_heads, config.num_kv_heads, config.head_dim) == (262_208, 8, 4, 256)
    assert (config.dtype, config.eos_token_ids, config.tie_word_embeddings) == (torch.bfloat16, (1, 106), True)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"text_config": None}, "text_config: is required"),
        ({"text_config": [1]}, "text_config: expected an object"),
        ({"text_config": {"model_type": "mamba"}}, "text_config.model_type: 'mamba' is not supported"),
        ({"architectures": ["Gemma3ForCausalLM"]}, "architectures: expected Gemma3ForConditionalGeneration"),
        ({"model_type": "llama4"}, "model_type: 'llama4': attention in chunks.*Llama 4 is not served"),
        ({"text_config": {"model_type": "gemma3_text", "head_dim": "x"}}, "text_config.head_dim: expected a positive"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
    ],
)
def test_what_cannot_be_served_is_refused(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    make_multimodal("gemma3").save_pretrained(tmp_path)
    change_config(tmp_path, **changes)

    with pytest.raises(ModelConfigError, match=complaint):
        read_model_config(tmp_path)
