"""The bench of the vector index: it finds, and starts from the snapshot that it left."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import pytest

from loadtests.cache import encoder, index
from loadtests.harness.card import Card


def measured(*options: str) -> Card:
    parser = argparse.ArgumentParser()
    index.add_arguments(parser)
    return asyncio.run(index.run(parser.parse_args(options)))


def test_it_finds_nearly_all_and_starts_again_from_its_snapshot(tmp_path: Path) -> None:
    options = ("--entries", "11000", "--queries", "100", "--snapshot", str(tmp_path / "vectors"))
    first, second = measured(*options), measured(*options)
    assert (first.failed, second.failed) == (None, None)
    assert isinstance(first.results["build_cpu_s"], float)
    assert second.results["build_cpu_s"] is None
    assert first.results["recall_at_1"] == second.results["recall_at_1"]
    recall = first.results["recall_at_1"]
    assert isinstance(recall, float)
    assert recall > 0.9


@pytest.mark.parametrize("bench", [index, encoder])
def test_missing_data_is_reported_plainly(tmp_path: Path, bench: object) -> None:
    assert bench in (index, encoder)
    parser = argparse.ArgumentParser()
    module = index if bench is index else encoder
    module.add_arguments(parser)
    with pytest.raises(OSError, match="leave --data out"):
        asyncio.run(module.run(parser.parse_args(["--data", str(tmp_path)])))
