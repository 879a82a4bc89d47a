"""Recorded requests under two policies: what moves, what stays, and what the model cannot know."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.policies.replaying import ReplayFailed, ReplayRequest, compare_policies, replay
from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy
from routing_policies.replay import RecordedRequest

BASE = """schema_version: 1
deployments: [{id: small, url: 'http://s', model: s}, {id: large, url: 'http://l', model: l}]
routes: [{id: main, match: {models: [auto]%s}, select: {policy: first_available, candidates: [%s]}}%s]
"""


def text(candidates: str = "small, large", more: str = "", when: str = "") -> str:
    return BASE % (when, candidates, more)


def policy(*parts: str, **named: str) -> Policy:
    return load_policy(text(*parts, **named), source="policy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten requests that the small deployment answered."""
    lines = [
        RecordedRequest(
            at=float(number), tenant="shop", model="auto", question=f"{number:032x}", route="main", deployment="small"
        )
        for number in range(10)
    ]
    (tmp_path / "000000000000001-h.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return tmp_path


def test_the_same_policy_moves_nobody(folder: Path) -> None:
    found = compare_policies(policy(), policy(), folder)
    assert (found["num_requests"], found["from"], found["to"]) == (10, 0.0, 9.0)
    assert found["moved"] == found["deployments"] == []


def test_another_first_candidate_takes_all_of_them(folder: Path) -> None:
    found = compare_policies(policy(), policy("large, small"), folder)
    assert found["moved"] == []
    assert found["deployments"] == [{"from": "small", "to": "large", "count": 10}]


def test_a_condition_on_texts_that_were_not_recorded_is_noted(folder: Path) -> None:
    evaluated = policy(when=", when: 'request.text.startsWith(\"refund\")'")
    assert any("request.text" in note for note in compare_policies(policy(), evaluated, folder)["notes"])
    assert compare_policies(policy(), policy(), folder)["notes"] == []


def test_an_empty_recording_compares_nothing(tmp_path: Path) -> None:
    found = compare_policies(policy(), policy("large"), tmp_path)
    assert (found["num_requests"], found["from"], found["deployments"]) == (0, None, [])


async def test_in_a_process_of_its_own_the_result_is_the_same_and_a_failure_has_its_reason(folder: Path) -> None:
    question = ReplayRequest(old=text(), new=text("large"), variables={}, folder=str(folder))
    found = await replay(question)
    expected = compare_policies(policy(), policy("large"), folder)
    assert found["deployments"] == expected["deployments"]
    assert found["took_s"] > 0.0
    with pytest.raises(ReplayFailed, match="deployments"):
        await replay(ReplayRequest(old="nonsense: 1\n", new=text(), variables={}, folder=str(folder)))
