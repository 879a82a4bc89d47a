"""Who probably has the beginning of a conversation."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.affinity import MAX_CUTS, MAX_HOLDERS, AffinityIndex, NamedSession, SessionPlaces, prefix_of
from routing_policies.policy.document import DEFAULT_SESSION_PLACES

PARSER = ChatRequestParser()


def chat(*contents: Any, **fields: Any) -> ChatRequest:
    """System, user, assistant, user, …"""
    roles = ["system", *["user", "assistant"] * len(contents)]
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return PARSER.parse(json.dumps({"model": "auto", "messages": messages, **fields}).encode())


def held(index: AffinityIndex, request: ChatRequest, tenant: str = "t") -> dict[str, int]:
    return dict(index.held_chars(prefix_of(request, tenant)))


def noted(index: AffinityIndex, request: ChatRequest, deployment: str, tenant: str = "t") -> None:
    index.note(prefix_of(request, tenant), session_of(request, tenant), deployment)


def test_the_next_turn_finds_who_answered_the_one_before() -> None:
    index = AffinityIndex()
    noted(index, chat("be brief", "hello"), "a")
    assert held(index, chat("be brief", "hello", "hi!", "how are you?")) == {"a": len("be brief") + len("hello")}


def test_another_conversation_shares_only_what_is_the_same() -> None:
    index = AffinityIndex()
    noted(index, chat("be brief", "hello"), "a")
    assert held(index, chat("be brief", "goodbye")) == {"a": len("be brief")}
    assert held(index, chat("be long", "hello")) == {}


def test_tenants_share_nothing() -> None:
    index = AffinityIndex()
    noted(index, chat("be brief", "hello"), "a", tenant="one")
    assert held(index, chat("be brief", "hello"), tenant="two") == {}


def test_roles_and_tools_are_part_of_the_beginning() -> None:
    index = AffinityIndex()
    noted(index, chat("be brief", "hello"), "a")
    tool = {"type": "function", "function": {"name": "f"}}
    assert held(index, chat("be brief", "hello", tools=[tool])) == {}


def test_a_long_message_is_shared_as_far_as_it_is_the_same() -> None:
    index = AffinityIndex()
    document = "lorem ipsum " * 2000
    noted(index, chat("be brief", document + "first question"), "a")
    found = held(index, chat("be brief", document + "another question"))["a"]
    assert 16_000 < found <= len(document)


def test_several_holders_are_distinguished_by_how_much_they_hold() -> None:
    index = AffinityIndex()
    noted(index, chat("be brief", "hello", "hi", "more"), "a")
    noted(index, chat("be brief", "hello"), "b")
    found = held(index, chat("be brief", "hello", "hi", "more", "yes", "still"))
    assert found["a"] > found["b"] > 0


def test_the_latest_holders_of_a_beginning_are_remembered() -> None:
    index = AffinityIndex()
    for number in range(MAX_HOLDERS + 3):
        noted(index, chat("be brief"), f"d{number}")
    assert list(held(index, chat("be brief"))) == [f"d{number}" for number in (6, 5, 4, 3)]


def test_the_index_is_bounded_and_forgets_the_oldest() -> None:
    index = AffinityIndex(max_entries=10)
    for number in range(100):
        noted(index, chat(f"system {number}", prompt_cache_key=f"k{number}"), "a")
    assert len(index) == 10
    assert held(index, chat("system 99")) == {"a": len("system 99")}
    assert held(index, chat("system 0")) == {}


def test_a_full_index_forgets_as_fast_as_it_remembers() -> None:
    index = AffinityIndex(max_entries=100_000)
    for cut in range(100_000):
        index.note(((cut, 1),), cut, "a")
    before = time.process_time()
    for cut in range(100_000, 150_000):
        index.note(((cut, 1),), cut, "a")
    assert time.process_time() - before < 1.0, "20 µs each: looking for the oldest took 200"


def session_of(request: ChatRequest, tenant: str) -> int | None:
    named = SessionPlaces(DEFAULT_SESSION_PLACES).find(request, ChatHead([]))
    return None if named is None else named.key(tenant)


@pytest.mark.parametrize(
    ("fields", "headers", "found"),
    [
        ({}, {}, None),
        ({"user": "u"}, {}, ("field:user", "u")),
        ({"prompt_cache_key": ""}, {"x-session-id": ""}, None),
        ({"user": "u"}, {"x-session-id": "s"}, ("header:x-session-id", "s")),
        ({"user": "u"}, {"session_id": "codex"}, ("header:session_id", "codex")),
        ({"user": "u"}, {"x-claude-code-session-id": "c"}, ("header:x-claude-code-session-id", "c")),
        ({"prompt_cache_key": "k", "user": "u"}, {"x-session-id": "s"}, ("field:prompt_cache_key", "k")),
    ],
)
def test_the_first_place_that_names_a_session_counts(
    fields: dict[str, str], headers: dict[str, str], found: tuple[str, str] | None
) -> None:
    head = ChatHead([(name.encode(), value.encode()) for name, value in headers.items()])
    assert SessionPlaces(DEFAULT_SESSION_PLACES).find(chat("a", **fields), head) == found


def test_the_policy_orders_the_places() -> None:
    request, head = chat("a", user="u", prompt_cache_key="k"), ChatHead([(b"x-thread", b"t")])
    for places, found in (
        (("header:x-thread", "field:user"), ("header:x-thread", "t")),
        (("field:user", "header:x-thread"), ("field:user", "u")),
        ((), None),
    ):
        assert SessionPlaces(places).find(request, head) == found


def test_equal_names_in_two_places_are_two_sessions() -> None:
    assert NamedSession("field:user", "a").key("t") != NamedSession("header:x-session-id", "a").key("t")


def test_a_session_is_what_the_client_calls_one() -> None:
    index = AffinityIndex()
    noted(index, chat("s", "u", prompt_cache_key="k"), "a")
    assert index.last_of(session_of(chat("other", prompt_cache_key="k"), "t")) == "a"
    assert index.last_of(session_of(chat("other", prompt_cache_key="k"), "u")) is None
    assert session_of(chat("s"), "t") is None


def test_images_count_as_what_they_are_and_not_by_their_size() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    parts = [{"type": "text", "text": "what is this?"}, image]
    cuts = prefix_of(chat("s", parts), "t")
    assert cuts[-1][1] == len("s") + len("what is this?")


def test_megabytes_do_not_hold_up_the_loop() -> None:
    request = chat("s", "x" * 8_000_000)
    before = time.process_time()
    cuts = prefix_of(request, "t")
    assert time.process_time() - before < 0.005
    assert cuts[-1][1] == 8_000_001


@given(st.lists(st.text(max_size=30), min_size=1, max_size=60))
def test_a_conversation_holds_all_of_itself_however_long(contents: list[str]) -> None:
    request = chat(*contents)
    prefix = prefix_of(request, "t")
    index = AffinityIndex()
    index.note(prefix, None, "a")
    assert len(prefix) <= MAX_CUTS
    assert index.held_chars(prefix)["a"] == sum(len(content) for content in contents)


def test_one_tenants_flood_evicts_no_conversation_of_another() -> None:
    index = AffinityIndex(max_entries=100)
    calm = chat("calm", "question", prompt_cache_key="k")
    index.note(prefix_of(calm, "calm"), session_of(calm, "calm"), "a", "calm")
    for number in range(1000):
        other = chat(f"flood {number}", "question", prompt_cache_key=f"k{number}")
        index.note(prefix_of(other, "flood"), session_of(other, "flood"), "b", "flood")
    assert len(index) == 100
    assert index.held_chars(prefix_of(calm, "calm"), "calm") == {"a": len("calmquestion")}
    assert index.last_of(session_of(calm, "calm"), "calm") == "a"
    assert index.last_of(session_of(calm, "flood"), "flood") is None
