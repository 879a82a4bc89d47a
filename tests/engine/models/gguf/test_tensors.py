"""Tensors of GGUF files: plain and quantized, whole or as groups for the quantized projections."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import gguf
import pytest
import torch

from engine.cpu.execution.model import CompiledModel
from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.published import PublishedQuantization
from engine.models.gguf.folder import prepare_folder
from engine.models.loading.sizes import read_checked_config
from engine.quantization.packed_tensors import take_packed
from engine.tensor_parallel.checkpoint import PartCheckpoint
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.families.parity import PROMPT, reference_logits
from tests.engine.models.gguf.files import (
    ARCHS,
    close,
    random_blocks,
    write_byte_level_vocabulary,
    write_model,
    write_shape,
)
from tests.engine.models.paged import PagedRunner, Row

GGUF = PublishedQuantization(method="gguf", bits=8, group_size=32, zero_offset=0)
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
KINDS = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"]

FORMS = {**dict.fromkeys(("Q4_0", "Q4_1"), "with 4-bit codes in groups of 32"), "MXFP4": "in MXFP4"}
"""Words of the log for codes that are kept."""


def quantized_folder(tmp_path: Path, kind: str, *, is_retained: bool) -> tuple[Path, torch.Tensor]:
    """A Llama folder with matrices of a kind, and the logits of transformers with the same numbers."""
    library = gguf.GGMLQuantizationType[kind]
    reference = make_reference("llama2", **SIZES)
    folder = prepare_folder(write_model(tmp_path / "model.gguf", reference, library), tmp_path / "cache")
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if parameter.ndim == 2 and "embed_tokens" not in name:
                stored = gguf.quantize(parameter.numpy(), library)
                parameter.copy_(torch.from_numpy(gguf.dequantize(stored, library)))
    if not is_retained:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": None}))
    return folder, reference_logits(reference, PROMPT)


@pytest.mark.parametrize("kind", KINDS)
def test_dequantized_weights_give_the_logits_of_the_same_numbers(kind: str, tmp_path: Path) -> None:
    folder, expected = quantized_folder(tmp_path, kind, is_retained=False)

    logits = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])

    assert (logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_weights_in_their_own_groups_stay_close(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, expected = quantized_folder(tmp_path, kind, is_retained=True)

    with caplog.at_level(logging.INFO, "engine.models.loading.loader"):
        logits = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])

    # The kernels of 4-bit codes round activations, scales and offsets to bfloat16.
    assert (logits - expected).norm() < (0.04 if kind in FORMS else 1e-5) * expected.norm()
    form = FORMS.get(kind, "dequantized")
    assert f"21 {form}" in caplog.text if kind.startswith(("Q", "M")) else not caplog.text


@pytest.mark.parametrize(
    ("kind", "form", "error"),
    [
        ("F16", "float32", 1e-5),
        ("BF16", "bfloat16", 1e-5),
        ("Q4_0", "int4 in groups", 0.05),
        ("Q4_1", "int4 in groups", 0.05),
        ("Q5_0", "int8 in groups", 0.05),
        ("Q5_1", "int8 in groups", 0.05),
        ("Q8_0", "int8 in groups", 0.05),
    ],
)
def test_compiled_steps_hold_the_codes_of_the_file(kind: str, form: str, error: float, tmp_path: Path) -> None:
    folder, expected = quantized_folder(tmp_path, kind, is_retained=True)

    runner = PagedRunner(folder, compiled_threads=1)
    logits = runner.prefill(Row(list(PROMPT)), [20, 492])

    assert isinstance(runner.model, CompiledModel)
    kinds = {name.partition(" times")[0]: count for name, count in runner.model.products.items()}
    assert kinds[form] == sum(kinds.values()) - ("float32" in kinds and form != "float32")
    # Integer products round their inputs.
    assert (logits - expected).norm() < error * expected.norm()


def test_a_set_quantization_replaces_that_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, _ = quantized_folder(tmp_path, "Q4_1", is_retained=True)

    with caplog.at_level(logging.INFO, "engine.models.loading.loader"):
        PagedRunner(folder, quantization="int8").prefill(Row([1, 2]), [512])

    assert not caplog.text


@pytest.mark.parametrize(
    "kind", ["Q4_0", "Q4_1", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"]
)
def test_groups_hold_the_numbers_of_the_blocks(kind: str, tmp_path: Path) -> None:
    library = gguf.GGMLQuantizationType[kind]
    raw = random_blocks(library, 8, 512)
    raw[0] = 0  # scales of zero
    folder = tmp_path / "folder"
    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "model.gguf", "qwen2")
    writer.add_head_count(4)
    writer.add_tensor("blk.0.ffn_up.weight", raw.numpy(), raw_dtype=library)
    close(writer, folder / "model.gguf")

    weight = take_packed(Checkpoint(folder), "model.layers.0.mlp.up_proj", (8, 512), GGUF)

    expected = torch.from_numpy(gguf.dequantize(raw.numpy(), library))
    assert torch.allclose(weight.dequantize(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_a_group_without_a_scale_holds_its_minimum(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "qwen2")
    writer.add_head_count(4)
    block = torch.full((1, 20), 0x77, dtype=torch.uint8)
    block[0, :4] = torch.tensor([0.0, -1.5], dtype=torch.float16).view(torch.uint8)
    writer.add_tensor("blk.0.ffn_up.weight", block.numpy(), raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    close(writer, tmp_path / "model.gguf")

    weight = take_packed(Checkpoint(tmp_path), "model.layers.0.mlp.up_proj", (1, 32), GGUF)

    assert weight.dequantize().eq(-1.5).all()


def test_missing_misshapen_and_unknown_tensors_are_named(tmp_path: Path) -> None:
    folder = prepare_folder(write_model(tmp_path / "model.gguf", make_reference("qwen3")), tmp_path / "cache")
    checkpoint = Checkpoint(folder)

    with pytest.raises(CheckpointError, match=r"missing tensor model\.layers\.9\.mlp\.up_proj\.weight"):
        checkpoint.take("model.layers.9.mlp.up_proj.weight", (80, 48))
    with pytest.raises(CheckpointError, match=r"expected shape \[80, 47\], got \[80, 48\]"):
        checkpoint.take("model.layers.0.mlp.up_proj.weight", (80, 47))
    with pytest.raises(CheckpointError, match="expected quantized blocks"):
        checkpoint.take_blocks("model.layers.0.mlp.up_proj.weight", (80, 48))
    with pytest.raises(CheckpointError, match="unexpected tensors"):
        checkpoint.check_all_taken()


def test_tensors_that_the_model_lacks_are_refused(tmp_path: Path) -> None:
    reference = make_reference("qwen3")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "qwen3")
    write_shape(writer, reference.config)
    write_byte_level_vocabulary(writer, 97)
    writer.add_tensor("token_embd.weight", reference.state_dict()["model.embed_tokens.weight"].numpy())
    folder = prepare_folder(close(writer, tmp_path / "model.gguf"), tmp_path / "cache")

    with pytest.raises(CheckpointError, match=r"missing tensor model\.norm\.weight"):
        read_checked_config(folder)


def test_a_part_of_a_quantized_model_is_read_as_numbers(tmp_path: Path) -> None:
    folder, _ = quantized_folder(tmp_path, "Q4_0", is_retained=True)
    config = read_checked_config(folder)
    name = "model.layers.0.mlp.down_proj.weight"
    whole = Checkpoint(folder).take(name, (64, 96))

    part = PartCheckpoint(folder, config, 1, 2)

    assert not part.has_blocks(name)
    assert torch.equal(part.take(name, (64, 48)), whole[:, 48:])


def test_a_split_model_is_read_as_one(tmp_path: Path) -> None:
    reference = make_reference("qwen3")
    write_model(tmp_path / "whole.gguf", reference)
    reader = gguf.GGUFReader(tmp_path / "whole.gguf")
    for part in (0, 1):
        path = tmp_path / f"model-{part + 1:05}-of-00002.gguf"
        writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[ARCHS["qwen3"]])
        if part == 0:
            write_shape(writer, reference.config)
            write_byte_level_vocabulary(writer, 97)
        for tensor in reader.tensors[part::2]:
            writer.add_tensor(tensor.name, tensor.data)
        close(writer, path)

    folder = prepare_folder(tmp_path / "model-00002-of-00002.gguf", tmp_path / "cache")
    logits = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < 1e-4


def test_gpt_oss_keeps_the_codes_of_its_experts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    library = gguf.GGMLQuantizationType.MXFP4
    reference = make_reference("gpt_oss", swiglu_limit=7.0, layer_types=None, hidden_size=64, intermediate_size=96)
    file = write_model(tmp_path / "model.gguf", reference, library, only="_exps")
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if name.endswith("_proj") and ".experts." in name:
                stored = gguf.quantize(parameter.mT.contiguous().numpy(), library)
                parameter.copy_(torch.from_numpy(gguf.dequantize(stored, library)).mT)

    folder = prepare_folder(file, tmp_path / "cache")
    with caplog.at_level(logging.INFO, "engine.models.loading.loader"):
        logits = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])
    compiled = PagedRunner(folder, compiled_threads=1).prefill(Row(list(PROMPT)), [16])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": None}))
    dequantized = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])

    expected = reference_logits(reference, PROMPT)
    assert (dequantized - expected).abs().max() < 1e-3
    # Rounded activations may lead a token to another expert.
    for found in (logits, compiled):
        assert ((found - expected).norm(dim=1) / expected.norm(dim=1)).median() < 0.08
    assert f"{3 * 5 * 3} in MXFP4" in caplog.text


def test_safetensors_are_read_where_gguf_files_lie_beside_them(tmp_path: Path) -> None:
    reference = make_reference("qwen3")
    folder = save_checkpoint(reference, tmp_path / "model")
    for name in ("a", "b"):
        write_model(folder / f"{name}.gguf", make_reference("llama2"))

    logits = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < 1e-4
