"""One answer's text and log probabilities, whatever steps its tokens come in."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.frontend.text.choice import MIN_LOGPROB, Choice, Delta
from engine.frontend.tools.call_scanner import CallDelta
from engine.frontend.tools.reasoning_format import choose_reasoning_format
from engine.frontend.tools.reasoning_parser import ReasoningParser
from engine.frontend.tools.tool_format import choose_tool_format
from engine.frontend.tools.tool_parser import ToolParser
from engine.protocol import FinishReason, SeqOutput, TokenLogprobs

END = 0
VOCABULARY = {END: b"", 1: b"a", 2: b"b", 3: b"ab", 4: "é".encode()[:1], 5: "é".encode()[1:], 6: b" c"}


def choice(stops: tuple[str, ...] = ()) -> Choice:
    return Choice(0, VOCABULARY.__getitem__, frozenset({END}), stops)


def output(token_ids: list[int], finish: FinishReason | None = None, *, logprobs: bool = False) -> SeqOutput:
    entries = [TokenLogprobs(-float(token_id), [(token_id, -float(token_id))]) for token_id in token_ids]
    return SeqOutput(seq_id=1, token_ids=token_ids, finish_reason=finish, logprobs=entries if logprobs else None)


def feed(answer: Choice, steps: list[list[int]], finish: FinishReason, *, logprobs: bool = False) -> list[Delta]:
    deltas = []
    for i, step in enumerate(steps, 1):
        deltas.append(answer.feed(output(step, finish if i == len(steps) else None, logprobs=logprobs)))
        if answer.finish is not None:
            break
    return deltas


def test_the_token_that_ends_the_answer_counts_and_is_not_text() -> None:
    answer = choice()
    assert feed(answer, [[1], [2, END]], "stop") == [Delta("a"), Delta("b", (), "stop")]
    assert answer.num_tokens == 3


def test_an_end_token_that_was_to_be_ignored_is_no_text_either() -> None:
    answer = Choice(0, VOCABULARY.__getitem__, frozenset())
    assert feed(answer, [[1, END, 2]], "length") == [Delta("ab", (), "length")]


def test_half_a_character_waits_and_at_the_end_is_replaced() -> None:
    assert feed(choice(), [[4], [5]], "length") == [Delta(), Delta("é", (), "length")]
    assert feed(choice(), [[1], [4]], "length") == [Delta("a"), Delta("\ufffd", (), "length")]


def test_a_stop_string_ends_the_answer_and_the_core_does_not_know() -> None:
    answer = choice(("ba",))
    assert feed(answer, [[1], [2], [3], [1]], "length") == [Delta("a"), Delta(), Delta("", (), "stop")]
    assert (answer.num_tokens, answer.has_stopped_itself) == (3, True)


def test_a_stop_string_in_the_last_step_wins_over_the_length() -> None:
    answer = choice(("b",))
    assert feed(answer, [[1], [2]], "length")[-1] == Delta("", (), "stop")
    assert not answer.has_stopped_itself


def test_held_text_is_shown_when_no_stop_string_comes() -> None:
    assert feed(choice(("bc",)), [[1, 2], [END]], "stop") == [Delta("a"), Delta("b", (), "stop")]


def test_log_probabilities_wait_with_the_text_they_belong_to() -> None:
    answer = choice(("bc",))
    first, second, third = feed(answer, [[1, 2], [1], [END]], "stop", logprobs=True)
    assert [entry.token_id for entry in first.entries] == [1]
    assert [(entry.token_id, entry.offset) for entry in second.entries] == [(2, 1), (1, 2)]
    assert (first.text, second.text, third) == ("a", "ba", Delta("", (), "stop"))


def test_log_probabilities_of_a_stop_string_never_come() -> None:
    (delta,) = feed(choice(("b",)), [[1, 2, 1]], "length", logprobs=True)
    assert [entry.token_id for entry in delta.entries] == [1]


def test_minus_infinity_has_a_number() -> None:
    answer = choice()
    delta = answer.feed(
        SeqOutput(seq_id=1, token_ids=[1], logprobs=[TokenLogprobs(float("-inf"), [(2, float("-inf"))])])
    )
    assert (delta.entries[0].logprob, delta.entries[0].top) == (MIN_LOGPROB, ((2, MIN_LOGPROB),))


@st.composite
def groupings(draw: st.DrawFn) -> tuple[list[int], list[list[int]], FinishReason]:
    """Tokens of an answer, the same in steps of any sizes, and why the core ended it."""
    tokens = draw(st.lists(st.integers(1, 6), min_size=1, max_size=16))
    finish = draw(st.sampled_from(ENDINGS))
    tokens = [*tokens, END] if finish == "stop" else tokens
    cuts = sorted(draw(st.sets(st.integers(1, len(tokens)), max_size=8)) | {len(tokens)})
    return tokens, [tokens[start:end] for start, end in pairwise([0, *cuts])], finish


ENDINGS: list[FinishReason] = ["stop", "length"]
STOPS = st.sampled_from([(), ("a",), ("ab",), ("ba", " c"), ("é",), ("\ufffd",), ("bab", "b c", "aa")])


def outcome(answer: Choice, deltas: list[Delta]) -> tuple[Any, ...]:
    """All that a client can see of an answer."""
    calls = "".join(call.arguments for delta in deltas for call in delta.calls)
    names = [call.name for delta in deltas for call in delta.calls if call.name is not None]
    entries = [entry for delta in deltas for entry in delta.entries]
    return "".join(delta.text for delta in deltas), entries, names, calls, answer.finish, answer.num_tokens


@given(groupings(), STOPS)
def test_steps_do_not_change_the_answer(
    made: tuple[list[int], list[list[int]], FinishReason], stops: tuple[str, ...]
) -> None:
    tokens, steps, finish = made
    whole = choice(stops)
    all_entries = outcome(whole, feed(whole, [tokens], finish, logprobs=True))[1]
    outcomes = []
    for grouping in ([tokens], [[token_id] for token_id in tokens], steps):
        for logprobs in (False, True):
            answer = choice(stops)
            text, entries, *rest = outcome(answer, feed(answer, grouping, finish, logprobs=logprobs))
            outcomes.append((text, rest))
            if logprobs:
                assert entries == all_entries
    assert outcomes == [outcomes[0]] * len(outcomes)


@pytest.mark.parametrize("stop", ["b", "ab", "a"])
@pytest.mark.parametrize("logprobs", [False, True])
def test_an_end_token_behind_a_stop_string_does_not_count(stop: str, logprobs: bool) -> None:
    for steps in ([[1, 2, END]], [[1], [2, END]], [[1], [2], [END]], [[1, 2], [END]]):
        answer = choice((stop,))
        feed(answer, steps, "stop", logprobs=logprobs)
        assert (answer.finish, answer.num_tokens) == ("stop", 1 if stop == "a" else 2)


CALL = '<tool_call>{"name": "f", "arguments": {"a": 12}}'


def calling_choice(stops: tuple[str, ...] = (), max_calls: int | None = 1) -> Choice:
    """An answer that may hold so many calls; its tokens are bytes."""
    form = choose_tool_format("tools <tool_call>", {})
    assert form is not None
    parser = ToolParser(form, {"f"}, lambda: "id", max_calls=max_calls)
    return Choice(0, lambda token_id: bytes([token_id]), frozenset({END}), stops, tools=parser)


@given(
    st.text("ab< \n", max_size=6), st.integers(1, 3), st.sampled_from([None, 1]), st.integers(1, 200),
    st.sampled_from(ENDINGS), st.booleans(), st.sampled_from([(), ("12",), ("</tool",), ("b b",)]),
)  # fmt: skip
def test_steps_do_not_change_calls(
    before: str,
    num_calls: int,
    max_calls: int | None,
    size: int,
    finish: FinishReason,
    logprobs: bool,
    stops: tuple[str, ...],
) -> None:
    tokens = list((before + f"{CALL}</tool_call>\n" * num_calls + "b b").encode())
    tokens = [*tokens, END] if finish == "stop" else tokens

    def answered(size: int) -> tuple[Any, ...]:
        answer = calling_choice(stops, max_calls=max_calls)
        steps = [tokens[i : i + size] for i in range(0, len(tokens), size)]
        return outcome(answer, feed(answer, steps, finish, logprobs=logprobs))

    assert answered(size) == answered(1) == answered(len(tokens))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_tokens_behind_the_only_call_do_not_count_whatever_step_made_them(size: int, finish: FinishReason) -> None:
    answer = calling_choice()
    tokens = [*f"{CALL}</tool_call> and so on".encode(), END]
    deltas = feed(answer, [tokens[i : i + size] for i in range(0, len(tokens), size)], finish)

    calls = [call for delta in deltas for call in delta.calls]
    assert calls[0] == CallDelta(index=0, id="id", name="f")
    assert "".join(call.arguments for call in calls) == '{"a": 12}'
    assert (answer.finish, answer.num_tokens) == ("tool_calls", len(CALL))
    assert answer.has_stopped_itself == (size < len(tokens))


def test_a_step_with_a_whole_call_shows_its_arguments_in_one_piece() -> None:
    (delta,) = feed(calling_choice(), [list(CALL.encode())], "length")
    assert delta.calls == (CallDelta(index=0, id="id", name="f"), CallDelta(index=0, arguments='{"a": 12}'))


REASONED = "<think>\n b< b\n</think>\n"


def reasoning_choice(stops: tuple[str, ...] = (), *, has_tokens: bool = False, inside: bool = False) -> Choice:
    """An answer that may begin with reasoning; its tokens are bytes, and perhaps the marks are tokens, too."""
    ids = {"<think>": 300, "</think>": 301} if has_tokens else {}
    form = choose_reasoning_format("think", "", ids)
    assert form is not None
    parser = ReasoningParser(form, starts_inside=inside)
    return Choice(0, to_bytes, frozenset({END}), stops, reasoning=parser, markers=form.markers)


def to_bytes(token_id: int) -> bytes:
    return {300: b"<think>", 301: b"</think>"}.get(token_id) or bytes([token_id])


def reasoning_outcome(answer: Choice, deltas: list[Delta]) -> tuple[Any, ...]:
    """All that a client can see of an answer with reasoning."""
    return (
        "".join(delta.text for delta in deltas),
        "".join(delta.reasoning for delta in deltas),
        [entry for delta in deltas for entry in delta.entries],
        [entry for delta in deltas for entry in delta.reasoning_entries],
        (answer.finish, answer.num_tokens, answer.num_reasoning_tokens),
    )


@given(
    st.text("ab< \n", max_size=6), st.booleans(), st.booleans(), st.text("ab< \n", max_size=8), st.integers(1, 40),
    st.sampled_from(ENDINGS), st.booleans(), st.sampled_from([(), ("b",), ("b ", "aa"), ("</think>",)]),
)  # fmt: skip
def test_steps_do_not_change_reasoning(
    before: str,
    thinks: bool,
    has_tokens: bool,
    after: str,
    size: int,
    finish: FinishReason,
    logprobs: bool,
    stops: tuple[str, ...],
) -> None:
    text = "".join(c for c in before if c.isspace()) + REASONED if thinks else before
    tokens = list((text + after).encode())
    if has_tokens and thinks:
        head, _, rest = (text + after).partition("<think>")
        inner, _, rest = rest.partition("</think>")
        tokens = [*head.encode(), 300, *inner.encode(), 301, *rest.encode()]
    tokens = [*tokens, END] if finish == "stop" else tokens

    def answered(size: int, logprobs: bool) -> tuple[Any, ...]:
        answer = reasoning_choice(stops, has_tokens=has_tokens)
        steps = [tokens[i : i + size] for i in range(0, len(tokens), size)] or [[]]
        return reasoning_outcome(answer, feed(answer, steps, finish, logprobs=logprobs))

    one = answered(1, logprobs)
    assert answered(size, logprobs) == one
    assert answered(max(len(tokens), 1), logprobs) == one
    assert answered(size, not logprobs)[:2] == one[:2]
    if thinks:
        assert one[1] == "b< b"


def test_stop_strings_are_looked_for_behind_the_reasoning() -> None:
    answer = reasoning_choice(("b",))
    deltas = feed(answer, [list((REASONED + "a b").encode())], "length", logprobs=True)
    text, reasoning, entries, thoughts, ends = reasoning_outcome(answer, deltas)
    assert (text, reasoning) == ("a ", "b< b")
    assert "".join(chr(entry.token_id) for entry in entries) == "a "
    assert "".join(chr(entry.token_id) for entry in thoughts) == REASONED
    assert [entry.offset for entry in entries] == [0, 1]
    assert ends == ("stop", len(REASONED) + 3, len(REASONED))


def test_a_mark_cuts_an_incomplete_character_off() -> None:
    answer = reasoning_choice(has_tokens=True, inside=True)
    (delta,) = feed(answer, [[ord("a"), 0xC3, 301, *"é".encode()]], "length")
    assert (delta.reasoning, delta.text, answer.num_reasoning_tokens) == ("a\ufffd", "é", 3)


def test_a_limit_inside_the_reasoning_leaves_no_text() -> None:
    answer = reasoning_choice()
    (delta,) = feed(answer, [list(b"<think>a </thi")], "length")
    assert (delta.reasoning, delta.text, answer.finish) == ("a </thi", "", "length")
    assert answer.num_reasoning_tokens == answer.num_tokens


def test_calls_are_looked_for_behind_the_reasoning() -> None:
    form, thinking = choose_tool_format("tools <tool_call>", {}), choose_reasoning_format("think", "", {})
    assert form is not None
    assert thinking is not None
    parser = ReasoningParser(thinking, starts_inside=True)
    tools = ToolParser(form, {"f"}, lambda: "id", max_calls=1)
    answer = Choice(0, to_bytes, frozenset({END}), (), tools, parser)
    tokens = list(f"a {CALL}</think>\n{CALL}</tool_call> b".encode())
    deltas = feed(answer, [tokens[i : i + 5] for i in range(0, len(tokens), 5)], "length")
    assert "".join(delta.reasoning for delta in deltas) == f"a {CALL}"
    assert "".join(call.arguments for delta in deltas for call in delta.calls) == '{"a": 12}'
    assert (answer.finish, answer.has_stopped_itself, "".join(delta.text for delta in deltas)) == (
        "tool_calls",
        True,
        "",
    )


@given(groupings(), STOPS, st.booleans(), st.data())
def test_an_answer_that_was_replayed_goes_on_as_the_one_that_was_not(
    made: tuple[list[int], list[list[int]], FinishReason], stops: tuple[str, ...], logprobs: bool, data: st.DataObject
) -> None:
    tokens, steps, finish = made
    begun = choice(stops)
    begun.unreported = []
    num_steps = data.draw(st.integers(0, len(steps) - 1))
    first = [begun.feed(output(step, logprobs=logprobs)) for step in steps[:num_steps] if begun.finish is None]
    if begun.finish is not None or begun.has_open_logprobs:
        return  # no report is sent there, so nothing goes on from there
    num_tokens = len(begun.unreported)
    rest = feed(begun, steps[num_steps:], finish, logprobs=logprobs)
    resumed = choice(stops)
    resumed.replay(tokens[:num_tokens], has_logprobs=logprobs)
    continued = feed(resumed, steps[num_steps:], finish, logprobs=logprobs)
    assert outcome(resumed, [*first, *continued]) == outcome(begun, [*first, *rest])
