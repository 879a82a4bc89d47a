"""Two questions compared."""

from __future__ import annotations

from gateway.cache.similarity.comparison import Comparison
from gateway.cache.similarity.vetoes import VETOES, find_veto
from gateway.cache.similarity.wording import Wording


def test_an_ablation_leaves_a_veto_out() -> None:
    found = Comparison.of(Wording.of("How do I enable the firewall?"), Wording.of("How do I disable the firewall?"))
    assert find_veto(found) == "opposite"
    assert find_veto(found, frozenset({"opposite"})) == "word"
    assert find_veto(found, frozenset(VETOES)) is None
