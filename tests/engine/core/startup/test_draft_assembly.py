"""Proposers by the settings: which are loaded, and which do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import CoreConfig, EngineConfigError
from engine.core.startup.draft_assembly import load_draft_model, load_heads, make_drafter
from engine.models.decoder import Model
from engine.models.loading.loader import load_model
from engine.runner.machine import Machine, find_machine
from tests.engine.core.checkpoints import write_checkpoint


def config_of(folder: Path, **settings: Any) -> CoreConfig:
    return CoreConfig.of(folder, device="cpu", num_threads=1, compiled_steps=False, **settings)


@pytest.fixture
def machine(checkpoint: Path) -> Machine:
    return find_machine(config_of(checkpoint))


@pytest.fixture
def model(checkpoint: Path, machine: Machine) -> Model:
    return load_model(checkpoint, dtype=torch.float32, device=machine.device, backend=machine.backend)


@pytest.mark.parametrize("speculation", ["off", "ngram"])
def test_a_draft_model_that_the_settings_do_not_use_is_not_loaded(
    speculation: str, checkpoint: Path, model: Model, machine: Machine
) -> None:
    config = config_of(checkpoint, speculation=speculation, draft_model_dir=Path("/nowhere"))
    assert load_draft_model(config, model, machine) is None
    assert load_draft_model(config_of(checkpoint, speculation="auto"), model, machine) is None


def test_a_draft_model_is_loaded_with_a_backend_of_its_own(
    checkpoint: Path, other_checkpoint: Path, model: Model, machine: Machine
) -> None:
    config = config_of(checkpoint, speculation="draft", draft_model_dir=other_checkpoint)
    found = load_draft_model(config, model, machine)
    assert found is not None
    assert found.config.vocab_size == model.config.vocab_size
    assert found is not model


def test_a_draft_model_of_another_vocabulary_or_tokenizer_is_refused(
    tmp_path: Path, checkpoint: Path, model: Model, machine: Machine
) -> None:
    larger, retokenized = tmp_path / "larger", tmp_path / "retokenized"
    write_checkpoint(larger, vocab_size=130)
    write_checkpoint(retokenized)
    (retokenized / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}}}))
    for folder in (larger, retokenized):
        config = config_of(checkpoint, speculation="draft", draft_model_dir=folder)
        with pytest.raises(EngineConfigError, match=f"{folder.name} has another tokenizer"):
            load_draft_model(config, model, machine)
    with pytest.raises(EngineConfigError, match="no such folder"):
        load_draft_model(config_of(checkpoint, speculation="draft", draft_model_dir=tmp_path / "none"), model, machine)


def test_heads_are_loaded_only_where_the_engine_may_choose_and_the_folder_has_some(
    checkpoint: Path, model: Model, machine: Machine
) -> None:
    assert load_heads(config_of(checkpoint, speculation="auto"), model, machine) is None
    assert load_heads(config_of(checkpoint, speculation="ngram"), model, machine) is None


def test_without_speculation_there_is_no_drafter(checkpoint: Path, machine: Machine) -> None:
    def run(_scheduled: object) -> Any:
        raise AssertionError("nothing is measured")

    config = config_of(checkpoint)
    assert make_drafter(config, machine, None, None, run, lambda: 0.0, num_blocks=8, max_model_len=64) is None
