"""Layers with a sliding window keep their window only, and answers stay what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.kv_cache.window_blocks import window_pool_blocks
from tests.engine.core.checkpoints import VOCAB_SIZE
from tests.engine.core.tiny_core import PROMPTS, SHARED, TinyCore
from tests.engine.lora.adapters import write_adapter
from tests.engine.models.checkpoints import make_reference, save_checkpoint

SIZES = {"hidden_size": 96, "vocab_size": VOCAB_SIZE}
WINDOW = 20
LONG = [[(5 * n * n + k * n + 3) % VOCAB_SIZE for n in range(90 + 20 * k)] for k in range(3)]
BUDGET, NUM_SEQS = 24, 4


def core(folder: Path, **settings: Any) -> TinyCore:
    return TinyCore(folder, budget=BUDGET, num_seqs=NUM_SEQS, **settings)


def num_window_blocks(block_size: int) -> int:
    return window_pool_blocks(WINDOW, block_size, max_num_seqs=NUM_SEQS, max_num_batched_tokens=BUDGET, max_reach=1)


@pytest.mark.parametrize(
    ("variant", "compiled_threads", "block_size"),
    [
        *(("gemma2", 0, 8), ("gemma2", 2, 16), ("gemma3", 0, 8), ("gemma3", 2, 16)),
        *(("smollm3_windowed", 2, 16), ("exaone4", 2, 16), ("gpt_oss", 0, 8), ("gpt_oss", 2, 16)),
    ],
)
def test_answers_are_those_of_a_pool_that_keeps_everything(
    variant: str, compiled_threads: int, block_size: int, tmp_path: Path
) -> None:
    folder = save_checkpoint(make_reference(variant, **SIZES), tmp_path)
    whole = core(folder, compiled_threads=compiled_threads)
    # A few more than running sequences need, so that places of shared prefixes outlive the sequences' own.
    num_places = num_window_blocks(block_size) + 12
    windowed = core(folder, compiled_threads=compiled_threads, num_window_blocks=num_places)

    for prompts in (SHARED, SHARED, PROMPTS, LONG, SHARED, LONG, [PROMPTS[0] + [5]]):
        assert windowed.answers(prompts, max_tokens=40) == whole.answers(prompts, max_tokens=40)
        assert windowed.num_leaked == 0
    assert windowed.tally.prefix_hit_tokens > 0


@pytest.mark.parametrize(("compiled_threads", "block_size"), [(0, 8), (2, 16)], ids=["torch", "compiled"])
def test_sequences_with_adapters_and_without_read_the_windows_of_their_own(
    compiled_threads: int, block_size: int, tmp_path: Path
) -> None:
    reference = make_reference("qwen2_windowed", **SIZES)
    folder = save_checkpoint(reference, tmp_path / "base")
    write_adapter(tmp_path / "adapter", reference)
    settings: dict[str, Any] = {"compiled_threads": compiled_threads, "adapters": {"a": tmp_path / "adapter"}}
    whole = core(folder, **settings)
    windowed = core(folder, num_window_blocks=num_window_blocks(block_size) + 12, **settings)
    owners: list[str | None] = ["a", None, "a"]

    for prompts in (SHARED[:3], LONG, SHARED[:3]):
        found = windowed.answers(prompts, owners, max_tokens=40)
        assert found == whole.answers(prompts, owners, max_tokens=40)
        assert found != windowed.answers(prompts, max_tokens=40)


def test_a_long_text_takes_as_little_of_windowed_layers_as_a_short_one(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("gemma3", **SIZES), tmp_path)
    found = core(folder, num_window_blocks=num_window_blocks(8))
    assert found.windows is not None
    assert found.windows.num_places < found.num_blocks // 2
    windowed, full = found.caches[0], found.caches[1]
    assert windowed.keys.shape[0] == found.windows.num_places * 8  # type: ignore[attr-defined]
    assert full.keys.shape[0] == found.num_blocks * 8  # type: ignore[attr-defined]

    found.answers([LONG[2]], max_tokens=60)

    assert found.windows.num_held == 0
