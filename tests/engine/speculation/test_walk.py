"""Guesses of one row: from its text, from earlier answers, from whoever takes a step in between."""

from __future__ import annotations

from engine.core.sequence import Sequence
from engine.messages import Add, SamplingParams
from engine.speculation.answer_memory import AnswerMemory
from engine.speculation.guess import MODEL, by_both, by_memory, by_model, by_text, is_by_model, near_end, prior
from engine.speculation.text_index import TextIndex
from engine.speculation.track_record import TrackRecord
from engine.speculation.walk import Walk

END = 99


def walk(
    token_ids: list[int], *, limit: int = 8, memory: AnswerMemory | None = None, record: TrackRecord | None = None
) -> Walk:
    params = SamplingParams(max_tokens=100, temperature=0.0, stop_token_ids=(END,))
    add = Add(seq_id=1, prompt_token_ids=token_ids, params=params)
    seq = Sequence.from_add(add, arrival_index=0, received_at=0.0)
    index = TextIndex()
    index.extend(seq.token_ids)
    return Walk(seq, limit, index, memory or AnswerMemory(), record or TrackRecord())


def test_copies_on_from_where_the_newest_tokens_stood() -> None:
    found = walk([1, 2, 3, 4, 5, 1, 2])
    found.go()
    assert found.token_ids[:3] == [3, 4, 5]


def test_goes_on_in_earlier_answers_where_the_text_is_silent() -> None:
    memory = AnswerMemory()
    memory.learn(b"", [50, 51], [3, 4])
    found = walk([7, 8, 50, 51], memory=memory)
    found.go()
    assert found.token_ids == [3, 4]


def test_the_likelier_of_two_sources_is_followed() -> None:
    memory, record = AnswerMemory(), TrackRecord()
    memory.learn(b"", [1, 2], [30])
    for _ in range(20):
        record.observe(by_memory(2, 1), was_right=True)
        record.observe(by_text(2), was_right=False)
    found = walk([1, 2, 3, 9, 1, 2], limit=1, memory=memory, record=record)
    found.go()
    assert found.token_ids == [30]
    for _ in range(200):
        record.observe(by_memory(2, 1), was_right=False)
        record.observe(by_text(2), was_right=True)
    found = walk([1, 2, 3, 9, 1, 2], limit=1, memory=memory, record=record)
    found.go()
    assert found.token_ids == [3]


def test_the_end_of_an_answer_is_never_a_guess() -> None:
    found = walk([1, 2, 3, END, 5, 1, 2])
    found.go()
    assert found.token_ids == [3]
    assert found.is_over


def test_stops_where_guesses_are_less_likely_than_asked() -> None:
    found = walk([1, 2, 3, 4, 5, 1, 2])
    found.go(0.99)
    assert found.token_ids == []
    assert not found.is_over


def test_a_step_taken_in_between_is_walked_on_from() -> None:
    found = walk([1, 2, 3, 4, 5, 6, 9, 9, 8])
    assert not found.token_ids
    found.take(3, MODEL)
    found.go()
    assert found.token_ids[:3] == [3, 4, 5]


def test_after_a_rewind_the_way_is_found_again() -> None:
    found = walk([1, 2, 3, 4, 5, 1, 2])
    found.go()
    before = list(found.guesses)
    found.rewind(1)
    assert found.token_ids == [3]
    assert found.dropped == before[1:]
    found.go()
    assert found.guesses == before


def test_no_more_guesses_than_the_limit() -> None:
    found = walk([1, 2, 3, 4, 5, 1, 2], limit=2)
    found.go()
    found.take(7, MODEL)
    assert found.token_ids == [3, 4]
    assert found.is_over


def test_kinds_do_not_overlap() -> None:
    kinds = [by_model(1.0 - 0.5**n, is_drawn=drawn) for n in range(10) for drawn in (False, True)]
    kinds += [by_text(size) for size in (1, 2, 3, 4, 6, 9, 16)]
    kinds += [by_memory(size, streak) for size in (1, 2, 3, 5) for streak in range(5)]
    kinds += [by_both(size, streak) for size in (1, 2, 3, 4, 6, 9, 16) for streak in range(5)]
    kinds += [near_end(kind) for kind in kinds]
    assert len(set(kinds)) == len(kinds)
    assert sum(map(is_by_model, kinds)) == 40
    assert len(TrackRecord().chances) > max(kinds)


def test_a_sure_model_is_believed_more() -> None:
    chances = [prior(by_model(probability, is_drawn=False)) for probability in (0.1, 0.6, 0.9, 0.99)]
    assert chances == sorted(chances)
    assert chances[-1] > 0.98


def test_guesses_of_a_kind_are_judged_together() -> None:
    record = TrackRecord()
    for _ in range(200):
        record.observe(by_text(3), was_right=True)
    assert record.chances[by_text(3)] > 0.95
    assert record.chances[by_text(2)] == prior(by_text(2))
