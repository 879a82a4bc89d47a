"""Lookup finds what followed the newest tokens in the text and in earlier answers, and how much is worth verifying."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cpu.multi_step.ngram import LONGEST, LONGEST_STREAK
from engine.cpu.multi_step.prediction import AGREES_SO_FAR, BEGINS
from engine.models.prediction_heads import HeadPredictions
from engine.protocol import Add, SamplingParams
from engine.spec_decode.proposers.acceptance_stats import (
    AcceptanceStats,
    by_both,
    by_memory,
    by_prediction,
    by_text,
    first_by_heads,
)
from engine.spec_decode.proposers.ngram import LookupPosition, NgramDrafts, NgramProposer
from engine.step.sequence import Sequence

END = 99
BEFORE = [10, 11, 12, 13, 14]
_CHEAP = (1.0, 0.0, 1e-6)
"""A plain step, what drafts add, what each does: in seconds."""


def sequence(
    token_ids: SequenceOf[int], answer: SequenceOf[int] = (), *, salt: bytes = b"", predicted: SequenceOf[int] = ()
) -> Sequence:
    params = SamplingParams(max_tokens=100, temperature=0.0, stop_token_ids=(END,))
    add = Add(
        seq_id=1,
        prompt_token_ids=list(token_ids),
        params=params,
        cache_salt=salt,
        prediction_token_ids=list(predicted),
    )
    seq = Sequence.from_add(add, arrival_index=0, received_at=0.0)
    seq.token_ids.extend(answer)
    return seq


def look(
    token_ids: SequenceOf[int],
    lookup: NgramProposer | None = None,
    *,
    most: int = 8,
    salt: bytes = b"",
) -> NgramDrafts:
    place = LookupPosition(sequence(token_ids, salt=salt), most)
    return (lookup or NgramProposer(AcceptanceStats())).choose([place], 0.0, _CHEAP, 1.0)


def drafts_of(found: NgramDrafts) -> list[tuple[int, int]]:
    """(token, kind) of the first sequence's draft tokens, worth verifying or not."""
    tokens, kinds, ends = (array.tolist() for array in found.arrays)
    return list(zip(tokens[0], kinds[0], strict=True))[: ends[0][0]]


def continuation(*ids: int) -> int | None:
    """The token found for the end of a text."""
    found = drafts_of(look(ids))
    return found[0][0] if found else None


def remembered(lookup: NgramProposer, newest: SequenceOf[int], *, salt: bytes = b"") -> tuple[int, int] | None:
    """(token, kind) of what earlier answers stated behind these tokens, which the text alone is silent about."""
    found = drafts_of(look(newest, lookup, most=1, salt=salt))
    return found[0] if found else None


def lookup_of(*answers: SequenceOf[int], before: SequenceOf[int] = BEFORE) -> NgramProposer:
    lookup = NgramProposer(AcceptanceStats())
    for answer in answers:
        lookup.learn(sequence(before, answer))
    return lookup


def test_finds_what_followed_the_same_tokens_before() -> None:
    assert continuation(1, 2, 3, 4, 5, 9, 1, 2, 3) == 4


def test_the_latest_of_several_places_wins() -> None:
    assert continuation(1, 2, 7, 1, 2, 8, 1, 2) == 8


def test_a_longer_match_wins_over_a_later_shorter_one() -> None:
    assert continuation(5, 6, 1, 2, 7, 6, 1, 2, 8, 5, 6, 1, 2) == 7


def test_where_nothing_repeats_nothing_is_found() -> None:
    assert continuation(1, 2, 3, 4) is None


def test_a_running_repetition_continues_itself() -> None:
    assert continuation(4, 4, 4, 4) == 4


def test_a_place_is_copied_on_and_the_match_gets_longer() -> None:
    assert drafts_of(look([1, 2, 3, 4, 5, 6, 1, 2], most=3)) == [(3, by_text(2)), (4, by_text(3)), (5, by_text(4))]
    assert drafts_of(look([1] * 60, most=1)) == [(1, by_text(LONGEST))]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_agrees_with_a_search_written_out(ids: list[int]) -> None:
    def search() -> int | None:
        for size in range(min(LONGEST, len(ids)), 0, -1):
            for place in range(len(ids) - 1, size - 1, -1):
                if ids[place - size : place] == ids[-size:]:
                    return ids[place]
        return None

    assert continuation(*ids) == search()


def test_what_an_answer_stated_is_recalled_in_the_same_place() -> None:
    assert remembered(lookup_of([1, 2, 3]), [*BEFORE, 1, 2]) == (3, by_memory(5, 1))


def test_shorter_places_do_where_longer_ones_are_unknown() -> None:
    lookup = lookup_of([1, 2, 3])
    assert remembered(lookup, [90, 91, 92, 1, 2]) == (3, by_memory(2, 1))
    assert remembered(lookup, [90, 91]) is None


def test_what_text_and_answers_agree_on_is_a_kind_of_its_own() -> None:
    assert drafts_of(look([1, 2, 3, 9, 1, 2], lookup_of([1, 2, 3]), most=1)) == [(3, by_both(2, 1))]


def test_the_last_answer_counts_and_agreement_of_several_is_reported() -> None:
    lookup = NgramProposer(AcceptanceStats())
    found = []
    for token_id in (7, *[8] * (LONGEST_STREAK + 3), 7):  # the second 7 takes the place of the 8
        lookup.learn(sequence(BEFORE, [token_id]))
        found.append(remembered(lookup, BEFORE))
    streaks = (0, *range(1, LONGEST_STREAK + 1), LONGEST_STREAK, LONGEST_STREAK)
    assert found == [(7, by_memory(5, 1)), *((8, by_memory(5, streak)) for streak in streaks), (7, by_memory(5, 0))]


def test_one_tenant_learns_nothing_from_another() -> None:
    lookup = NgramProposer(AcceptanceStats())
    lookup.learn(sequence(BEFORE, [1, 2], salt=b"mine"))
    assert remembered(lookup, BEFORE, salt=b"yours") is None
    assert remembered(lookup, BEFORE, salt=b"mine") is not None


def test_what_is_used_stays_and_what_is_not_is_forgotten() -> None:
    lookup = NgramProposer(AcceptanceStats(), capacity=64)
    lookup.learn(sequence([1, 1, 1, 1, 1], [5]))
    for number in range(1000):
        lookup.learn(sequence([100 + number] * 5, [7]))
        lookup.learn(sequence(BEFORE, [6]))
    assert remembered(lookup, [1, 1, 1, 1, 2, 1, 3]) is None
    assert remembered(lookup, BEFORE) == (6, by_memory(5, LONGEST_STREAK))
    assert lookup.num_remembered <= 64


def test_the_likelier_of_two_sources_is_followed() -> None:
    record = AcceptanceStats()
    lookup = NgramProposer(record)
    lookup.learn(sequence([1, 2], [30]))
    for _ in range(20):
        record.observe(by_memory(2, 1), was_right=True)
        record.observe(by_text(2), was_right=False)
    assert drafts_of(look([1, 2, 3, 9, 1, 2], lookup, most=1)) == [(30, by_memory(2, 1))]
    for _ in range(200):
        record.observe(by_memory(2, 1), was_right=False)
        record.observe(by_text(2), was_right=True)
    assert drafts_of(look([1, 2, 3, 9, 1, 2], lookup, most=1)) == [(3, by_text(2))]


def test_the_end_of_an_answer_is_never_ambiguous() -> None:
    found = look([1, 2, 3, END, 5, 1, 2])
    assert [token for token, _ in drafts_of(found)] == [3]
    assert found.arrays[2].tolist() == [(1, 1)]


def test_rows_are_looked_up_side_by_side_and_drafted_where_it_pays() -> None:
    record = AcceptanceStats()
    for size in (3, 4, 5, 6):
        for _ in range(300):
            record.observe(by_text(size), was_right=True)
    for _ in range(300):
        record.observe(by_text(1), was_right=False)
    places = [LookupPosition(sequence(ids), 4) for ids in ([1, 2, 3, 4, 5, 6, 1, 2, 3], [7, 8, 9, 7], [50, 51])]
    found = NgramProposer(record).choose(places, 0.0, (1.0, 0.1, 0.1), 1.05)
    assert found.counts[0] >= 3
    assert found.counts[1:] == [0, 0]
    assert found.token_ids() == [(4, 5, 6, 1)[: found.counts[0]], (), ()]
    assert found.gain > 1.5


@pytest.mark.parametrize(("outputs", "num_recorded"), [([3, 4, 5], 3), ([3, 9], 2), ([9], 1)])
def test_drafts_are_evaluated_up_to_the_first_that_was_wrong(outputs: list[int], num_recorded: int) -> None:
    record = AcceptanceStats()
    lookup = NgramProposer(record)
    found = look([1, 2, 3, 4, 5, 6, 1, 2], lookup, most=3)
    before = record.acceptance_rates.copy()
    lookup.record_acceptance(found, [outputs])
    changed = {kind for kind in range(len(before)) if record.acceptance_rate(kind) != before[kind]}
    assert changed == {kind for _, kind in drafts_of(found)[:num_recorded]}
    for (token, kind), output_token in zip(drafts_of(found), outputs, strict=False):
        assert (record.acceptance_rate(kind) > before[kind]) == (token == output_token)


def test_drafts_of_a_kind_are_evaluated_together_and_compiled_as_in_python() -> None:
    record, other = AcceptanceStats(), AcceptanceStats()
    lookup = NgramProposer(record)
    for _ in range(200):
        lookup.record_acceptance(look([1, 2, 3, 9, 1, 2], lookup, most=1), [[3]])
        other.observe(by_text(2), was_right=True)
    assert record.acceptance_rate(by_text(2)) == pytest.approx(other.acceptance_rate(by_text(2)))
    assert record.acceptance_rate(by_text(2)) > 0.95


def test_what_is_looked_up_stands_behind_tokens_that_are_drafted_already() -> None:
    place = LookupPosition(sequence([1, 2, 3, 4, 5, 6, 9, 9]), 4, prefix=(3,))
    found = NgramProposer(AcceptanceStats()).choose([place], 0.0, _CHEAP, 1.0)
    assert [token for token, _ in drafts_of(found)] == [4, 5, 6]


def test_what_heads_state_stands_behind_the_newest_token_whatever_was_drafted_since() -> None:
    sure = first_by_heads(is_drawn=False) + 9
    predictions = HeadPredictions(np.array([[7, 8, -1], [11, 12, 13]]), np.full((2, 3), sure))
    places = [LookupPosition(sequence([1, 2, 3]), 0), LookupPosition(sequence([4, 5, 6]), 8, prefix=(10,))]
    found = NgramProposer(AcceptanceStats()).choose(places, 0.0, _CHEAP, 1.0, predictions)
    assert found.token_ids() == [(), (12, 13)]


def test_a_place_is_described_without_looking_anything_up() -> None:
    found = NgramProposer(AcceptanceStats()).nothing([LookupPosition(sequence([1, 2, 1, 2]), 4)], 0.3)
    assert found.token_ids() == [()]
    assert (found.gain, found.arrays[2].tolist()) == (1.0, [(0, 0)])
    (row,) = found.described[0]
    assert (row["accepted_probability"], row["least_probability"], row["least_next_probability"]) == (1.0, 0.3, 0.0)


PREDICTED = [30, 31, 32, 33, 34, 35, 36, 37]


def predicted_drafts(answer: SequenceOf[int], lookup: NgramProposer | None = None) -> list[tuple[int, int]]:
    place = LookupPosition(sequence(BEFORE, answer, predicted=PREDICTED), 4)
    return drafts_of((lookup or NgramProposer(AcceptanceStats())).choose([place], 0.0, _CHEAP, 1.0))


def test_a_predicted_answer_is_drafted_from_its_beginning() -> None:
    begins, agrees = by_prediction(BEGINS), by_prediction(AGREES_SO_FAR)
    assert predicted_drafts([]) == [(30, begins), (31, begins), (32, agrees), (33, agrees)]


def test_a_predicted_answer_that_is_drawn_has_kinds_of_its_own() -> None:
    params = SamplingParams(max_tokens=100, temperature=1.0)
    add = Add(seq_id=1, prompt_token_ids=list(BEFORE), params=params, prediction_token_ids=PREDICTED)
    place = LookupPosition(Sequence.from_add(add, arrival_index=0, received_at=0.0), 3)
    found = drafts_of(NgramProposer(AcceptanceStats()).choose([place], 0.0, _CHEAP, 1.0))
    kinds = [by_prediction(size, is_drawn=True) for size in (BEGINS, BEGINS, AGREES_SO_FAR)]
    assert found == list(zip(PREDICTED[:3], kinds, strict=True))


def test_a_predicted_answer_is_taken_up_again_behind_other_words() -> None:
    kinds = [by_prediction(size) for size in range(4)]
    assert predicted_drafts([30, 31, 32, 99]) == list(zip([34, 35, 36, 37], kinds, strict=True))
    assert predicted_drafts([30, 31, 32, 99, 99, 33, 34])[0] == (35, by_prediction(2))
    assert predicted_drafts([*PREDICTED, 99]) == []


def test_the_likelier_of_prediction_and_earlier_answers_is_followed() -> None:
    record = AcceptanceStats()
    lookup = NgramProposer(record)
    lookup.learn(sequence(BEFORE, [50, 51]))
    assert predicted_drafts([], lookup)[0] == (30, by_prediction(BEGINS))
    for _ in range(50):
        record.observe(by_prediction(BEGINS), was_right=False)
        record.observe(by_memory(5, 1), was_right=True)
    assert predicted_drafts([], lookup)[0] == (50, by_memory(5, 1))


def test_one_sequence_s_prediction_is_no_other_s() -> None:
    places = [
        LookupPosition(sequence([1, 2, 3]), 4),
        LookupPosition(sequence([1, 2, 3], predicted=PREDICTED), 4),
        LookupPosition(sequence([1, 2, 3]), 4),
    ]
    found = NgramProposer(AcceptanceStats()).choose(places, 0.0, _CHEAP, 1.0)
    assert [len(tokens) > 0 for tokens in found.token_ids()] == [False, True, False]
