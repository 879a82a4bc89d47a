"""English is given by its small words."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.language import is_english


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("how do i oil a lock", True),
        ("porto braga lisbon", True),
        ("what does das haus mean in english", True),
        ("wie öle ich ein schloss", False),
        ("comment huiler une serrure sans outils", False),
    ],
)
def test_small_words_show_the_language(text: str, expected: bool) -> None:
    assert is_english(text.split()) is expected
