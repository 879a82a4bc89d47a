"""When speculation counts as lossless."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.selftest.distribution import ChiSquare
from engine.selftest.speculation import Agreement, Report, default_draft_model

SAME = Agreement(num_tokens=100, num_differences=0, num_ties=2)
OTHER = Agreement(num_tokens=100, num_differences=1, num_ties=0)
CLOSE, FAR = ChiSquare(3.0, 3), ChiSquare(90.0, 3)


def report(
    greedy: Agreement = SAME, seeded: Agreement = SAME, chi_square: ChiSquare = CLOSE, accepted: int = 5
) -> Report:
    return Report(
        dtype="float32",
        greedy=greedy,
        seeded=seeded,
        chi_square=chi_square,
        drafted_tokens=9,
        accepted_tokens=accepted,
    )


@pytest.mark.parametrize(
    ("name", "found", "is_lossless"),
    [
        ("ties are rounding", report(), True),
        ("a greedy answer differs", report(greedy=OTHER), False),
        ("a seeded answer differs", report(seeded=OTHER), False),
        ("another distribution", report(chi_square=FAR), False),
        ("nothing was accepted, so nothing was checked", report(accepted=0), False),
    ],
)
def test_every_part_must_agree(name: str, found: Report, is_lossless: bool) -> None:
    assert found.is_lossless is is_lossless, name


def test_only_the_bundled_large_model_has_a_draft_model_beside_it(tmp_path: Path) -> None:
    large, small = tmp_path / "penstock-large", tmp_path / "penstock-small"
    large.mkdir()
    assert default_draft_model(large) is None
    small.mkdir()
    assert default_draft_model(large) == small
    assert default_draft_model(small) is None
    assert default_draft_model(tmp_path / "my-large") is None
