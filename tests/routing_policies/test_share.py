"""Hashes that other processes and versions agree on."""

from __future__ import annotations

import pytest

from routing_policies.share import share_of, stable_key


def test_keys_depend_on_where_the_parts_end() -> None:
    assert stable_key("ab", "c") != stable_key("a", "bc")
    assert 0.0 <= share_of(stable_key("x"), "a") < 1.0
    assert stable_key("tenant", "conversation") == 13727389963787171660  # other processes and versions agree


def test_positions_are_even_over_keys_and_independent_between_names() -> None:
    keys = [stable_key("t", str(number)) for number in range(4000)]
    first, second = ([share_of(key, name) for key in keys] for name in ("a", "b"))
    for shares in (first, second):
        assert sum(shares) / len(shares) == pytest.approx(0.5, abs=0.02)
        assert sum(share < 0.1 for share in shares) / len(shares) == pytest.approx(0.1, abs=0.02)
    together = sum(one < 0.5 and other < 0.5 for one, other in zip(first, second, strict=True))
    assert together / len(keys) == pytest.approx(0.25, abs=0.03)


def test_text_that_is_no_unicode_has_a_key_as_well() -> None:
    assert stable_key("\ud800") != stable_key("\ud801")
    assert stable_key("") != stable_key("", "") != stable_key()
