"""Channel of a stream's tokens: the client gets whole, reported events and nothing else, however the bytes come."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.forwarding.resume.token_channel import PassedChoice, TokenChannel


def event(text: str) -> bytes:
    chunk = {"id": "chatcmpl-1", "created": 7, "choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def report(*token_ids: int) -> bytes:
    return b": penstock-tokens 0 " + " ".join(map(str, token_ids)).encode() + b"\n\n"


def token_ids_of(channel: TokenChannel) -> list[int]:
    assert channel.choices.keys() <= {0}
    return channel.choices[0].token_ids if channel.choices else []


DONE = b"data: [DONE]\n\n"
EVENTS = (event("a"), event(": penstock-tokens 9\n\n"), event("b\n\n"), event("end"))
STREAM = b"".join((EVENTS[0], report(1), EVENTS[1], EVENTS[2], report(2, 3), EVENTS[3], DONE))


@given(st.sets(st.integers(1, len(STREAM) - 1), max_size=12))
def test_a_whole_stream_comes_through_without_its_reports(cuts: set[int]) -> None:
    channel = TokenChannel("exact;a")
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    assert b"".join(map(channel.feed, pieces)) + channel.finish() == b"".join(EVENTS) + DONE
    assert channel.is_open


@given(st.integers(0, len(STREAM) - 1), st.integers(1, 40))
def test_wherever_a_stream_breaks_the_tokens_are_those_of_what_was_passed_on(length: int, size: int) -> None:
    channel = TokenChannel("exact;a")
    passed = b"".join(channel.feed(STREAM[at : min(at + size, length)]) for at in range(0, length, size))
    known = {b"": [], EVENTS[0]: [1], b"".join(EVENTS[:3]): [1, 2, 3]}
    assert token_ids_of(channel) == known[passed]


def test_tokens_of_earlier_engines_come_first() -> None:
    begun = TokenChannel("exact;a")
    begun.choices = {0: PassedChoice([4, 5]), 2: PassedChoice([9], "stop")}
    channel = TokenChannel("exact;a", begun)
    assert channel.feed(EVENTS[0] + report(1)) == EVENTS[0]
    assert channel.choices == {0: PassedChoice([4, 5, 1]), 2: PassedChoice([9], "stop")}
    assert begun.choices[0] == PassedChoice([4, 5])
    assert channel.num_tokens == 4
    assert (channel.id, channel.created) == ("chatcmpl-1", 7)


def test_each_choice_has_its_tokens_and_its_end() -> None:
    channel = TokenChannel("exact;a")
    reports = b": penstock-tokens 1 7,0 stop 5 6,2 length\n\n"
    assert channel.feed(EVENTS[0] + reports + b": penstock-tokens 1 8\n\n") == EVENTS[0]
    assert channel.choices == {1: PassedChoice([7, 8]), 0: PassedChoice([5, 6], "stop"), 2: PassedChoice([], "length")}


def test_events_of_several_choices_wait_for_the_whole_report() -> None:
    channel = TokenChannel("exact;a")
    assert channel.feed(EVENTS[0] + EVENTS[2] + b": penstock-tokens 0 7,1 stop") == b""
    assert not channel.has_begun
    assert channel.feed(b" 5\n\n") == EVENTS[0] + EVENTS[2]
    assert channel.choices == {0: PassedChoice([7]), 1: PassedChoice([5], "stop")}


def test_an_engine_that_drains_leaves_the_rest_to_another() -> None:
    channel = TokenChannel("exact;a")
    channel.feed(EVENTS[0] + report(1) + EVENTS[2] + b": penstock-handed-over\n\n")
    assert channel.finish() == b""
    assert (channel.is_handed_over, token_ids_of(channel)) == (True, [1])


def test_an_error_event_of_an_engine_is_not_the_end_of_the_clients_stream() -> None:
    channel = TokenChannel("exact;a")
    assert channel.feed(EVENTS[0] + report(1) + b'data: {"error":{"message":"no"}}\n\n') == EVENTS[0]
    assert (channel.finish(), channel.is_handed_over, channel.is_open) == (b"", False, True)


@pytest.mark.parametrize("first", [b'data: {"choices":[]}\n\n', b"data: text\n\n"])
def test_a_stream_without_an_identity_cannot_be_continued(first: bytes) -> None:
    channel = TokenChannel("exact;a")
    assert channel.feed(first + report(1)) == first
    assert not channel.is_open


def test_events_without_a_report_are_held_only_so_long() -> None:
    channel = TokenChannel("exact;a")
    large = event("x" * 1_100_000)
    assert channel.feed(large) == large
    assert not channel.is_open
    assert channel.feed(EVENTS[0]) == EVENTS[0]
