"""Spellings of one word meet, and courtesies are left out; nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.cache.grammar import standard_form as module
from gateway.cache.grammar.standard_form import standard_form
from gateway.cache.grammar.vocabulary import ranks


@pytest.mark.parametrize(
    ("text", "standard"),
    [
        ("What colour are grey tyres?", "What color are gray tires?"),
        ("Who organised the Theatre programmes?", "Who organized the Theater programs?"),
        ("COLOUR", "COLOR"),
        ("exercise, advise, surprise and sunrise", "exercise, advise, surprise and sunrise"),
        ("the modern programmer", "the modern programmer"),
        ("print `colour` or the flag --colour", "print `colour` or the flag --colour"),
        ("the U.S. and the U.K. or the u.s. alone", "the US and the UK or the US alone"),
        ("the United States of America", "the US"),
        ("an e-mail, e mails, an E-book and e.g. wi-fi", "an email, emails, an Ebook and e.g. wifi"),
        ("my 1st and 2nd try", "my first and second try"),
        ("I can't, CAN'T or cannot", "I can not, CAN NOT or can not"),
        ("Won't it? `can't`", "Will not it? `can't`"),
        ("Wi-Fi, WI-FI and Anglo-American, Colour-Blind", "Wifi, WIFI and Anglo-American, Color-Blind"),
        ("Hi! Could you please tell me how herons nest? Thanks!", "how herons nest"),
        ("hello what do herons eat", "what do herons eat"),
        ("Hello world programs in C", "Hello world programs in C"),
        ("Do you know who wrote the hymn?", "who wrote the hymn?"),
        ("How do I please my guests?", "How do I please my guests?"),
        ("Can you eat raw figs?", "Can you eat raw figs?"),
        ("I need a recipe for jam", "a recipe for jam"),
        ("I need a lawyer in Porto", "I need a lawyer in Porto"),
        ("Tell me more", "Tell me more"),
        ("What is the height of a heron?", "How tall is a heron?"),
        ("what was the age of the choir", "How old was the choir"),
        ("Who is the author of the hymn?", "Who wrote the hymn?"),
        ("What is the height, in feet?", "What is the height, in feet?"),
        ("on June 5th, 1967 and the 3rd of May", "on June 5, 1967 and the 3 May"),
        ("20°C, 20 °F and 20 c", "20 degrees Celsius, 20 degrees Fahrenheit and 20 c"),
        ("at 3 p.m. or 3AM", "at 3 pm or 3 am"),
        ("Please.", "Please."),
        ("", ""),
    ],
)
def test_a_text_in_standard_form(text: str, standard: str) -> None:
    assert standard_form(text) == standard
    assert standard_form(standard) == standard


def test_a_standard_spelling_is_looked_for_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    num_reads = 0

    def counted() -> Mapping[str, int]:
        nonlocal num_reads
        num_reads += 1
        return ranks()

    monkeypatch.setattr(module, "ranks", counted)
    assert standard_form("they zyxelise it") == "they zyxelize it"
    num_first = num_reads
    assert standard_form("they zyxelise it") == "they zyxelize it"
    assert num_reads == 2 * num_first > 0


def test_a_long_text_of_courtesies_is_read_in_time() -> None:
    text = "hi, " * 5000 + "what do herons eat?"
    assert standard_form(text) == "what do herons eat?"
