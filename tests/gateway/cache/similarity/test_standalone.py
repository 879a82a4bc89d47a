"""Questions that call the same whatever was stated before, and those that do not."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.standalone import is_standalone


@pytest.mark.parametrize(
    "text",
    [
        "How do herons catch fish in muddy rivers?",
        "What is the difference between moss, lichen and algae?",
        "What's the best way to sharpen garden shears?",
        "Why do copper roofs turn green near Lisbon?",
    ],
)
def test_what_states_what_it_is_about_stands_alone(text: str) -> None:
    assert is_standalone(text)


@pytest.mark.parametrize(
    "text",
    [
        *("How do they catch fish in muddy rivers?", "What is its deepest muddy river called?"),
        *("And how do herons catch fish in rivers?", "What about herons that catch fish in rivers?"),
        *("Are there other herons that nest in reeds?", "Which of these herons nest in muddy reeds?"),
        *("Who sang the songs on the album?", "When was the bridge over Tagus rebuilt?"),
        *("Why?", "Go on.", "Tell me more about herons, reeds and rivers.", "Summarize herons, reeds and rivers again"),
        *("What happened next?", "Which prize?", "Did Ann win?", "", "?!"),
    ],
)
def test_what_leans_on_something_stated_before_does_not(text: str) -> None:
    assert not is_standalone(text)
