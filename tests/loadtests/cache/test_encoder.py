"""The bench of the encoder: times of both precisions, and a comparison that knows a difference when there is one."""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
from pathlib import Path

from loadtests.cache import encoder

QUESTIONS = ("how do i pay?", "how can one pay?", "where is my parcel?", "my parcel has not come", "hello", "good day")


def test_it_times_both_precisions_and_compares_them(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with gzip.open(tmp_path / "cache" / "qqp_calibration_questions.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("qid", "cluster", "text"))
        writer.writerows((str(number), str(number // 2), text) for number, text in enumerate(QUESTIONS))
    with gzip.open(tmp_path / "cache" / "qqp_calibration_pairs.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("qid_a", "qid_b", "label"))
        writer.writerows((("0", "1", "1"), ("2", "3", "1"), ("4", "5", "1"), ("0", "2", "0"), ("1", "4", "0")))
    parser = argparse.ArgumentParser()
    encoder.add_arguments(parser)
    card = asyncio.run(encoder.run(parser.parse_args(["--texts", "2", "--data", str(tmp_path), "--pairs", "5"])))

    assert card.failed is None
    results = card.results
    assert (results["texts"], results["pairs"]) == (6, 5)
    assert results["fp32_roc_area"] == results["int8_roc_area"] == 1.0
    cosine, took_ms = results["cosine_min"], results["int8_32_tokens_p50_ms"]
    assert isinstance(cosine, float)
    assert isinstance(took_ms, float)
    assert 0.99 < cosine < 0.99999
    assert took_ms > 0
