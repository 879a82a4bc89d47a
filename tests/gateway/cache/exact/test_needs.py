"""What a request wants of an answer besides its text: an entry without it is not served."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.cache.exact.needs import NO_NEEDS, Needs, needs_of
from gateway.chat.request import ChatRequestParser

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def needs(**fields: Any) -> Needs:
    document = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], **fields}
    return needs_of(ChatRequestParser().parse(msgspec.json.encode(document)))


def answer(**fields: Any) -> bytes:
    return msgspec.json.encode({"id": "c", "choices": [], **fields})


WITHOUT, WITH = answer(usage=None), answer(usage=USAGE)


def test_a_stream_that_requests_for_usage_needs_it_and_one_that_does_not_takes_any() -> None:
    requesting = needs(stream=True, stream_options={"include_usage": True})
    silent = needs(stream=True)
    assert (requesting.are_met_by(WITH), requesting.are_met_by(WITHOUT)) == (True, False)
    assert (silent.are_met_by(WITH), silent.are_met_by(WITHOUT)) == (True, True)


def test_a_plain_answer_always_has_its_usage() -> None:
    assert needs().are_met_by(WITH)
    assert not needs().are_met_by(WITHOUT)


@pytest.mark.parametrize("tier", [None, "auto", "default"])
def test_the_usual_tiers_want_nothing(tier: str | None) -> None:
    assert needs(service_tier=tier).service_tier is None


def test_a_tier_must_be_the_answers_own_unless_its_server_names_none() -> None:
    requested = needs(stream=True, service_tier="priority")
    assert requested.are_met_by(answer(service_tier="priority"))
    assert requested.are_met_by(answer(service_tier=None))
    assert not requested.are_met_by(answer(service_tier="flex"))


def test_an_answer_that_cannot_be_read_meets_no_need_and_no_needs_read_nothing() -> None:
    assert not needs(stream=True, service_tier="priority").are_met_by(b"{")
    assert NO_NEEDS.are_met_by(b"{")


def test_an_answer_under_way_is_followed_only_where_it_will_have_the_usage() -> None:
    plain, requesting, silent = needs(), needs(stream=True, stream_options={"include_usage": True}), needs(stream=True)
    bare_stream = b'{"stream":true}'
    with_usage = b'{"stream":true,"stream_options":{"include_usage":true}}'
    assert [need.may_follow(b"") for need in (plain, requesting, silent)] == [True, True, True]
    assert [need.may_follow(bare_stream) for need in (plain, requesting, silent)] == [False, False, True]
    assert [need.may_follow(with_usage) for need in (plain, requesting, silent)] == [True, True, True]
