"""The engine's bench compares with transformers, whole and part by part.

Numbers are not evaluated, only that they are.
"""

from __future__ import annotations

import pytest

from tests.loadtests.bench import bench

SMALL = "engine/bundled/models/penstock-small"


@pytest.mark.e2e
def test_engine_is_compared_with_transformers() -> None:
    record = bench("engine", "--seconds", "1", "--model", SMALL, "--threads", "1")
    for batch in (1, 8):
        assert record[f"decode_b{batch}_ratio"] > 0.01
        assert record[f"decode_b{batch}_streamed_ratio"] > 0.01
        assert record[f"decode_b{batch}_tok_s"] > 0
    assert record["bundled_b1_tok_s"] == record["decode_b1_tok_s"]
    assert record["threads"] == 1


@pytest.mark.e2e
def test_parts_of_the_engine_bench_run_by_themselves() -> None:
    parts = ("prefix", "speculation")
    record = bench(
        "engine", *(f"--only={part}" for part in parts), "--seconds", "0.1", "--model", SMALL, "--threads", "1"
    )
    assert 0.99 < record["prefix_computed_ratio"] <= 1.1
    for name in ("prefix_ttft_ratio", "prefix_miss_cost_ratio", "speculation_b1_ratio"):
        assert record[name] > 0.01
    assert 0.01 < record["speculation_worst_ratio"] <= record["speculation_b1_ratio"]
    assert "decode_b1_ratio" not in record


@pytest.mark.e2e
def test_predictions_change_no_answer_of_the_bench() -> None:
    record = bench("engine", "--only=prediction", "--seconds", "0.1", "--model", SMALL, "--threads", "1")
    assert 0.01 < record["prediction_worst_ratio"] <= record["prediction_equal_b1_ratio"]
    assert record["prediction_detail_b1_ratio"] > 0.01
    assert record["prediction_accepted_tokens"] > 0


@pytest.mark.e2e
@pytest.mark.parametrize("size", ["small", "large"])
def test_answers_of_every_kind_are_equal_with_predictions_and_without(size: str) -> None:
    model = f"engine/bundled/models/penstock-{size}"
    record = bench("engine", "--only=prediction_equality", "--seconds", "0.1", "--model", model, "--threads", "1")
    assert record["prediction_equality_requests"] >= 54
    assert record["prediction_equality_accepted"] + record["prediction_equality_rejected"] > 0
