"""How wrong the match model is, by audits: below its own doubt only where that is proven, at any time."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from gateway.cache.audit.doubt_factor import LEAST, MAX_AUDITS, DoubtFactor, upper_limit
from gateway.cache.audit.evidence import Sample
from tests.gateway.cache.audit.test_error_budget import sample


def audits(count: int, rng: Random, *, doubt: float, ratio: float) -> list[Sample]:
    """Audits of answers with that doubt, of which `ratio` times as many are wrong."""
    return [
        msgspec.structs.replace(
            sample(number, wrong=rng.random() < doubt * ratio, match_probability=1.0 - doubt), at=float(number)
        )
        for number in range(count)
    ]


def found(samples: list[Sample]) -> DoubtFactor:
    doubt = DoubtFactor()
    for each in samples:
        doubt.add(each)
    return doubt


def test_nothing_is_proven_by_little_and_what_was_found_counts_at_once() -> None:
    assert DoubtFactor().factor == 1.0
    right = audits(45, Random(1), doubt=0.2, ratio=0.0)
    assert found(right[:20]).factor == 1.0
    assert found(right).factor == pytest.approx(upper_limit(0) / 9.0)
    assert found(audits(4, Random(1), doubt=0.1, ratio=10.0)).factor == pytest.approx(6.0 / 2.4)


def test_a_review_changes_what_was_found() -> None:
    doubt, (wrong,) = DoubtFactor(), audits(1, Random(1), doubt=0.1, ratio=10.0)
    doubt.add(wrong)
    doubt.add(msgspec.structs.replace(wrong, is_wrong=False), wrong)
    assert (doubt.num_wrong, doubt.factor) == (0.0, 1.0)
    assert doubt.expected == pytest.approx(0.1)


def test_the_latest_audits_count_most() -> None:
    doubt = found(audits(20 * MAX_AUDITS, Random(1), doubt=0.2, ratio=1.0))
    assert 0.05 * MAX_AUDITS < doubt.expected < 0.25 * MAX_AUDITS
    assert doubt.num_changes == 0


def test_the_limit_holds_at_every_instant_of_nearly_all_streams() -> None:
    num_broken = 0
    for seed in range(200):
        rng, num_wrong, mean = Random(seed), 0, 0.0
        for _ in range(1000):
            probability = rng.choice((0.02, 0.1, 0.3))
            mean += probability
            num_wrong += rng.random() < probability
            if mean > upper_limit(num_wrong):
                num_broken += 1
                break
    assert num_broken <= 0.05 * 200


def test_the_limit_is_near_what_was_found_once_there_is_enough() -> None:
    assert upper_limit(0) < 5.0
    assert upper_limit(20) < 45.0
    assert upper_limit(1000) < 1.15 * 1000


@pytest.mark.parametrize(
    ("ratio", "least", "most"), [(0.0, LEAST, LEAST), (0.3, 0.3, 0.7), (1.0, 1.0, 1.5), (3.0, 2.0, 4.0)]
)
def test_the_factor_is_what_audits_show(ratio: float, least: float, most: float) -> None:
    assert least <= found(audits(400, Random(5), doubt=0.2, ratio=ratio)).factor <= most


def test_audits_of_other_traffic_no_longer_count_once_wrong_answers_come_faster() -> None:
    calm = audits(500, Random(1), doubt=0.2, ratio=0.0)
    assert found(calm).factor == LEAST
    changed = [
        msgspec.structs.replace(found, at=1000.0 + found.at) for found in audits(40, Random(2), doubt=0.2, ratio=2.0)
    ]
    doubt = found([*calm, *changed])
    assert doubt.factor >= 1.0
    assert doubt.num_changes == 1
