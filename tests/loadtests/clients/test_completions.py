"""What a bench reads from an answer's stage record."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests.clients.completions import read_answer
from loadtests.harness.processes import ProcessFailed


def body(**stages: float) -> dict[str, Any]:
    known = {"completion_tokens": 5, "queue_ms": 1.0, "prefill_ms": 20.0, "decode_ms": 8.0, "cached_tokens": 16}
    record = {"choices": [known | {"drafted_tokens": 0} | stages]}
    return {"choices": [{"text": "hi"}], "penstock": {"timing": {"engine": record}}}


def test_decode_lies_behind_queue_and_prefill() -> None:
    answer = read_answer(body(), sent_at=100.0, ended_at=101.0)
    assert answer.decode_begin == pytest.approx(100.021)
    assert answer.decode_end == pytest.approx(100.029)
    assert answer.engine_s == pytest.approx(0.029)
    assert (answer.num_tokens, answer.num_cached_tokens, answer.text) == (5, 16, "hi")


def test_a_chat_answer_is_read_from_its_message() -> None:
    found = body()
    found["choices"] = [{"message": {"content": "hello"}}]
    assert read_answer(found, sent_at=0.0, ended_at=1.0).text == "hello"


def test_an_answer_without_stages_is_refused() -> None:
    without = {"choices": [{"text": "hi"}]}
    with pytest.raises(ProcessFailed, match="stage record"):
        read_answer(without, sent_at=0.0, ended_at=1.0)
