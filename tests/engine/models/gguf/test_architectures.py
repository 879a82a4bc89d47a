"""A model of every family, written to GGUF by the library's own names, has the logits of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest

from engine.models.gguf.architectures import ARCHITECTURES, find_architecture
from engine.models.gguf.container import GgufError
from engine.models.gguf.folder import prepare_folder
from engine.models.gguf.parts import GgufModel
from tests.engine.models.checkpoints import make_reference
from tests.engine.models.families.parity import PROMPT, TOLERANCE, reference_logits
from tests.engine.models.gguf.files import close, write_model
from tests.engine.models.paged import PagedRunner, Row

VARIANTS: dict[str, dict[str, Any]] = {
    "llama2": {},
    "llama3": {},
    "llama_biased": {},
    "llama_linear_rope": {},
    "llama_yarn": {},
    "qwen2": {},
    "qwen3": {},
    # GGUF has no query_pre_attn_scalar: it follows from the head size.
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3": {"query_pre_attn_scalar": 16},
    "mixtral": {"sliding_window": None},
    "qwen2_moe": {"mlp_only_layers": []},
    "qwen3_moe": {"decoder_sparse_step": 1},
    "olmo2": {},
    "phi3": {},
    "phi3_longrope": {},
    "phi3_partial": {},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_logits_are_those_of_transformers(variant: str, tmp_path: Path) -> None:
    reference = make_reference(variant, **VARIANTS[variant])
    folder = prepare_folder(write_model(tmp_path / "model.gguf", reference), tmp_path / "cache")

    logits = PagedRunner(folder, shuffle_seed=5).prefill(Row(list(PROMPT)), [13, 7, 1, 22])

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE


def test_every_row_is_covered() -> None:
    covered = {make_reference(variant).config.model_type for variant in VARIANTS}

    assert covered >= {row.model_type for row in ARCHITECTURES.values()}


def test_an_unknown_architecture_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.add_tensor("x", make_reference("llama2").lm_head.weight.detach().numpy())

    with pytest.raises(GgufError, match="'mamba' is not supported; expected one of llama, qwen2"):
        find_architecture(GgufModel([close(writer, tmp_path / "model.gguf")]))
