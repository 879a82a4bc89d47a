"""Findings as JSON: what the admin API sends can be read back, and words outside the vocabulary cannot."""

from __future__ import annotations

import msgspec
import pytest

from gateway.diagnosis.finding import Compared, Diagnosis, Finding, FindingEvidence, StageTime

DIAGNOSIS = Diagnosis(
    seconds=5.0,
    num_requests=3.0,
    findings=(
        Finding(
            stage="queue",
            cause="limit",
            summary="Permits are all out.",
            evidence=(FindingEvidence("in flight", 4.0, None, "bound", "count"),),
            lever="Raise them.",
        ),
    ),
    conclusion="",
    stages={"queue": StageTime(0.5, 0.0)},
    prompts=(Compared(key="0-256", num_requests=3.0),),
    deployments=(),
    tenants=(Compared(key="shop", token_ratio=1.0),),
)


def test_a_diagnosis_comes_back_from_its_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(DIAGNOSIS), type=Diagnosis) == DIAGNOSIS


@pytest.mark.parametrize(("member", "word"), [("stage", "kitchen"), ("cause", "bad_luck")])
def test_a_word_that_no_page_knows_is_refused(member: str, word: str) -> None:
    document = msgspec.to_builtins(DIAGNOSIS)
    document["findings"][0][member] = word
    with pytest.raises(msgspec.ValidationError, match=rf"findings\[0\]\.{member}"):
        msgspec.convert(document, Diagnosis)
