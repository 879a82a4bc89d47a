"""An agent's loop under one user message: its old results go in coarse steps, and its newest ones stay whole."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from gateway.chat.request import ChatRequestParser
from gateway.trimming.agent_loop import MIN_CYCLES, divided
from gateway.trimming.conversation import Conversation
from gateway.trimming.trimmer import PolicyTrimmer
from routing_policies.policy.document import Trim
from routing_policies.policy.values import TrimStrategy

Messages = list[dict[str, Any]]
DROP: tuple[TrimStrategy, ...] = ("dedupe", "cap_tool_outputs", "drop_old_turns")
SELECT: tuple[TrimStrategy, ...] = (*DROP, "extract_passages")
PASSAGES: tuple[TrimStrategy, ...] = ("extract_passages",)
TASK = "Find out which valve feeds the north basin. Read the files with the tool."
FACT = "The north basin is fed by valve V-5521."
BUDGET_TOKENS = 5000


def result(rng: Random, num_lines: int, fact: str = "") -> str:
    lines = [
        f"The {rng.choice(('pump', 'gate', 'meter'))} number {rng.randint(1, 999)} was checked in week"
        f" {rng.randint(1, 52)} by the crew of the {rng.choice(('east', 'south', 'west'))} side."
        for _ in range(num_lines)
    ]
    return "\n".join([*lines, fact] if fact else lines)


def call(number: int, *contents: str) -> Messages:
    calls = [
        {"id": f"c{number}-{n}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
        for n in range(len(contents))
    ]
    outputs = [
        {"role": "tool", "tool_call_id": f"c{number}-{n}", "content": content} for n, content in enumerate(contents)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *outputs]


def loop(num_calls: int, num_lines: int = 18, *, fact_at: int = -1, before: Messages | None = None) -> list[Messages]:
    """Return the conversation at each call of an agent."""
    rng, found = Random(5), []
    messages: Messages = [{"role": "system", "content": "You are an agent. " * 8}, *(before or [])]
    messages.append({"role": "user", "content": TASK})
    for number in range(num_calls):
        fact = FACT if number == fact_at else ""
        messages = [*messages, *call(number, result(rng, num_lines, fact), result(rng, 2))]
        found.append(messages)
    return found


def sent(messages: Messages, strategies: tuple[TrimStrategy, ...], bytes_per_token: float = 4.0) -> Messages:
    body = json.dumps({"model": "auto", "messages": messages}).encode()
    rule = Trim(budget_tokens=BUDGET_TOKENS, strategies=strategies)
    trimmed = PolicyTrimmer().trim(ChatRequestParser().parse(body), rule, bytes_per_token)
    found: Messages = trimmed.request.document["messages"]
    return found


def shared(before: Messages, after: Messages) -> float:
    """Return the share of the shorter prompt that both begin with."""
    texts = [json.dumps(messages)[:-1] for messages in (before, after)]
    least = min(map(len, texts))
    return next((place for place in range(least) if texts[0][place] != texts[1][place]), least) / least


EARLIER = [
    part
    for number in range(8)
    for part in (
        {"role": "user", "content": f"Look at part {number}."},
        *call(100 + number, result(Random(number), 18)),
        {"role": "assistant", "content": "Part done."},
    )
]


@pytest.mark.parametrize("strategies", [("drop_old_turns",), DROP, SELECT], ids="+".join)
@pytest.mark.parametrize("before", [[], EARLIER], ids=["one turn", "after other turns"])
def test_the_budget_holds_and_successive_requests_share_their_beginning(
    strategies: tuple[TrimStrategy, ...], before: Messages
) -> None:
    rng, last, shares = Random(1), Messages(), []
    for messages in loop(50, before=before):
        after = sent(messages, strategies, rng.uniform(3.95, 4.0))
        assert Conversation(after).num_prompt_bytes <= BUDGET_TOKENS * 4
        calls = [each["id"] for message in after for each in message.get("tool_calls") or ()]
        assert calls == [message["tool_call_id"] for message in after if message["role"] == "tool"], "pairs stay whole"
        assert after[0] == messages[0]
        assert {"role": "user", "content": TASK} in after
        assert after[-3:] == messages[-3:], "the newest results are never cut"
        if after != messages and last:
            shares.append(shared(last, after))
        last = after
    assert sum(shares) / len(shares) > 0.7
    assert sum(share == 1 for share in shares) > 0.6 * len(shares)


@pytest.mark.parametrize("strategies", [SELECT, PASSAGES], ids="+".join)
@pytest.mark.parametrize("num_lines", [3, 18, 60])
def test_what_an_early_call_found_stays_where_passages_are_selected(
    strategies: tuple[TrimStrategy, ...], num_lines: int
) -> None:
    messages = loop(60, num_lines, fact_at=11)
    assert all(FACT in json.dumps(sent(each, strategies)) for each in messages[11::6])


def test_long_old_results_are_capped_and_new_ones_are_not() -> None:
    messages = loop(40, 60)[-1]
    after = sent(messages, ("cap_tool_outputs",))
    outputs = [message["content"] for message in after if message["role"] == "tool"]
    assert len(after) == len(messages)
    assert all(len(output) < 2200 for output in outputs[:60])
    assert after[-3:] == messages[-3:]


def test_without_a_budget_results_are_capped_in_steps_of_calls() -> None:
    num_capped = []
    for messages in loop(40, 60):
        body = json.dumps({"model": "auto", "messages": messages}).encode()
        rule = Trim(strategies=("cap_tool_outputs",))
        after = PolicyTrimmer().trim(ChatRequestParser().parse(body), rule).request.document["messages"]
        num_capped.append(sum(old != new for old, new in zip(messages, after, strict=True)))
    assert sorted({*num_capped}) == [0, 8, 16, 24, 32]
    assert num_capped == sorted(num_capped)


def test_a_repeated_result_of_an_old_call_is_repeated_once() -> None:
    text = result(Random(3), 40).replace("\n", " ")
    messages = [{"role": "user", "content": TASK}, *(part for n in range(40) for part in call(n, text))]
    after = sent(messages, ("dedupe",))
    contents = [message["content"] for message in after if message["role"] == "tool"]
    assert contents[0] == text
    assert contents.count("[said before]") > 30
    assert contents[-1] == text, "the newest results stay"


def test_the_words_of_the_user_stay_in_a_loop() -> None:
    task = f"{result(Random(8), 30)}\n\n{TASK}"
    messages = [{"role": "user", "content": task}, *(part for n in range(60) for part in call(n, task))]
    assert sent(messages, DROP)[0] == messages[0]


@pytest.mark.parametrize("num_calls", range(MIN_CYCLES))
def test_a_short_turn_is_new_as_a_whole(num_calls: int) -> None:
    conversation = Conversation(loop(num_calls + 1)[-1][: 2 + 3 * num_calls])
    assert divided(conversation, 1000, has_passages=False) == (conversation, [], 1000)


def test_one_result_larger_than_the_room_is_cut_by_the_question() -> None:
    messages = loop(6, 18, fact_at=2)[-1]
    messages = [*messages, *call(9, result(Random(6), 900))]
    after = sent(messages, SELECT)
    assert Conversation(after).num_prompt_bytes <= BUDGET_TOKENS * 4
    assert FACT in json.dumps(after)


def test_a_loop_without_a_user_message_is_cut_too() -> None:
    messages = [message for message in loop(50)[-1] if message["role"] != "user"]
    after = sent(messages, DROP)
    assert after[0] == messages[0]
    assert after[-3:] == messages[-3:]
    assert Conversation(after).num_prompt_bytes <= BUDGET_TOKENS * 4
