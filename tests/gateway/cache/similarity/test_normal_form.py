"""Texts that look the same are the same."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.similarity.normal_form import normal_form


@pytest.mark.parametrize(
    ("shown", "plain"),
    [
        ("re\u200bset the\u00a0router", "reset the router"),
        ("\u202ereset the router", "reset the router"),
        ("ｒｅｓｅｔ the router", "reset the router"),
        ("r\u0435s\u0435t the router", "reset the router"),
        ("ρassword", "password"),
        ("don’t", "don't"),
        ("line\none", "line one"),
        ("null\x00byte", "nullbyte"),
        ("2³ + 10⁻³ and x² of (a+b)²", "2^3 + 10^-3 and x^2 of (a+b)^2"),
        ("101₂ and 2ⁿ", "101_2 and 2^n"),
        ("20 m², 3cm², H₂O and Fe²⁺", "20 m2, 3cm2, H2O and Fe2+"),
    ],
)
def test_what_seems_the_same_is_the_same(shown: str, plain: str) -> None:
    assert normal_form(shown) == plain


def test_a_word_of_another_script_stays_what_it_is() -> None:
    assert normal_form("что это") == "что это"
    assert normal_form("Ελλάδα") == unicodedata.normalize("NFKC", "Ελλάδα")


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_a_normal_form_is_its_own_normal_form(text: str) -> None:
    once = normal_form(text)
    assert normal_form(once) == once
