"""Messages about fields, in the words of the client's API."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.own_words import in_own_words, refuse_names_of_chat, with_own_kinds
from gateway.errors import InvalidRequest


@pytest.mark.parametrize(
    ("message", "field", "expected"),
    [
        (
            "`stop` has too many stop strings; 'stop' is a list",
            "stop",
            "`own` has too many stop strings; 'own' is a list",
        ),
        ("stop: a server stops without stop", "stop", "own: a server stops without stop"),
        ("stopped by stop", "stop", "stopped by stop"),
        ("a.max_tokens and max_tokens_x, but max_tokens", "max_tokens", "a.max_tokens and max_tokens_x, but own"),
        ("messages[1].content of messages[11].content", "messages[1].content", "own of messages[11].content"),
        ("the field tools[0].name[2] and tools[0].names", "tools[0].name", "the field own[2] and tools[0].names"),
        (r"`stop` \\1", "stop", r"`own` \\1"),
    ],
)
def test_only_the_field_itself_is_renamed(message: str, field: str, expected: str) -> None:
    assert in_own_words(message, field, "own") == expected
    assert in_own_words(message, field, field) == message


def test_kinds_are_renamed_in_messages_about_the_type_of_a_part() -> None:
    message = 'must be "text"; got "file"'
    assert with_own_kinds(message, "messages[3].content[0].type", {"file": "document"}) == message.replace(
        "file", "document"
    )
    for other in ("messages[3].content[0].file", "tools[0].type", "messages[3].content"):
        assert with_own_kinds(message, other, {"file": "document"}) == message


@pytest.mark.parametrize("count", [1, 1.0])
def test_one_answer_may_be_requested(count: Any) -> None:
    refuse_names_of_chat({"n": count, "own": 1}, {"other": "own"})


@pytest.mark.parametrize(
    ("document", "name", "remedy"),
    [
        ({"other": 1}, "other", "Send `own`."),
        ({"n": 2}, "n", "Send a request for each answer."),
        ({"n": "1"}, "n", "Send a request for each answer."),
        ({"n": 1, "best_of": 3}, "best_of", "Send a request for each answer."),
        ({"n": 0}, "n", "Send a request for each answer."),
    ],
)
def test_other_names_and_several_answers_are_refused(document: dict[str, Any], name: str, remedy: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_names_of_chat(document, {"other": "own"})
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")
    assert caught.value.message.endswith(remedy)
