"""Hugging Face names of GGUF tensors: joint and single experts, unknown tensors."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from engine.models.gguf.parts import GgufModel
from engine.models.gguf.tensor_names import TensorSlice, name_tensors
from tests.engine.models.gguf.files import close


def named(path: Path, arch: str, *names: str, shape: tuple[int, ...] = (4, 8)) -> dict[str, TensorSlice]:
    writer = gguf.GGUFWriter(path / "m.gguf", arch)
    writer.add_head_count(2)
    writer.add_expert_count(3)
    for name in names:
        writer.add_tensor(name, np.zeros(shape, np.float32))
    return name_tensors(GgufModel([close(writer, path / "m.gguf")]))


def test_a_tensor_for_all_experts_is_cut(tmp_path: Path) -> None:
    found = named(tmp_path, "llama", "blk.1.ffn_up_exps.weight", shape=(3, 4, 8))

    prefix = "model.layers.1.block_sparse_moe.experts"
    assert {name: part.first_row for name, part in found.items()} == {
        f"{prefix}.{i}.w3.weight": 4 * i for i in range(3)
    }
    assert {part.shape for part in found.values()} == {(4, 8)}


def test_the_first_files_have_a_tensor_for_each_expert(tmp_path: Path) -> None:
    found = named(tmp_path, "llama", "blk.0.ffn_gate.2.weight", "blk.0.ffn_gate_inp.weight")

    assert set(found) == {
        "model.layers.0.block_sparse_moe.experts.2.w1.weight",
        "model.layers.0.block_sparse_moe.gate.weight",
    }


def test_unknown_tensors_keep_their_names_and_rope_factors_are_none(tmp_path: Path) -> None:
    found = named(tmp_path, "qwen3", "blk.0.ssm_a.weight", "other.weight", "rope_freqs.weight")

    assert set(found) == {"blk.0.ssm_a.weight", "other.weight"}
