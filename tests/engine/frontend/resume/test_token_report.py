"""Reports of a stream's tokens: each token once, and only where the stream can be continued."""

from __future__ import annotations

from engine.frontend.resume.token_report import token_report
from engine.frontend.text.choice import Choice
from engine.protocol import SeqOutput, TokenLogprobs

VOCABULARY = {1: b"a", 2: b"b", 3: b"c"}


def answer(stops: tuple[str, ...] = ()) -> Choice:
    choice = Choice(0, VOCABULARY.__getitem__, frozenset(), stops)
    choice.unreported = []
    return choice


def output(token_ids: list[int], *, logprobs: bool = False) -> SeqOutput:
    return SeqOutput(
        seq_id=1, token_ids=token_ids, logprobs=[TokenLogprobs(-1.0)] * len(token_ids) if logprobs else None
    )


def test_a_report_has_the_tokens_since_the_last_one() -> None:
    choice = answer()
    choice.feed(output([1, 2]))
    assert token_report(choice) == [b": penstock-tokens 1 2\n\n"]
    assert token_report(choice) == []
    choice.feed(output([3]))
    assert token_report(choice) == [b": penstock-tokens 3\n\n"]


def test_tokens_wait_for_log_probabilities_that_are_held_back() -> None:
    choice = answer(("bc",))
    choice.feed(output([1, 2], logprobs=True))
    assert token_report(choice) == []
    choice.feed(output([1], logprobs=True))
    assert token_report(choice) == [b": penstock-tokens 1 2 1\n\n"]


def test_an_answer_that_ended_is_not_continued() -> None:
    choice = answer(("b",))
    choice.feed(output([1, 2]))
    assert choice.finish == "stop"
    assert token_report(choice) == []


def test_a_choice_of_a_stream_without_an_order_reports_nothing() -> None:
    choice = Choice(0, VOCABULARY.__getitem__, frozenset())
    choice.feed(output([1]))
    assert token_report(choice) == []
