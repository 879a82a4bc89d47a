"""One answer's text and log probabilities, whatever steps its tokens come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.front.choice import MIN_LOGPROB, Choice, Delta
from engine.front.tool_format import choose_tool_format
from engine.front.tool_parser import CallDelta, ToolParser
from engine.messages import FinishReason, SeqOutput, TokenLogprobs

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


STEPS = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=8)


@given(STEPS, st.sampled_from([(), ("ab",), ("ba", " c"), ("é",)]), st.booleans())
def test_steps_do_not_change_the_answer(steps: list[list[int]], stops: tuple[str, ...], logprobs: bool) -> None:
    whole, single = choice(stops), choice(stops)
    tokens = [token_id for step in steps for token_id in step]
    at_once = feed(whole, [tokens], "length", logprobs=logprobs)
    one_by_one = feed(single, [[token_id] for token_id in tokens], "length", logprobs=logprobs)
    in_steps = feed(choice(stops), steps, "length", logprobs=logprobs)
    for deltas in (one_by_one, in_steps):
        assert "".join(delta.text for delta in deltas) == "".join(delta.text for delta in at_once)
        assert [entry for delta in deltas for entry in delta.entries] == list(at_once[0].entries)
        assert deltas[-1].finish == at_once[-1].finish
    assert single.num_tokens == whole.num_tokens


CALL = '<tool_call>{"name": "f", "arguments": {"a": 12}}'


def calling_choice() -> Choice:
    """An answer that may hold one call; its tokens are bytes."""
    form = choose_tool_format("tools <tool_call>", {})
    assert form is not None
    parser = ToolParser(form, {"f"}, lambda: "id", max_calls=1)
    return Choice(0, lambda token_id: bytes([token_id]), frozenset({END}), tools=parser)


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
