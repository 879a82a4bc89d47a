"""Sliding windows of a model's layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.models.config.test_config import GEMMA2, MIXED, QWEN, read


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({}, (None, None, None, None)),
        ({"use_sliding_window": False, "max_window_layers": 0}, (None, None, None, None)),
        ({"use_sliding_window": True, "max_window_layers": 0}, (32, 32, 32, 32)),
        ({"use_sliding_window": True, "max_window_layers": 3}, (None, None, None, 32)),
        ({"use_sliding_window": True, "max_window_layers": 9}, (None, None, None, None)),
        ({"use_sliding_window": True, "layer_types": MIXED}, (None, 32, None, 32)),
        ({"layer_types": ["full_attention"] * 4}, (None, None, None, None)),
    ],
)
def test_qwen_windows_per_layer(changes: dict[str, Any], windows: tuple[int | None, ...], tmp_path: Path) -> None:
    assert read(tmp_path, **QWEN, **changes).traits.sliding_windows == windows


def test_alternating_windows_follow_the_listed_layers_where_there_are_some(tmp_path: Path) -> None:
    assert read(tmp_path, **GEMMA2, layer_types=MIXED).traits.sliding_windows == (None, 32, None, 32)
    assert read(tmp_path, **{**GEMMA2, "sliding_window": "absent"}).traits.sliding_windows == (4096, None) * 2
