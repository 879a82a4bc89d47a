"""Streams known by their text: what is read of them, where the next server begins, and what the client gets of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.forwarding.resume.text_channel import TextChannel
from gateway.upstreams.http1.errors import OtherAnswer

DONE = b"data: [DONE]\n\n"


def event(text: str | None = None, *, ends: bool = False, usage: tuple[int, int] | None = None, **delta: Any) -> bytes:
    """A chunk as vLLM writes it."""
    if text is not None:
        delta["content"] = text
    document: dict[str, Any] = {"id": "chatcmpl-2", "created": 9, "choices": []}
    if usage is None:
        document["choices"] = [{"index": 0, "delta": delta, "finish_reason": "stop" if ends else None}]
    else:
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        document["usage"] = dict(zip(names, (*usage, sum(usage)), strict=True))
    return b"data: %b\n\n" % json.dumps(document).encode()


def begun(*texts: str) -> TextChannel:
    channel = TextChannel()
    for text in texts:
        channel.feed(event(text).replace(b"chatcmpl-2", b"chatcmpl-1").replace(b'"created": 9', b'"created": 1'))
    return channel


def request_of(channel: TextChannel, **members: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": "Tell me."}], **members}
    found: dict[str, Any] = json.loads(channel.continued_body(json.dumps(body).encode(), "continue_final_message"))
    return found


def text_of(events: bytes) -> str:
    documents = [json.loads(one[6:]) for one in events.split(b"\n\n") if one and one != DONE.strip()]
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in documents if one["choices"])


@pytest.mark.parametrize(
    ("texts", "beginning"),
    [
        (("One two thr",), "One two"),
        (("One ", "two", " "), "One"),
        (("One two.\n\n",), "One"),
        (("One two.\n\nThree",), "One two."),
        (("One",), None),
        ((" ",), None),
        (("日本" * 40,), None),
        (("日本", "語") * 30, "日本語" * 27),
        (("See ", "http://", "a" * 40, "b" * 40, "c" * 7), "See http://" + "a" * 40),
    ],
)
def test_the_next_server_begins_behind_the_last_word_but_one(texts: tuple[str, ...], beginning: str | None) -> None:
    request = request_of(begun(*texts))
    if beginning is None:
        assert [message["role"] for message in request["messages"]] == ["user"]
        assert "continue_final_message" not in request
        return
    assert request["messages"][1] == {"role": "assistant", "content": beginning}
    assert (request["continue_final_message"], request["add_generation_prompt"]) == (True, False)


def test_a_trailing_message_needs_no_field() -> None:
    body = begun("One two three").continued_body(b'{"model":"m","messages":[]}', "trailing_message")
    assert json.loads(body) == {"model": "m", "messages": [{"role": "assistant", "content": "One two"}]}


def test_the_tokens_of_the_beginning_count_towards_the_clients_limit() -> None:
    channel = begun("One", " two", " three", " fo")
    assert request_of(channel, max_tokens=10)["max_tokens"] == 7
    with pytest.raises(InvalidRequest, match="max_tokens"):
        request_of(channel, max_tokens=3)


@pytest.mark.parametrize("texts", [(" two thr", "ee"), (" t", "w", "o three"), ("two", " three"), (" two three",)])
def test_what_the_client_has_comes_once_however_it_is_cut(texts: tuple[str, ...]) -> None:
    channel = TextChannel(begun("One two"))
    found = channel.feed(event("", role="assistant"))
    assert found == b""
    found = b"".join(channel.feed(event(text)) for text in texts)
    assert text_of(found) == " three"
    assert b"role" not in found
    assert b"chatcmpl-2" not in found
    assert b'"id":"chatcmpl-1"' in found
    assert b'"created":1' in found


@pytest.mark.parametrize(
    "other", [event("One two"), event(" twice"), event(ends=True), event(" t") + event("hree"), DONE]
)
def test_a_server_that_does_not_continue_the_answer_is_refused(other: bytes) -> None:
    with pytest.raises(OtherAnswer):
        TextChannel(begun("One two")).feed(other)


def test_a_text_without_spaces_goes_on_only_behind_its_own_characters() -> None:
    texts = ("始", *("日本", "語") * 30)
    assert text_of(TextChannel(begun(*texts)).feed(event("日本語日本語") + event("日本語と"))) == "と"
    with pytest.raises(OtherAnswer):  # a new message, which begins as the first one did
        TextChannel(begun(*texts)).feed(event("始"))


def test_the_usage_is_that_of_the_whole_answer() -> None:
    channel = TextChannel(begun("One", " two", " three"))  # two tokens of it are in the next server's prompt
    found = channel.feed(event(" three") + event(" four") + event(ends=True) + event(usage=(12, 2)) + DONE)
    usage = json.loads(found.split(b"\n\n")[2][6:])["usage"]
    assert usage == {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    assert found.endswith(DONE)


def test_a_stream_that_breaks_twice_goes_on_behind_all_of_its_text() -> None:
    second = TextChannel(begun("One two"))
    assert text_of(second.feed(event(" two") + event(" three"))) == " three"
    assert request_of(second)["messages"][1]["content"] == "One two"
    third = TextChannel(TextChannel(second))  # one that broke before it had computed the last word again
    assert text_of(third.feed(event(" three four"))) == " four"


@pytest.mark.parametrize(
    "other",
    [
        event(tool_calls=[{"index": 0}]),
        event(reasoning_content="Hm"),
        event(ends=True),
        b'data: {"error":{"message":"no memory"}}\n\n',
        b"data: nonsense\n\n",
    ],
)
def test_a_stream_of_anything_but_text_or_one_that_has_ended_is_not_continued(other: bytes) -> None:
    channel = begun("One")
    assert channel.feed(other) == other
    assert not channel.is_resumable


@pytest.mark.parametrize(
    "members",
    [
        {"choices": ["x"]},
        {"choices": [{"index": 0, "delta": "x"}]},
        {"choices": [{"index": 0, "delta": {"content": 5}}]},
        {"choices": [{"index": 0, "delta": {"content": [{"type": "text", "text": "x"}]}}]},
        {"choices": None, "usage": {}},
    ],
)
def test_an_event_of_another_form_passes_and_its_stream_is_not_continued(members: dict[str, Any]) -> None:
    event = b"data: %b\n\n" % json.dumps({"id": "chatcmpl-1", "created": 1, **members}).encode()
    channel = TextChannel()
    assert channel.feed(event) == event
    assert not channel.is_resumable


@pytest.mark.parametrize(("written", "created"), [("9.5", 9), ('"9"', 0), ("1e999", 0), ("[9]", 0), ("NaN", 0)])
def test_a_time_of_another_form_does_no_harm(written: str, created: int) -> None:
    first = event("One two").replace(b'"created": 9', b'"created": %b' % written.encode())
    channel = TextChannel()
    assert channel.feed(first) == first
    assert (channel.id, channel.created) == ("chatcmpl-2", created)


@pytest.mark.parametrize("count", ["null", '"12"', "{}"])
def test_a_usage_without_numbers_passes_as_it_is(count: str) -> None:
    written = b'"usage":{"prompt_tokens":%b,"completion_tokens":2.0}' % count.encode()
    last = b'data: {"choices":[],%b}\n\n' % written
    found = TextChannel(begun("One", " two", " three")).feed(event(" three") + last)
    assert b'"usage":{"prompt_tokens":%b,"completion_tokens":4}' % count.encode() in found


def test_events_pass_whole_and_unchanged_at_any_split() -> None:
    stream = b": ping\n\n" + event("", role="assistant") + event("One") + event(" two") + event(ends=True) + DONE
    for at in range(len(stream)):
        channel = TextChannel()
        assert channel.feed(stream[:at]) + channel.feed(stream[at:]) + channel.finish() == stream
    windows = TextChannel()
    assert windows.feed(stream.replace(b"\n", b"\r\n")) == stream


def test_an_event_without_an_end_is_computed_again() -> None:
    channel = begun("One")
    assert channel.feed(event(" two")[:-1]) == b""
    assert channel.finish() == b""
    assert [message["role"] for message in request_of(channel)["messages"]] == ["user"]


def test_an_event_beyond_all_bounds_passes_and_ends_the_reading() -> None:
    channel = begun("One")
    huge = b"data: " + b"x" * (1024 * 1024 + 1)
    assert channel.feed(huge) == huge
    assert channel.feed(b"\n\n") == b"\n\n"
    assert not channel.is_resumable
