"""What changed inside a deployment, by what it stated then and states now."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.chat.request import ChatRequestParser
from gateway.replay.answer_text import AnswerText
from gateway.replay.base import ReplayBase
from gateway.replay.engine_factors import engine_factors
from gateway.replay.sender import ReplayedAnswer
from gateway.telemetry.records.answer_record import AnswerRecord
from gateway.telemetry.records.model_state import NOTHING_STATED, ModelState

THEN = ModelState(model="m1", quantization="none/f32/f32", template="t1", engine="e1")
BODY = '{"model":"auto","messages":[{"role":"user","content":"hi"}]}'


def base(now: ModelState, *, then: ModelState = THEN, text: str = "new", **fields: Any) -> ReplayBase:
    record = AnswerRecord(
        **{
            "id": "req_1",
            "at": 0.0,
            "tenant": "dev",
            "model": "auto",
            "route": "main",
            "policy": "p",
            "deployment": "small",
            "request": BODY,
            "sent": BODY,
            "answer": "",
            "state": then,
            **fields,
        }
    )
    request = ChatRequestParser().parse(BODY.encode())
    return ReplayBase(
        record=record,
        source=record,
        then=AnswerText("old"),
        client=request,
        sent=request,
        live=None,
        answer=ReplayedAnswer(AnswerText(text), now),
    )


def verdicts(one: ReplayBase) -> dict[str, str]:
    return {found.factor: found.verdict for found in engine_factors(one) if found.verdict != "same"}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (ModelState(model="m1", quantization="int8/f32/f32", template="t1", engine="e2"), "quantization"),
        (ModelState(model="m2", quantization="none/f32/f32", template="t1", engine="e2"), "model"),
        (ModelState(model="m1", quantization="none/f32/f32", template="t2", engine="e2"), "prompt"),
        (ModelState(model="m1", quantization="none/f32/f32", template="t1", engine="e2"), "engine"),
    ],
)
def test_the_one_thing_that_differs_is_named_and_only_where_the_text_does(now: ModelState, expected: str) -> None:
    assert verdicts(base(now)) == {expected: "changes"}
    assert verdicts(base(now, text="old")) == {expected: "no_effect"}
    (named,) = [one for one in engine_factors(base(now)) if one.verdict == "changes"]
    assert named.difference is not None
    assert "past cache, trimming and routing" in named.note


def test_another_adapter_is_another_model() -> None:
    model, one, other = "0011223344556677", "1a1a1a1a1a1a1a1a", "2b2b2b2b2b2b2b2b"
    then = ModelState(model=model + one, quantization="none/f32/f32", template="t1", engine="e1")
    now = ModelState(model=model + other, quantization="none/f32/f32", template="t1", engine="e1")
    (named,) = [found for found in engine_factors(base(now, then=then)) if found.verdict == "changes"]
    assert named.factor == "model"
    assert (named.then, named.now) == (f"{model} with adapter {one}", f"{model} with adapter {other}")


def test_digests_that_changed_together_are_both_reported_as_inseparable() -> None:
    both = base(ModelState(model="m2", quantization="int8/f32/f32", template="t1", engine="e2"))
    assert verdicts(both) == {"quantization": "changes", "model": "changes"}
    assert all("together" in one.note for one in engine_factors(both) if one.verdict == "changes")


def test_a_new_text_without_any_change_is_not_blamed_on_the_model() -> None:
    assert verdicts(base(THEN)) == {"engine": "unknown"}
    assert verdicts(base(THEN, text="old")) == {}


def test_servers_of_others_have_a_fingerprint_or_nothing() -> None:
    one, other = ModelState(fingerprint="fp_1"), ModelState(fingerprint="fp_2")
    assert verdicts(base(other, then=one)) == {"quantization": "unknown", "model": "changes"}
    assert verdicts(base(one, then=one)) == {"quantization": "unknown", "model": "unknown"}
    assert verdicts(base(one, then=one, text="old")) == {"quantization": "unknown"}
    assert verdicts(base(NOTHING_STATED, then=NOTHING_STATED)) == {"quantization": "unknown", "model": "unknown"}
