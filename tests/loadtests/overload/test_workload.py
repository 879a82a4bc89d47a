"""Workloads keep the order, the mix and the rate that they guarantee."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from loadtests.overload.workload import (
    Lengths,
    Offer,
    TraceMissing,
    leaving,
    merged,
    poisson_offers,
    read_trace,
    scaled,
)


def test_a_poisson_workload_has_its_rate_and_stays_inside_its_time() -> None:
    offers = list(poisson_offers(100.0, 20.0, random.Random(1), Lengths()))
    assert 1800 < len(offers) < 2200
    assert all(0 < offer.at_s < 20 for offer in offers)
    assert all(8 <= offer.prompt_tokens <= 4000 and 1 <= offer.output_tokens <= 400 for offer in offers)


def test_the_same_seed_draws_the_same_workload() -> None:
    one, two = (list(poisson_offers(50.0, 2.0, random.Random(7), Lengths())) for _ in range(2))
    assert one == two


def test_a_share_of_the_clients_leaves() -> None:
    offers = list(poisson_offers(500.0, 4.0, random.Random(1), Lengths()))
    gone = [offer for offer in leaving(offers, 0.3, 1.0, random.Random(2)) if offer.leaves_after_s is not None]
    assert 0.25 < len(gone) / len(offers) < 0.35
    assert all(0 <= (offer.leaves_after_s or 0.0) <= 1.0 for offer in gone)


def test_merged_streams_are_in_the_order_of_their_instants() -> None:
    early, late = Offer(at_s=0.1, prompt_tokens=1, output_tokens=1), Offer(at_s=0.2, prompt_tokens=1, output_tokens=1)
    assert merged([late], [early]) == [early, late]


def test_an_azure_trace_starts_at_zero_and_keeps_its_lengths(tmp_path: Path) -> None:
    rows = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47.1805900,8,0\n"
    )
    (tmp_path / "azure2023_conv.csv.gz").write_bytes(gzip.compress(rows.encode()))
    first, second = read_trace("azure-conv", tmp_path, random.Random(1))
    assert (first.at_s, first.prompt_tokens, first.output_tokens) == (0.0, 374, 44)
    assert second.at_s == pytest.approx(0.5)
    assert second.output_tokens == 1, "a request without an answer still makes one token"


def test_mooncake_requests_of_one_tick_are_spread_over_it_and_keep_their_prefix(tmp_path: Path) -> None:
    rows = [{"timestamp": tick, "input_length": 600, "output_length": 9, "hash_ids": [0, 1]} for tick in (0, 0, 3000)]
    text = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "mooncake_conversation.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    offers = read_trace("mooncake", tmp_path, random.Random(1))
    assert offers[0].at_s == 0.0
    assert 0.0 < offers[1].at_s < 3.0
    assert all(offer.prefix == (0, 1) for offer in offers)


def test_a_missing_trace_states_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TraceMissing, match=r"azure2023_code.*--data"):
        read_trace("azure-code", tmp_path, random.Random(1))


def test_a_scaled_trace_fits_the_context_and_the_rate() -> None:
    trace = [Offer(at_s=10.0 * number, prompt_tokens=4000 + number, output_tokens=100) for number in range(100)]
    offers = scaled(trace, seconds=5.0, rate_per_s=10.0, context_tokens=2048)
    assert len(offers) == 50
    assert (offers[0].at_s, offers[-1].at_s) == (0.0, 5.0)
    assert max(offer.prompt_tokens + offer.output_tokens for offer in offers) <= 2049
