"""Conditions as tokens, each with its place."""

from __future__ import annotations

import pytest

from routing_policies.conditions.tokens import ConditionError, tokens


def test_every_token_has_its_kind_its_text_and_its_place() -> None:
    found = [tuple(token) for token in tokens(' a >= 1.5&&"x"')]
    assert found == [
        ("name", "a", 2),
        ("sign", ">=", 4),
        ("number", "1.5", 7),
        ("sign", "&&", 10),
        ("string", '"x"', 12),
        ("end", "", 15),
    ]


@pytest.mark.parametrize(
    ("source", "texts"), [("", [""]), ("1.", ["1", ".", ""]), ("a<=!b", ["a", "<=", "!", "b", ""])]
)
def test_the_longest_sign_is_one_token(source: str, texts: list[str]) -> None:
    assert [token.text for token in tokens(source)] == texts


@pytest.mark.parametrize("text", ['"a\\"b"', "'it'", r'"\d+\.\w"', '"||"'])
def test_a_text_in_quotes_is_one_token(text: str) -> None:
    string, end = tokens(text)
    assert (string.kind, string.text, end.kind) == ("string", text, "end")


@pytest.mark.parametrize(("source", "at"), [("a @ b", 3), ('"open', 1), ("a & b", 3), ("a\n#", 3), ('"\\x41"', 1)])
def test_a_character_without_a_meaning_is_refused_at_its_place(source: str, at: int) -> None:
    with pytest.raises(ConditionError, match=rf"is not valid here \(at character {at}\)") as refusal:
        list(tokens(source))
    assert refusal.value.at == at
