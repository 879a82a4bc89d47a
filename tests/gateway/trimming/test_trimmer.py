"""Shorter prompts that still state what matters, cut in the same place for many turns."""

from __future__ import annotations

import ast
import json
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.trimming.conversation import Conversation
from gateway.trimming.passages import extract
from gateway.trimming.trimmer import PolicyTrimmer, summed_cuts
from routing_policies.policy.document import Trim
from routing_policies.policy.values import TrimStrategy

ALL: tuple[TrimStrategy, ...] = ("minify", "dedupe", "cap_tool_outputs", "drop_old_turns", "extract_passages")
SYSTEM = {"role": "system", "content": ("You are the assistant of a shop. " * 10).strip()}


def request(messages: list[dict[str, Any]]) -> ChatRequest:
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode())


def trimmed(messages: list[dict[str, Any]], budget: int | None, *strategies: TrimStrategy) -> list[dict[str, Any]]:
    rule = Trim(budget_tokens=budget, strategies=strategies or ALL)
    after = PolicyTrimmer().trim(request(messages), rule).request
    assert ChatRequestParser().parse(after.raw).document == after.document, "what goes on is what a parser reads"
    found: list[dict[str, Any]] = after.document["messages"]
    return found


def turn(number: int, words: int = 40) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": f"Question {number}: " + ("what about it " * words).strip()},
        {"role": "assistant", "content": f"Answer {number}: " + ("this and that " * words).strip()},
    ]


def test_a_prompt_within_its_budget_goes_on_untouched() -> None:
    before = request([SYSTEM, *turn(1), {"role": "user", "content": "And now?"}])
    after = PolicyTrimmer().trim(before, Trim(budget_tokens=100_000, strategies=ALL))
    assert after.request is before
    assert after.cut_bytes == ()


def test_a_block_seen_before_is_repeated_once() -> None:
    terms = "The terms are these. " * 20
    messages = [
        {"role": "user", "content": f"Read:\n\n{terms}"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": f"Again:\n\n{terms}"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": f"And once more:\n\n{terms}"},
    ]
    after = trimmed(messages, None, "dedupe")
    assert after[0] == messages[0], "the first copy stays"
    assert "terms" not in after[2]["content"]
    assert after[4] == messages[4], "the last turn stays whole"


def test_old_turns_go_first_and_system_and_last_turn_stay() -> None:
    messages = [SYSTEM, *(part for number in range(12) for part in turn(number)), {"role": "user", "content": "Last?"}]
    after = trimmed(messages, 1500, "drop_old_turns")
    assert after[0] == messages[0]
    assert after[-1] == messages[-1]
    assert after[1]["role"] == "user"
    assert Conversation(after).num_bytes <= 1500 * 4
    assert after[1:] == messages[-len(after[1:]) :], "what stays is the end of the conversation"


def test_the_beginning_of_a_growing_chat_stays_the_same_for_many_turns() -> None:
    messages: list[dict[str, Any]] = [SYSTEM]
    before: list[dict[str, Any]] = []
    shared = total = 0
    for number in range(20):
        messages += [turn(number, words=21)[0]]
        after = trimmed(messages, 1500, "minify", "dedupe", "cap_tool_outputs", "drop_old_turns")
        common = 0
        while common < min(len(before), len(after)) and before[common] == after[common]:
            common += 1
        shared += Conversation(after[:common]).num_bytes
        total += Conversation(after).num_bytes
        messages += [turn(number, words=21)[1]]
        before = [*after, messages[-1]]  # what an engine generated, it has keys and values of
    assert sum(map(len, (message["content"] for message in messages))) > 1.9 * 1500 * 4, "it had to be cut"
    assert shared / total > 0.8


def test_a_tool_call_never_loses_its_answer() -> None:
    messages: list[dict[str, Any]] = [SYSTEM]
    for number in range(10):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages += [
            {"role": "user", "content": "look " * 50},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "row " * 1000},
            {"role": "assistant", "content": "done"},
        ]
    messages.append({"role": "user", "content": "Summarise."})
    after = trimmed(messages, 1200)
    calls = [call["id"] for message in after for call in message.get("tool_calls") or ()]
    answers = [message["tool_call_id"] for message in after if message["role"] == "tool"]
    assert calls == answers
    assert all(len(message["content"]) < 2200 for message in after if message["role"] == "tool")


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("budget", [200, 600])
def test_instructions_given_in_the_middle_outlive_the_turns_around_them(role: str, budget: int) -> None:
    order = {"role": role, "content": "From here on answer in French. " * 8}
    messages = [SYSTEM, *turn(1), *turn(2), order, *turn(3), order, *turn(4), {"role": "user", "content": "Last?"}]
    after = trimmed(messages, budget)
    assert [message for message in after if message["role"] in ("system", "developer")] == [*(SYSTEM, order, order)]
    assert len(after) < len(messages)


def test_what_was_stated_before_is_repeated_when_the_turn_that_stated_it_goes() -> None:
    terms = "The terms of the contract are these. " * 20
    messages = [SYSTEM, *turn(0), {"role": "user", "content": f"Read this.\n\n{terms}"}, turn(1)[1]]
    for number in range(2, 12):
        messages += [{"role": "user", "content": f"{terms}\n\nAnd {number}?"}, turn(number, words=10)[1]]
    messages.append({"role": "user", "content": "Last?"})
    after = trimmed(messages, 600, "dedupe", "drop_old_turns")
    texts = [message["content"] for message in after]
    assert len(after) < len(messages)
    assert any("[said before]" in text for text in texts)
    first = next(number for number, text in enumerate(texts) if "[said before]" in text)
    assert any(terms.strip() in text for text in texts[:first]), "what is referred to is still there"


def test_what_an_output_lost_in_its_middle_is_not_referred_to() -> None:
    rows = "\n\n".join(f"row {number} " + "of many columns " * 20 for number in range(40))
    messages: list[dict[str, Any]] = []
    for name in ("a", "b"):
        call = {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages += [
            {"role": "user", "content": f"look at {name}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": name, "content": rows},
        ]
    quoted = rows.split("\n\n")[20]
    messages += [{"role": "user", "content": f"{quoted}\n\nWhat is in it?"}, {"role": "assistant", "content": "Much."}]
    messages.append({"role": "user", "content": "Last?"})
    after = trimmed(messages, None, "dedupe", "cap_tool_outputs")
    assert after[-3] == messages[-3]


FILLER = [f"The ferry number {number} was late again after lunch in spring." for number in range(200)]


def test_of_a_passage_the_sentences_that_answer_stay_in_order() -> None:
    sentences = [
        *FILLER[:90],
        "Viktor hid the key in the attic.",
        *FILLER[90:150],
        "Rosa lives in Saltmarsh.",
        *FILLER[150:],
    ]
    text = " ".join(sentences) + "\n\nQuestion: Where did Viktor hide the key?"
    short = extract(text, "Question: Where did Viktor hide the key?", 1000)
    assert "Viktor hid the key in the attic." in short
    assert short.endswith("Question: Where did Viktor hide the key?")
    assert len(short) <= 1100


def test_a_second_sentence_that_the_first_one_names_stays_too() -> None:
    sentences = [
        *FILLER[:50],
        "The neighbour of Anton is Selma.",
        *FILLER[50:120],
        "Selma works as a smith.",
        *FILLER[120:],
    ]
    text = "What is the job of the neighbour of Anton?\n\n" + " ".join(sentences)
    short = extract(text, "What is the job of the neighbour of Anton?", 1000)
    assert "The neighbour of Anton is Selma." in short
    assert "Selma works as a smith." in short
    assert short.startswith("What is the job of the neighbour of Anton?")


def test_fenced_code_is_cut_between_statements_and_keeps_its_fence() -> None:
    text = "```python\n" + "".join(f"x{number} = {number}\n" for number in range(500)) + "```\n\nWhat is x250?"
    short = extract(text, "What is x250?", 300)
    code = short.split("```python\n")[1].split("```")[0]
    ast.parse(code)
    assert "x250 = 250" in code
    assert len(code) < 300


def test_trimming_16_kilobytes_takes_little_time() -> None:
    text = " ".join(FILLER) + " "
    messages = [SYSTEM, {"role": "user", "content": (text * 2)[:16_000] + "\n\nQuestion: Which ferry was late?"}]
    prepared = request(messages)
    rule = Trim(budget_tokens=800, strategies=ALL)
    trimmer = PolicyTrimmer()
    trimmer.trim(prepared, rule)
    began = time.process_time()
    for _ in range(5):
        trimmer.trim(prepared, rule)
    assert (time.process_time() - began) / 5 < 0.05, "an order of magnitude above what it takes here"


ROLES = st.sampled_from(["user", "assistant"])
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=400)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ROLES, TEXTS), min_size=1, max_size=12), st.integers(1, 400))
def test_any_conversation_stays_a_valid_one(parts: list[tuple[str, str]], budget: int) -> None:
    messages = [{"role": role, "content": text} for role, text in parts]
    after = trimmed(messages, budget)
    assert after
    assert after[-1]["role"] == messages[-1]["role"]


@pytest.mark.parametrize("strategy", ALL)
def test_trimming_twice_changes_nothing_more(strategy: TrimStrategy) -> None:
    messages = [SYSTEM, *(part for number in range(8) for part in turn(number)), {"role": "user", "content": "Last?"}]
    once = trimmed(messages, 800, strategy)
    assert trimmed(once, 800, strategy) == once


def test_prefixes_of_a_growing_chat_stay_what_they_were_even_when_tokens_are_learned() -> None:
    rng = random.Random(1)
    messages = [{"role": "system", "content": "s" * 800}]
    before: list[Any] = []
    num_stated = num_stored = 0
    for number in range(60):
        messages.append({"role": "user", "content": f"{number:03d}" + "u" * rng.randint(100, 300)})
        requested = request(messages)
        sent = PolicyTrimmer().trim(
            requested, Trim(budget_tokens=1000, strategies=("drop_old_turns",)), rng.uniform(3.85, 4.15)
        )
        found = sent.request.document["messages"]
        shared = next((i for i, (old, new) in enumerate(zip(before, found, strict=False)) if old != new), len(before))
        num_stated += sum(len(message["content"]) for message in found)
        num_stored += sum(len(message["content"]) for message in found[:shared])
        before = found
        messages.append({"role": "assistant", "content": f"{number:03d}" + "a" * 100})
    assert num_stored / num_stated >= 0.8


def test_a_strategy_that_cut_twice_is_counted_once_with_its_sum() -> None:
    cuts = (("minify", 4), ("drop_old_turns", 10), ("minify", 3))
    assert summed_cuts(cuts) == (("minify", 7), ("drop_old_turns", 10))
