"""Drafts of recorded answers: whole answers only, of bounded length, by the deployment that gave them."""

from __future__ import annotations

import pytest

from gateway.telemetry.records.answer_record import MAX_TEXT_BYTES, AnswerRecord, AnswerRecording
from gateway.telemetry.records.record import CacheResult, RequestRecord
from gateway.timeline import Outcome

STATE = [
    (b"x-penstock-model-state", b"0123456789abcdef;none/f32/f32;fedcba9876543210;00112233445566778899aabbccddeeff")
]


class Whole:
    """A copy of an answer."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer

    @property
    def num_bytes(self) -> int:
        return len(self._answer or b"")

    def completion(self) -> bytes | None:
        return self._answer


def finished(outcome: Outcome = Outcome.COMPLETED, status: int = 200, deployment: str = "small") -> RequestRecord:
    record = RequestRecord("req_1", 0.0)
    record.outcome, record.status, record.deployment = outcome, status, deployment
    record.tenant, record.model, record.route, record.policy = "dev", "auto", "main", "r1"
    return record


def draft(answer: bytes | None = b"{}", body: bytes | None = b'{"sent": 1}') -> AnswerRecording:
    made = AnswerRecording(b'{"asked": 1}', {})
    made.capture = Whole(answer)
    made.note_sent("small", "unix:/a tiny", body, takes_seed=True)
    made.note_response("small", STATE)
    return made


def recorded(made: AnswerRecording, record: RequestRecord | None = None) -> AnswerRecord | None:
    return made.record(record or finished(), 5.0)


def test_a_record_has_the_deployment_that_answered_among_those_that_were_sent_the_request() -> None:
    made = draft()
    made.note_sent("large", "unix:/b big", b'{"sent": 2}', takes_seed=True)
    made.seed = 7
    found = recorded(made)
    assert found is not None
    assert (found.deployment, found.target, found.sent, found.answer) == ("small", "unix:/a tiny", '{"sent": 1}', "{}")
    assert (found.seed, found.is_repeatable, found.state.model) == (7, True, "0123456789abcdef")
    other = recorded(made, finished(deployment="large"))
    assert other is not None
    assert (other.sent, other.state.is_stated) == ('{"sent": 2}', False)


def test_only_greedy_answers_and_those_with_a_seed_are_repeatable() -> None:
    sampled, greedy, unseeded = draft(), draft(), draft()
    greedy.is_greedy = True
    unseeded.seed = 7
    unseeded.note_sent("small", "x y", b"{}", takes_seed=False)
    found = [recorded(made) for made in (sampled, greedy, unseeded)]
    assert [one is not None and one.is_repeatable for one in found] == [False, True, False]


def test_a_cached_response_is_recorded_without_a_deployment() -> None:
    made, record = draft(), finished(Outcome.CACHED, deployment="cache")
    made.answer, made.cache_age_s = b'{"cached": 1}', 3.0
    record.cache, record.cache_reason, record.cache_entry = CacheResult.HIT_EXACT, "exact", "req_0"
    found = recorded(made, record)
    assert found is not None
    assert (found.deployment, found.answer, found.cache_entry, found.is_cached) == ("", '{"cached": 1}', "req_0", True)


@pytest.mark.parametrize(
    "record",
    [
        finished(Outcome.CANCELLED, 499),
        finished(Outcome.UPSTREAM_FAILED),
        finished(status=422),
        finished(deployment="other"),
        finished(Outcome.CACHED),
    ],
)
def test_what_did_not_end_well_is_left_out(record: RequestRecord) -> None:
    assert recorded(draft(), record) is None


@pytest.mark.parametrize(
    "made",
    [
        draft(None),
        draft(b"\xff"),
        draft(b"x" * (MAX_TEXT_BYTES + 1)),
        draft(body=None),
        draft(body=b"x" * (MAX_TEXT_BYTES + 1)),
    ],
)
def test_what_is_too_long_or_no_text_is_left_out(made: AnswerRecording) -> None:
    assert recorded(made) is None
