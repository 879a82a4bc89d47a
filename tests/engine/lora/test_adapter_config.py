"""Options that would change an adapter's product are refused by name, in no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.lora.adapter_config import AdapterError, read_adapter_config
from tests.engine.lora.adapters import config_of


def _read(folder: Path, **options: Any) -> Any:
    (folder / "adapter_config.json").write_text(json.dumps(config_of(4, **options)))
    return read_adapter_config(folder, max_rank=8)


def test_reads_rank_and_scale(tmp_path: Path) -> None:
    assert (_read(tmp_path).rank, _read(tmp_path).scale) == (4, 2.0)
    assert _read(tmp_path, use_rslora=True).scale == 4.0
    assert _read(tmp_path).base_model == "tiny"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("use_dora", True),
        ("bias", "all"),
        ("bias", "lora_only"),
        ("lora_bias", True),
        ("modules_to_save", ["lm_head"]),
        ("rank_pattern", {"q_proj": 8}),
        ("alpha_pattern", {"q_proj": 8}),
        ("fan_in_fan_out", True),
        ("layer_replication", [[0, 2]]),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "loftq"),
        ("task_type", "SEQ_CLS"),
        ("trainable_token_indices", [1]),
        ("target_parameters", ["mlp.experts.gate_up_proj"]),
        ("megatron_config", {"a": 1}),
        ("an_option_of_tomorrow", 3),
        ("peft_type", "IA3"),
        ("r", 9),
        ("r", 0),
        ("r", True),
        ("r", 10**400),
        ("lora_alpha", "many"),
        ("lora_alpha", float("nan")),
        ("lora_alpha", float("inf")),
        ("lora_alpha", 1e300),
        ("lora_alpha", -(10**400)),
        ("use_rslora", "yes"),
    ],
)
def test_names_an_option_that_it_refuses(option: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=rf"adapter_config\.json: {option}: "):
        _read(tmp_path, **{option: value})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"peft_type": ' * 100_000, b" " * (2 << 20)])
def test_a_broken_file_is_an_error_of_its_own(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_bytes(content)
    with pytest.raises(AdapterError, match="adapter_config"):
        read_adapter_config(tmp_path, 8)


@pytest.mark.parametrize("folder", ["missing", "a\0b", "x" * 5000])
def test_a_folder_that_is_not_there_is_an_error_of_its_own(folder: str, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="adapter_config"):
        read_adapter_config(tmp_path / folder, 8)
