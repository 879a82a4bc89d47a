"""config.json of GGUF files: exact numbers, rope settings, and values that are not supported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.models.gguf.container import GgufError
from engine.models.gguf.model_config import make_config
from engine.models.gguf.parts import GgufModel
from tests.engine.models.gguf.files import close

FLOAT64 = gguf.GGUFValueType.FLOAT64
Write = Callable[[gguf.GGUFWriter], None]


def config(path: Path, write: Write = lambda writer: None, *, kind: str = "F32", arch: str = "llama") -> dict[str, Any]:
    """config.json of a file with more metadata."""
    writer = gguf.GGUFWriter(path / "m.gguf", arch)
    writer.add_context_length(4096)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    write(writer)
    library = gguf.GGMLQuantizationType[kind]
    writer.add_tensor("token_embd.weight", gguf.quantize(np.zeros((7, 64), np.float32), library), raw_dtype=library)
    return make_config(GgufModel([close(writer, path / "m.gguf")]))


def test_numbers_stored_in_float32_are_the_original_ones(tmp_path: Path) -> None:
    found = config(tmp_path, lambda writer: writer.add_rope_freq_base(1000042.25))

    assert (found["rms_norm_eps"], found["rope_theta"]) == (1e-5, 1000042.25)


def test_numbers_that_float32_cannot_hold_stay_as_they_are(tmp_path: Path) -> None:
    found = config(tmp_path, lambda writer: writer.add_key_value("llama.rope.freq_base", 1e300, FLOAT64))

    assert found["rope_theta"] == 1e300


def test_what_the_file_leaves_out_follows_from_the_rest(tmp_path: Path) -> None:
    found = config(tmp_path)

    assert (found["vocab_size"], found["num_key_value_heads"], found["head_dim"]) == (7, 4, 16)
    assert found["tie_word_embeddings"] is True
    assert found["rope_theta"] == 10000.0
    assert "rope_scaling" not in found


@pytest.mark.parametrize(
    ("kind", "dtype"), [("F32", "float32"), ("F16", "float16"), ("BF16", "bfloat16"), ("Q8_0", "bfloat16")]
)
def test_the_dtype_is_that_of_the_matrices(kind: str, dtype: str, tmp_path: Path) -> None:
    assert config(tmp_path, kind=kind)["dtype"] == dtype


def test_yarn_keeps_its_settings(tmp_path: Path) -> None:
    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(1024)
        writer.add_rope_scaling_yarn_beta_fast(16.0)
        writer.add_rope_scaling_attn_factors(0.5)

    scaling = config(tmp_path, write)["rope_scaling"]

    assert scaling.pop("attention_factor") == pytest.approx(0.5 * (0.1 * np.log(4) + 1))
    expected = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "beta_fast": 16.0}
    assert scaling == expected


def write_yarn(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(8.0)
    writer.add_rope_scaling_orig_ctx_len(512)
    writer.add_rope_scaling_attn_factors(1.2079441541679836)
    writer.add_sliding_window(128)


def test_olmo_3_has_the_usual_factor_of_yarn_though_its_files_name_it(tmp_path: Path) -> None:
    found = config(tmp_path, write_yarn, arch="olmo2")

    assert (found["model_type"], found["sliding_window"]) == ("olmo3", 128)
    assert found["rope_scaling"]["attention_factor"] is None


def test_gpt_oss_does_not_truncate_the_borders_of_yarn(tmp_path: Path) -> None:
    def write(writer: gguf.GGUFWriter) -> None:
        write_yarn(writer)
        writer.add_expert_count(4)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(32)

    found = config(tmp_path, write, arch="gpt-oss")

    assert found["rope_scaling"]["truncate"] is False
    assert (found["num_local_experts"], found["intermediate_size"]) == (4, 32)


def test_granite_scales_scores_as_usual_where_the_file_names_no_factor(tmp_path: Path) -> None:
    found = config(tmp_path, lambda writer: writer.add_residual_scale(0.22), arch="granite")

    assert (found["attention_multiplier"], found["residual_multiplier"], found["logits_scaling"]) == (0.25, 0.22, 1.0)


@pytest.mark.parametrize("key_heads", [2, [2, 2]])
def test_equal_values_of_all_layers_may_be_one_number_or_an_array(key_heads: Any, tmp_path: Path) -> None:
    assert config(tmp_path, lambda writer: writer.add_head_count_kv(key_heads))["num_key_value_heads"] == 2


def test_the_old_key_of_linear_scaling_is_read(tmp_path: Path) -> None:
    found = config(tmp_path, lambda writer: writer.add_float32("llama.rope.scale_linear", 2.0))

    assert found["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda writer: writer.add_string("llama.rope.scaling.type", "su2"), r"rope\.scaling\.type: 'su2' is not"),
        (lambda writer: writer.add_value_length(8), "heads of 16 numbers for keys and 8 for values"),
        (lambda writer: writer.add_head_count_kv([4, 2]), r"head_count_kv: values that differ between layers"),
        (lambda writer: writer.add_rope_dimension_count(8), r"dimension_count: rotating 8 of a head's 16 numbers"),
    ],
)
def test_unsupported_values_are_refused(write: Write, message: str, tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=message):
        config(tmp_path, write)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "qwen3")
    writer.add_tensor("token_embd.weight", np.zeros((7, 64), np.float32))

    with pytest.raises(GgufError, match=r"qwen3\.attention\.head_count: expected an integer, got nothing"):
        make_config(GgufModel([close(writer, tmp_path / "m.gguf")]))
