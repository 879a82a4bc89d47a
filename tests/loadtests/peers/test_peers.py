"""The bench beside other engines: what it measures, and that it runs without one."""

from __future__ import annotations

import pytest

from loadtests.peers.peers import cells
from tests.loadtests.bench import bench

SMALL = "engine/bundled/models/penstock-small"


def test_batches_decode_behind_the_shortest_prompt_and_one_sequence_behind_the_longer_ones() -> None:
    names = [cell.name for cell in cells(streams=[8, 1], prompts=[512, 32])]
    assert names == ["prefill_32", "prefill_512", "decode_b1_32", "decode_b8_32", "decode_b1_512"]


@pytest.mark.e2e
def test_the_engine_is_measured_alone_and_beside_a_neighbour() -> None:
    options = ("--streams", "1", "2", "--prompts", "32", "64", "--threads", "2", "--seconds", "4", "--neighbour")
    record = bench("peers", "--model", SMALL, *options)
    for cell in cells(streams=[1, 2], prompts=[32, 64]):
        assert record[f"{cell.name}_tok_s"] > 0
        assert record[f"neighbour_{cell.name}_tok_s"] > 0
