"""One form for all ways to write a question."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.semantic.canonical_question import canonical_question


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of Australia",
        "What is  the capital\nof Australia?",
        "What is the capital of Australia ?!",
        "What is the captial of Australia...",
    ],
)
def test_marks_spaces_and_sure_slips_make_no_difference(text: str) -> None:
    assert canonical_question(text) == "What is the capital of Australia?"


def test_code_and_rare_words_stay_as_they_are() -> None:
    assert canonical_question("What does numpy's x[::-1] do?") == "What does numpy's x[::-1] do?"
    assert canonical_question("?!") == "?!"


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_the_form_of_a_form_is_itself(text: str) -> None:
    once = canonical_question(text)
    assert canonical_question(once) == once
