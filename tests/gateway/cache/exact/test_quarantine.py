"""Answers that were called wrong: known by their content, for a while, in bounded memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.cache.exact.quarantine import MAX_ANSWERS, Quarantines, digest_of


def answer(text: str, **fields: Any) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return msgspec.json.encode({"id": "c1", "created": 1, "choices": [choice], **fields})


def test_the_same_content_is_the_same_answer_whatever_its_id_time_and_order() -> None:
    first = answer("Paris")
    other = msgspec.json.encode(
        {
            "choices": [{"finish_reason": "stop", "message": {"content": "Paris", "role": "assistant"}, "index": 0}],
            "id": "c2",
        }
    )
    assert digest_of(first) == digest_of(other)
    assert digest_of(first) != digest_of(answer("Rome"))


def test_bytes_that_are_no_completion_are_reported_apart_as_bytes() -> None:
    assert digest_of(b"{") == digest_of(b"{")
    assert len({digest_of(data) for data in (b"{", b"[]", b'{"choices": 3}', b"\xff")}) == 4


def test_a_wrong_answer_is_covered_until_its_time_is_over_and_for_its_question_only() -> None:
    quarantines = Quarantines()
    quarantines.add(b"question", digest_of(answer("Paris")), 100.0, "tenant")
    assert quarantines.covers(b"question", answer("Paris", id="later"), 99.9)
    assert not quarantines.covers(b"question", answer("Paris"), 100.0)
    assert not quarantines.covers(b"question", answer("Rome"), 0.0)
    assert not quarantines.covers(b"another", answer("Paris"), 0.0)


def test_of_many_wrong_answers_to_one_question_the_oldest_is_forgotten() -> None:
    quarantines = Quarantines()
    for number in range(MAX_ANSWERS + 1):
        quarantines.add(b"question", digest_of(answer(str(number))), 100.0, "tenant")
    assert not quarantines.covers(b"question", answer("0"), 0.0)
    assert quarantines.covers(b"question", answer(str(MAX_ANSWERS)), 0.0)
    assert len(quarantines) == 1


def test_one_tenants_flood_frees_no_answer_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cache.exact.quarantine.MAX_QUESTIONS", 10)
    wrong = Quarantines()
    wrong.add(b"calm", digest_of(answer("no")), 100.0, "calm")
    for number in range(1000):
        wrong.add(b"flood%d" % number, digest_of(answer("no")), 100.0, "flood")
    assert len(wrong) == 10
    assert wrong.covers(b"calm", answer("no"), 50.0)
    assert not wrong.covers(b"calm", answer("no"), 100.0)
    assert not wrong.covers(b"flood0", answer("no"), 50.0)
    assert wrong.covers(b"flood999", answer("no"), 50.0)
