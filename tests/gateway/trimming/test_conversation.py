"""A conversation in turns: where they begin, and what may be changed."""

from __future__ import annotations

from gateway.trimming.conversation import Conversation, edited, size_of

SYSTEM, USER, ANSWER, TOOL = (
    {"role": role, "content": f"{role} says"} for role in ("system", "user", "assistant", "tool")
)


def test_a_turn_begins_with_every_user_message_and_keeps_its_tools() -> None:
    talk = Conversation([SYSTEM, USER, ANSWER, TOOL, ANSWER, USER, ANSWER])
    assert talk.turns() == [range(1), range(1, 5), range(5, 7)]
    assert talk.last_turn_begins() == 5
    assert talk.old_messages() == range(1, 5)


def test_without_instructions_the_first_turn_is_empty_and_a_greeting_is_a_turn_of_its_own() -> None:
    talk = Conversation([ANSWER, USER])
    assert talk.turns() == [range(0), range(1), range(1, 2)]
    assert talk.old_messages() == range(1)


def test_only_instructions_have_no_turn_that_may_change() -> None:
    talk = Conversation([SYSTEM, SYSTEM])
    assert talk.turns() == [range(2)]
    assert not talk.old_messages()


def test_with_newer_messages_behind_it_each_call_of_the_last_turn_is_old() -> None:
    talk = Conversation([SYSTEM, USER, ANSWER, USER, ANSWER, TOOL, TOOL, ANSWER, TOOL], has_newer=True)
    assert talk.turns() == [range(1), range(1, 3), range(3, 4), range(4, 7), range(7, 9), range(9, 9)]
    assert talk.old_messages() == range(1, 9)
    assert talk.fixed_messages() == {0, 3}
    assert talk.only([0, 3, 7, 8]).has_newer


def test_sizes_are_bytes_of_texts_and_of_tool_calls() -> None:
    assert size_of({"role": "user", "content": "né"}) == 3
    parts = [{"type": "text", "text": "abc"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert size_of({"role": "user", "content": parts}) == 3
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "find", "arguments": '{"é":1}'}}],
    }
    assert size_of(call) == len("find") + len('{"é":1}'.encode())


def test_an_edit_that_changes_nothing_gives_the_same_object() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "abc"}, {"type": "image_url"}]}
    for message in (USER, parts, {"role": "assistant", "content": None}):
        assert edited(message, lambda text: text) is message
    upper = edited(parts, str.upper)
    assert upper["content"] == [{"type": "text", "text": "ABC"}, {"type": "image_url"}]
    assert parts["content"][0] == {"type": "text", "text": "abc"}, "the message itself stays"
