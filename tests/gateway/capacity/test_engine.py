"""An engine's figures: read from its load feed, or fitted to measured shapes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.capacity.engine import FiguresMissing, figures_of_load, terms_of_steps


def test_figures_come_from_the_load_feed() -> None:
    document: dict[str, Any] = {
        "state": "ready",
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "num_blocks_total": 1000,
        "block_size": 16,
        "step_time": {
            "fixed_s": 0.01,
            "row_s": 0.001,
            "prefill_token_s": 0.0,
            "kv_token_s": 0.0,
            "pair_s": 0.0,
            "chunk_s": 0.0,
        },
    }
    found = figures_of_load(document)
    assert (found.max_num_seqs, found.step_tokens, found.kv_tokens) == (64, 512, 16_000)
    with pytest.raises(FiguresMissing, match="steps"):
        figures_of_load({**document, "step_time": None})
    for terms in ({"row_s": 0.0}, {"fixed_s": 0.0}, {"row_s": -0.001}, {"pair_s": -1.0}):
        with pytest.raises(FiguresMissing, match="several lengths"):
            figures_of_load({**document, "step_time": {**document["step_time"], **terms}})
    with pytest.raises(FiguresMissing, match="not ready"):
        figures_of_load({**document, "num_blocks_total": 0})
    with pytest.raises(FiguresMissing, match="/engine/load"):
        figures_of_load({"max_num_seqs": "many"})


def test_terms_are_fitted_to_measured_shapes() -> None:
    shapes = [(1, 128), (16, 128), (64, 128), (1, 4096), (16, 4096)]
    measured = [
        {
            "num_seqs": num_seqs,
            "context": context,
            "overlapped_ms": 1e3 * (0.005 + 0.0002 * num_seqs + 1e-8 * num_seqs * context),
        }
        for num_seqs, context in shapes
    ]
    found = terms_of_steps({"shapes": measured}, prefill_token_s=0.00001)
    assert found.fixed_s == pytest.approx(0.005, rel=1e-3)
    assert found.row_s == pytest.approx(0.0002, rel=1e-2)
    assert found.kv_token_s == pytest.approx(1e-8, rel=1e-2)
    assert found.prefill_token_s == 0.00001


def test_one_shape_is_too_few() -> None:
    with pytest.raises(FiguresMissing, match="--shape"):
        terms_of_steps({"shapes": [{"num_seqs": 1, "context": 128, "overlapped_ms": 5.0}]}, prefill_token_s=0.0)


def test_no_fitted_term_is_negative() -> None:
    noisy = [{"num_seqs": num_seqs, "context": 512, "overlapped_ms": 10.0 - 0.01 * num_seqs} for num_seqs in (1, 8, 64)]
    found = terms_of_steps({"shapes": noisy}, prefill_token_s=0.0)
    assert found.row_s == 0.0
    assert found.fixed_s > 0.0
