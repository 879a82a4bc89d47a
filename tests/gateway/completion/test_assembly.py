"""A stream and the completion made of it are equal."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.completion.answers import is_whole
from gateway.completion.assembly import assembled, completion_of_stream
from gateway.completion.replay import as_event_stream

COMPLETION: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 7,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Zwölf Äpfel"},
            "logprobs": {"content": [{"token": "Z"}, {"token": "w"}]},
            "finish_reason": "stop",
        },
        {
            "index": 1,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
                    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        },
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
}


def event(choice: dict[str, Any], **more: Any) -> bytes:
    return (
        b"data: " + json.dumps({"id": "x", "created": 1, "model": "m", "choices": [choice], **more}).encode() + b"\n\n"
    )


def call(index: int, id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_replayed_and_assembled_again_it_is_the_same_completion() -> None:
    stream = as_event_stream(json.dumps(COMPLETION).encode(), include_usage=True)
    assembled = completion_of_stream(stream)
    assert assembled is not None
    assert json.loads(assembled) == COMPLETION


@pytest.mark.parametrize("reason", ["abort", "error", "content_filter", None])
def test_a_stream_that_did_not_end_by_itself_is_not_stored(reason: str | None) -> None:
    pieces = [
        event({"index": 0, "delta": {"role": "assistant", "content": "Hel"}, "finish_reason": None}),
        event({"index": 0, "delta": {}, "finish_reason": reason}),
    ]
    assert completion_of_stream(b"".join([*pieces, b"data: [DONE]\n\n"])) is None


def test_pieces_are_joined_in_order() -> None:
    pieces = [{"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}, {}]
    stream = b"".join(
        event({"index": 0, "delta": delta, "finish_reason": "stop" if not delta else None}) for delta in pieces
    )
    assembled = completion_of_stream(b": keep-alive\n\n" + stream + b"data: [DONE]\n\n")
    assert assembled is not None
    assert json.loads(assembled)["choices"][0]["message"]["content"] == "Hello"
    assert is_whole(assembled)


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        event({"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}),
        event({"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}) + b"data: [DONE]\n\n",
        b'data: {"error": {"message": "x"}}\n\ndata: [DONE]\n\n',
        b"data: {broken\n\ndata: [DONE]\n\n",
        b"data: 7\n\ndata: [DONE]\n\n",
        b"data: [DONE]\n\n",
    ],
)
def test_what_is_not_whole_is_not_stored(stream: bytes) -> None:
    assert completion_of_stream(stream) is None


def stream_of(*events: dict[str, Any], end: bytes = b"") -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events) + end


def deltas(*parts: dict[str, Any], finish: str = "stop", **more: Any) -> bytes:
    """A stream of one choice with these deltas."""
    events = [{"choices": [{"index": 0, "delta": part, "finish_reason": None}], **more} for part in parts]
    return stream_of(*events, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **more})


def whole(stream: bytes) -> dict[str, Any]:
    completion = completion_of_stream(stream)
    assert completion is not None
    found: dict[str, Any] = json.loads(completion)
    return found


def message(stream: bytes) -> dict[str, Any]:
    found: dict[str, Any] = whole(stream)["choices"][0]["message"]
    return found


def test_a_stream_becomes_what_the_plain_answer_would_have_been() -> None:
    common = {"id": "chatcmpl-9", "object": "chat.completion.chunk", "created": 7, "model": "m-1"}
    base = {**common, "service_tier": "default", "system_fingerprint": "fp", "usage": None, "obfuscation": "x7"}
    first = {"role": "assistant", "content": "", "refusal": None}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    events = [
        {**base, "choices": [{"index": 0, "delta": first, "logprobs": None, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {"content": "Hel"}, "logprobs": None, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {"content": "lo"}, "logprobs": None, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]},
        {**base, "choices": [], "usage": usage},
    ]
    assert whole(stream_of(*events, end=b"data: [DONE]\n\n")) == {
        **common,
        "object": "chat.completion",
        "service_tier": "default",
        "system_fingerprint": "fp",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage,
    }


TOOL_PIECES: list[dict[str, Any]] = [
    {"role": "assistant", "content": "", "tool_calls": [{"index": 0, "id": "c1", "type": "function"}]},
    {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]},
    {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "go", "arguments": "{}"}}]},
    {"tool_calls": [{"index": 0, "function": {"name": None, "arguments": '{"a"'}}]},
    {"tool_calls": [{"index": 0, "id": "", "function": {"name": "look", "arguments": ":1}"}}]},
]


def test_tool_calls_come_together_and_empty_content_beside_them_is_null() -> None:
    assert message(deltas(*TOOL_PIECES, finish="tool_calls")) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}},
            {"id": "c2", "type": "function", "function": {"name": "go", "arguments": "{}"}},
        ],
    }


@pytest.mark.parametrize(
    ("name", "parts", "expected"),
    [
        ("empty content alone", [{"content": ""}], {"content": ""}),
        ("refusal", [{"content": "", "refusal": ""}, {"refusal": "I "}, {"refusal": "can't"}], {"content": None}),
        ("empty refusal", [{"content": "a", "refusal": ""}], {"content": "a", "refusal": None}),
        (
            "reasoning",
            [{"reasoning": "h", "reasoning_content": "H"}, {"reasoning": "m", "reasoning_content": "M"}],
            {"reasoning": "hm", "reasoning_content": "HM"},
        ),
        (
            "annotations",
            [
                {"annotations": [{"type": "url_citation", "url_citation": {"url": "a", "start_index": 1}}]},
                {"annotations": [{"type": "url_citation", "url_citation": {"url": "b", "start_index": 4}}]},
            ],
            {
                "annotations": [
                    {"type": "url_citation", "url_citation": {"url": "a", "start_index": 1}},
                    {"type": "url_citation", "url_citation": {"url": "b", "start_index": 4}},
                ]
            },
        ),
        (
            "annotations whose index is a place",
            [{"annotations": [{"type": "file_citation", "index": 992}, {"type": "file_citation", "index": 992}]}],
            {"annotations": [{"type": "file_citation", "index": 992}, {"type": "file_citation", "index": 992}]},
        ),
        (
            "reasoning details",
            [
                {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "h", "format": "f", "id": None}]},
                {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "m", "format": "f"}]},
                {"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "s"}]},
                {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "xx"}]},
            ],
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "index": 0, "text": "hm", "format": "f", "id": None, "signature": "s"},
                    {"type": "reasoning.encrypted", "index": 1, "data": "xx"},
                ]
            },
        ),
        (
            "images",
            [{"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}] * 2,
            {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}] * 2},
        ),
        (
            "audio",
            [
                {"audio": {"id": "a1", "transcript": "Hel"}},
                {"audio": {"data": "AAAA"}},
                {"audio": {"data": "BBBB", "transcript": "lo"}},
                {"audio": {"expires_at": 9}},
            ],
            {"content": None, "audio": {"id": "a1", "transcript": "Hello", "data": "AAAABBBB", "expires_at": 9}},
        ),
        (
            "the older function call",
            [{"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}}],
            {"content": None, "function_call": {"name": "f", "arguments": "{}"}},
        ),
        (
            "a field of the future",
            [{"dream": {"text": "a", "n": 1}}, {"dream": {"text": "b", "n": 2}}],
            {"dream": {"text": "ab", "n": 2}},
        ),
        ("the same text twice", [{"content": "ha"}, {"content": "ha"}], {"content": "haha"}),
        (
            "a name in each piece",
            [{"tool_calls": [call(0, "c", "f", "{")]}, {"tool_calls": [call(0, "c", "f", "}")]}],
            {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        ),
        (
            "calls by turns",
            [
                {"tool_calls": [call(1, "b", "g", "")]},
                {"tool_calls": [call(0, "a", "f", ""), {"index": 1, "function": {"arguments": '{"x'}}]},
                {"tool_calls": [{"index": 1, "function": {"arguments": '":1}'}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
            ],
            {
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": '{"x":1}'}},
                ]
            },
        ),
        (
            "a status that changes",
            [{"step": {"status": "begun"}}, {"step": {"status": "done"}}],
            {"step": {"status": "done"}},
        ),
        (
            "content in parts",
            [{"content": [{"type": "text", "text": "a"}]}],
            {"content": [{"type": "text", "text": "a"}]},
        ),
        (
            "calls without an index",
            [{"tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]}],
            {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        ),
    ],
)
def test_every_field_of_a_delta_is_in_the_message(
    name: str, parts: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    found = message(deltas(*parts))
    assert {key: found[key] for key in expected} == expected, name


def test_fields_of_choices_and_of_later_events_are_stored() -> None:
    safe = {"hate": {"filtered": False, "severity": "safe"}}
    token = {"token": "a", "logprob": -0.1, "top_logprobs": []}
    found = whole(
        stream_of(
            {"id": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
            {
                "id": "c9",
                "created": 5,
                "model": "m-9",
                "citations": ["a"],
                "choices": [
                    {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [token], "refusal": None}},
                    {"index": 1, "delta": {"content": "b"}, "content_filter_results": safe},
                ],
            },
            {
                "citations": ["a", "b"],
                "choices": [{"index": 0, "delta": {}, "logprobs": {"content": [token]}, "finish_reason": None}],
            },
            {
                "system_fingerprint": "fp",
                "service_tier": "flex",
                "choices": [
                    {"index": 1, "delta": {}, "finish_reason": "stop", "stop_reason": 13},
                    {"index": 0, "delta": {}, "finish_reason": "length", "native_finish_reason": "max"},
                ],
            },
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "cost": 0.5}},
        )
    )
    assert (found["id"], found["model"], found["created"]) == ("c9", "m-9", 5)
    assert (found["citations"], found["prompt_filter_results"]) == (["a", "b"], [{"prompt_index": 0}])
    assert (found["system_fingerprint"], found["service_tier"], found["usage"]["cost"]) == ("fp", "flex", 0.5)
    first, second = found["choices"]
    assert first["logprobs"] == {"content": [token, token], "refusal": None}
    assert (first["finish_reason"], first["native_finish_reason"]) == ("length", "max")
    assert (second["finish_reason"], second["stop_reason"], second["content_filter_results"]) == ("stop", 13, safe)


FULL: dict[str, Any] = {
    **COMPLETION,
    "service_tier": "default",
    "system_fingerprint": None,
    "citations": ["a"],
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "a",
                "refusal": None,
                "annotations": [{"type": "url_citation", "url_citation": {"url": "a"}}],
                "reasoning_content": "hm",
                "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "hm"}],
                "images": [{"type": "image_url", "image_url": {"url": "data:"}}],
            },
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
            "native_finish_reason": "STOP",
            "content_filter_results": {"hate": {"filtered": False}},
        }
    ],
}


def test_a_plain_answer_loses_nothing_as_a_stream() -> None:
    assert whole(as_event_stream(json.dumps(FULL).encode(), include_usage=True)) == FULL
    without = whole(as_event_stream(json.dumps(FULL).encode(), include_usage=False))
    assert without == {**FULL, "usage": None}


@pytest.mark.parametrize(
    "parts",
    [
        *([{"tool_calls": [{"index": index, "id": "c"}]}] for index in (3_000_000, 10**12, 10**30, -1, True, "0", 0.5)),
        [{"tool_calls": [{"index": 0, "id": "c1"}]}, {"tool_calls": [{"index": 0, "id": "c2"}]}],
        [{"tool_calls": [{"id": "c1"}]}, {"tool_calls": [{"function": {"arguments": "{}"}}]}],
        [{"tool_calls": [{"id": "c1"}]}, {"tool_calls": [{"index": 0, "id": "c2"}]}],
        [{"tool_calls": [{"id": "c1"}]}, {"tool_calls": [{"id": "c1"}]}],
        [{"tool_calls": "x"}],
        [{"content": "a"}, {"content": [{"type": "text", "text": "b"}]}],
        [{"content": "a"}, {"content": {"b": 1}}],
        [{"audio": {"data": "a"}}, {"audio": "b"}],
        [{"audio": {"data": "AAA="}}, {"audio": {"data": "BBBB"}}],
        [{"channel": "final"}, {"channel": "final"}],
        [{"dream": {"kind": "deep"}}, {"dream": {"kind": "deep"}}],
        [{"tool_calls": [call(0, "", "f", "{}")]}, {"tool_calls": [call(0, "", "g", "{}")]}],
        [{"tool_calls": [call(0, "c", "get_", "")]}, {"tool_calls": [call(0, "c", "weather", "{}")]}],
        [
            {"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "a"}]},
            {"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "b"}]},
        ],
        [{"dream": math.inf}],
        [{"dream": [{"logprob": -math.inf}]}],
        [{"dream": math.nan}],
    ],
)
def test_what_cannot_be_put_together_without_ambiguity_is_not_stored(parts: list[dict[str, Any]]) -> None:
    found = assembled(deltas(*parts))
    assert found.end.is_complete, "the client got all of it"
    assert found.completion is None


def test_usage_is_the_answers_wherever_it_came() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    ended = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    streams = (
        stream_of({"choices": [], "usage": usage}, {"choices": [ended], "usage": None}),
        stream_of({"choices": [{**ended, "usage": usage}]}),
        stream_of({"choices": [ended], "x_groq": {"id": "r", "usage": usage}}),
    )
    assert [whole(stream)["usage"] for stream in streams] == [usage] * 3


def test_events_of_other_kinds_are_no_part_of_a_completion() -> None:
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    assert whole(ping + deltas({"content": "a"})) == whole(deltas({"content": "a"}))
    assert completion_of_stream(b'event: sources\ndata: {"sources": [1]}\n\n' + deltas({"content": "a"})) is None


@pytest.mark.parametrize("number", [3_000_000, 10**12, -1, True, "0"])
def test_a_choice_with_an_index_that_is_none_is_not_stored(number: object) -> None:
    choice = {"index": number, "delta": {"content": "a"}, "finish_reason": "stop"}
    assert completion_of_stream(stream_of({"choices": [choice]})) is None


def test_a_message_in_an_event_is_not_lost() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    assert completion_of_stream(stream_of({"choices": [choice]})) is None


@pytest.mark.parametrize("reason", ["content_filter", "recitation", "SAFETY"])
def test_a_complete_answer_that_is_nobody_elses_is_put_together_all_the_same(reason: str) -> None:
    found = assembled(deltas({"content": "a"}, finish=reason))
    assert found.completion is not None
    assert not found.end.is_lasting
    assert completion_of_stream(deltas({"content": "a"}, finish=reason)) is None


@pytest.mark.parametrize(
    "event",
    [
        b'{"choices":[' + b",".join([b"{}"] * 1_000_000) + b"]}",
        b'{"choices":[{"index":0,"delta":{"tool_calls":[' + b",".join([b'{"index":1}'] * 1_000_000) + b"]}}]}",
        b'{"choices":[{"index":0,"delta":{"x":[' + b",".join([b"0"] * 3_000_000) + b"]}}]}",
    ],
)
def test_an_event_with_millions_of_values_is_not_decoded(event: bytes) -> None:
    began_at = time.process_time()
    found = assembled(b"data: " + event + b"\n\n" + deltas({"content": "a"}))
    assert time.process_time() - began_at < 0.5
    assert found.completion is None
    assert found.end.is_complete


def test_the_time_is_linear_in_the_length() -> None:
    def took_s(num: int) -> float:
        call = {"tool_calls": [{"index": 0, "function": {"arguments": "12345678"}}]}
        token = {"token": "a", "logprob": -0.1}
        part = {"choices": [{"index": 0, "delta": {"content": "word ", **call}, "logprobs": {"content": [token]}}]}
        stream = stream_of(*[part] * num) + deltas()
        best = math.inf
        for _ in range(3):
            began_at = time.process_time()
            assert completion_of_stream(stream) is not None
            best = min(best, time.process_time() - began_at)
        return best

    assert took_s(16_000) < 4 * 2.5 * took_s(4_000)


@given(st.data())
def test_cuts_comments_and_line_ends_change_nothing(data: st.DataObject) -> None:
    stream = as_event_stream(json.dumps(FULL).encode(), include_usage=True)
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    other = b": hi\n\n" + stream.replace(b"data: ", data.draw(st.sampled_from([b"data:", b"data: "])))
    if data.draw(st.booleans()):
        other = other.replace(b"data: [DONE]\n\n", b"").replace(b"data:[DONE]\n\n", b"")
    assert whole(other.replace(b"\n", end)) == FULL


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"choices": []}', b'{"choices": [{"finish_reason": null}]}'])
def test_a_plain_answer_that_is_no_completion_is_not_whole(body: bytes) -> None:
    assert not is_whole(body)


@pytest.mark.parametrize(
    "reason",
    ["stop", "length", "tool_calls", "function_call", "eos_token", "end_turn", "stop_sequence", "STOP", "MAX_TOKENS"],
)
def test_an_answer_that_ended_by_itself_is_stored_whatever_its_server_calls_that(reason: str) -> None:
    stream = event({"index": 0, "delta": {"content": "a"}}) + event({"index": 0, "delta": {}, "finish_reason": reason})
    stored = completion_of_stream(stream)
    assert stored is not None
    assert json.loads(stored)["choices"][0]["finish_reason"] == reason
    assert is_whole(stored)


@pytest.mark.parametrize("reason", ["content_filter", "SAFETY", "refusal", "recitation", "what is this", 7, ["stop"]])
def test_an_answer_that_was_filtered_or_ended_in_an_unknown_way_is_nobody_elses(reason: object) -> None:
    stream = event({"index": 0, "delta": {"content": "a"}}) + event({"index": 0, "delta": {}, "finish_reason": reason})
    assert assembled(stream).end.is_complete
    assert completion_of_stream(stream) is None


@pytest.mark.parametrize(
    "heartbeat",
    [
        b"data:\n\n",
        b"data: \n\n",
        b"id: 7\nretry: 100\n\n",
        b'data: {"type":"ping"}\n\n',
        b'event: ping\ndata: {"type":"ping"}\n\n',
        b"event: heartbeat\ndata: alive\n\n",
        b"data: {}\n\n",
    ],
)
def test_heartbeats_leave_no_trace_in_a_completion(heartbeat: bytes) -> None:
    parts = [event({"index": 0, "delta": {"content": "a"}}), event({"index": 0, "delta": {}, "finish_reason": "stop"})]
    without = completion_of_stream(b"".join(parts))
    assert without is not None
    assert completion_of_stream(heartbeat + heartbeat.join(parts) + heartbeat) == without


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_plain_answer_that_many_readers_would_refuse_is_not_stored(number: str) -> None:
    body = json.dumps(COMPLETION).replace('"logprobs": null', f'"logprobs": {number}').encode()
    assert number.encode() in body
    assert not is_whole(body)
