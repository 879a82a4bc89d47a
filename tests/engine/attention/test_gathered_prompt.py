"""A prompt in chunks adds each chunk to what it gathered before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.attention.gathered_prompt import GatheredPrompt, PromptMemory


def prompt(start: int, end: int, *blocks: int) -> GatheredPrompt:
    return GatheredPrompt(start, end, np.array(blocks))


FIRST = prompt(0, 8, 5, 2)


@pytest.mark.parametrize(
    ("name", "now", "continues"),
    [
        ("the next chunk", prompt(8, 12, 5, 2, 9), True),
        ("computed again from the middle", prompt(6, 12, 5, 2, 9), True),
        ("the beginning of another", prompt(0, 12, 5, 2, 9), False),
        ("a gap", prompt(9, 12, 5, 2, 9), False),
        ("other blocks", prompt(8, 12, 5, 3, 9), False),
        ("other blocks behind what is reused", prompt(4, 12, 5, 3, 9), True),
    ],
)
def test_a_chunk_continues_the_one_before_in_the_same_blocks(name: str, now: GatheredPrompt, continues: bool) -> None:
    found = now.after(FIRST, block_size=4)
    assert (found.before is FIRST) is continues, name
    assert now.after(None, block_size=4).before is None


def test_what_was_stored_stays_while_the_memory_grows() -> None:
    keys, values = torch.randn(2, 300, 2, 4, generator=torch.Generator().manual_seed(1)).unbind()
    memory = PromptMemory()
    for start, end in ((0, 5), (5, 6), (6, 200), (200, 300)):
        state = prompt(start, end, 0)
        memory.put(state, start, keys[start:end], values[start:end])
        assert memory.state is state
        for found, expected in zip(memory.read(end), (keys, values), strict=True):
            assert torch.equal(found, expected[:end])


def test_another_prompt_may_be_stored_over_it_with_other_heads() -> None:
    memory = PromptMemory()
    memory.put(prompt(0, 9, 0), 0, torch.ones(9, 2, 4), torch.ones(9, 2, 4))
    memory.put(prompt(0, 3, 0), 0, torch.zeros(3, 1, 8), torch.zeros(3, 1, 8))
    keys, _ = memory.read(3)
    assert keys.shape == (3, 1, 8)
    assert not keys.any()
