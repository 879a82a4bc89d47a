"""Lengths of requests: from a trace when there is one, else from a fit that states what it is."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from loadtests.engine.lengths import draw_lengths


def test_fitted_lengths_are_of_the_traces_size_and_report_it() -> None:
    lengths = draw_lengths(None, 4000, max_total_tokens=100_000, rng=random.Random(1))
    prompts, outputs = zip(*lengths.pairs, strict=True)
    assert sum(prompts) / len(prompts) == pytest.approx(1230, rel=0.15)
    assert sum(outputs) / len(outputs) == pytest.approx(219, rel=0.15)
    assert "lognormal fit" in lengths.source


def test_all_requests_fit_into_the_context_at_one_scale() -> None:
    lengths = draw_lengths(None, 1000, max_total_tokens=512, rng=random.Random(1))
    assert max(map(sum, lengths.pairs)) <= 512
    assert min(map(min, lengths.pairs)) >= 4


def test_a_trace_is_read_from_the_folder_given(tmp_path: Path) -> None:
    trace = tmp_path / "traces" / "azure2023_conv.csv.gz"
    trace.parent.mkdir()
    with gzip.open(trace, "wt") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,100,20\n")
    lengths = draw_lengths(tmp_path, 3, max_total_tokens=1000, rng=random.Random(1))
    assert lengths.pairs == [(100, 20)] * 3
    assert "Azure 2023 conversation trace" in lengths.source


def test_a_missing_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="azure2023_conv"):
        draw_lengths(tmp_path, 3, max_total_tokens=1000, rng=random.Random(1))
