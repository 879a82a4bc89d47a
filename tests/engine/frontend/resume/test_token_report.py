"""Reports of a stream's tokens: each token once, and only where the stream can be continued."""

from __future__ import annotations

from engine.frontend.resume.token_report import token_report
from engine.frontend.text.choice import Choice
from engine.protocol import SeqOutput, TokenLogprobs

VOCABULARY = {1: b"a", 2: b"b", 3: b"c"}


def answer(stops: tuple[str, ...] = (), index: int = 0) -> Choice:
    choice = Choice(index, VOCABULARY.__getitem__, frozenset(), stops)
    choice.unreported = []
    return choice


def output(token_ids: list[int], *, logprobs: bool = False) -> SeqOutput:
    return SeqOutput(
        seq_id=1, token_ids=token_ids, logprobs=[TokenLogprobs(-1.0)] * len(token_ids) if logprobs else None
    )


def test_a_report_has_the_tokens_since_the_last_one() -> None:
    choice = answer()
    choice.feed(output([1, 2]))
    assert token_report([choice]) == b": penstock-tokens 0 1 2\n\n"
    assert token_report([choice]) == b""
    choice.feed(output([3]))
    assert token_report([choice]) == b": penstock-tokens 0 3\n\n"


def test_tokens_wait_for_log_probabilities_that_are_held_back() -> None:
    choice = answer(("bc",))
    choice.feed(output([1, 2], logprobs=True))
    assert token_report([choice]) == b""
    choice.feed(output([1], logprobs=True))
    assert token_report([choice]) == b": penstock-tokens 0 1 2 1\n\n"


def test_an_answer_that_its_own_text_ended_has_one_last_report_without_a_reason() -> None:
    choice = answer(("b",))
    choice.feed(output([1, 2], logprobs=True))
    assert choice.finish == "stop"
    assert token_report([choice]) == b": penstock-tokens 0 1 2\n\n"
    assert token_report([choice]) == b""


def test_one_report_has_all_choices_and_their_ends() -> None:
    first, second = answer(), answer(index=1)
    first.feed(output([1]))
    second.feed(output([2]))
    assert token_report([first, second]) == b": penstock-tokens 0 1,1 2\n\n"
    second.feed(SeqOutput(seq_id=1, token_ids=[], finish_reason="length"))
    assert token_report([first, second]) == b": penstock-tokens 1 length\n\n"
    assert token_report([first, second]) == b""


def test_a_choice_that_waits_holds_no_other_back() -> None:
    first, second = answer(), answer(("bc",), index=1)
    first.feed(output([1], logprobs=True))
    second.feed(output([1, 2], logprobs=True))
    assert token_report([first, second]) == b": penstock-tokens 0 1\n\n"
    second.feed(output([1], logprobs=True))
    assert token_report([first, second]) == b": penstock-tokens 1 1 2 1\n\n"


def test_a_choice_of_a_stream_without_an_order_reports_nothing() -> None:
    choice = Choice(0, VOCABULARY.__getitem__, frozenset())
    choice.feed(output([1]))
    assert token_report([choice]) == b""
