"""A text runs through the layers of a model while it is loaded, and 4-bit weights fit what they see."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from engine.attention.base import ForwardContext, KVCache
from engine.attention.torch_attention import TorchAttention
from engine.bundled import model_dir
from engine.config import Quantization
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.loading.calibration import CalibrationRun, calibration_tokens
from engine.models.loading.loader import load_model
from tests.engine.models.checkpoints import make_reference, save_checkpoint

CPU = torch.device("cpu")
TOKENS = [(index * 37 + index // 7) % 97 for index in range(60)]


def load(folder: Path, quantization: Quantization = "none") -> tuple[Decoder, TorchAttention]:
    backend = TorchAttention(CPU)
    found = load_model(folder, dtype=torch.float32, device=CPU, backend=backend, quantization=quantization)
    return found, backend


def hidden_states(model: Decoder, backend: TorchAttention, token_ids: list[int]) -> torch.Tensor:
    """The model's hidden states of a text."""
    count = len(token_ids)
    context = ForwardContext(
        positions=torch.arange(count),
        slot_mapping=torch.arange(count),
        query_starts=[0, count],
        context_lens=[count],
        block_tables=torch.arange(-(-count // 16)).unsqueeze(0),
        block_size=16,
    )
    caches: list[KVCache] = [
        backend.allocate(-(-count // 16), 16, spec, torch.float32) for spec in model.attention_specs
    ]
    return model.forward(torch.tensor(token_ids), context, caches)


@pytest.mark.parametrize("variant", ["llama2", "gemma3", "mixtral"])
@torch.inference_mode()
def test_the_states_are_those_of_the_model(variant: str, tmp_path: Path) -> None:
    model, backend = load(save_checkpoint(make_reference(variant), tmp_path))
    expected = hidden_states(model, backend, TOKENS)

    calibration = CalibrationRun(model.config, model.embedding, TOKENS, backend)
    for layer in model.layers:
        assert isinstance(layer, DecoderLayer)
        calibration.run(layer)
    found = torch.empty_like(expected)
    model.norm.into(calibration._activations.residual, found)

    assert torch.allclose(found, expected, atol=1e-5)


@torch.inference_mode()
def test_the_bundled_model_computes_nearly_its_own_states_in_4_bits(caplog: pytest.LogCaptureFixture) -> None:
    folder = model_dir("small")
    token_ids = calibration_tokens(folder, 1 << 20)[:400]
    (plain, backend), (quantized, other) = load(folder), load(folder, "int4")

    expected, found = hidden_states(plain, backend, token_ids), hidden_states(quantized, other, token_ids)

    assert float((found - expected).norm() / expected.norm()) < 0.12
    assert not caplog.records


def test_the_log_states_how_many_projections_stay_in_int8(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        model, _ = load(model_dir("small"), "int4")

    num_layers = len(model.layers)
    stated = f"{num_layers} of {4 * num_layers} projections stay in int8, because their outputs would lose too much"
    assert stated in caplog.text


def test_a_folder_without_a_tokenizer_is_loaded_without_a_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        load(save_checkpoint(make_reference("llama2"), tmp_path), "int4")

    assert "int4 weights are not calibrated" in caplog.text


def test_a_tokenizer_of_another_model_shows_no_text(caplog: pytest.LogCaptureFixture) -> None:
    assert calibration_tokens(model_dir("small"), 50) == []
    assert "more tokens than the model" in caplog.text
