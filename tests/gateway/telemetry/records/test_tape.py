"""Recorded requests: bounded in size, without text unless configured, and readable after a crash."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.records.tape import Tape, read_tape
from gateway.timeline import Outcome
from routing_policies.decision import Decision
from routing_policies.exploration.draw import with_exploration
from routing_policies.policy.selection import Explore
from routing_policies.profile import profile_for
from routing_policies.replay import RecordedRequest
from routing_policies.views import FIRST_ATTEMPT, DeploymentView
from tests.gateway.admin.handlers.test_plan import tape
from tests.gateway.stack import chat, running


async def test_text_is_recorded_only_where_it_is_requested(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"telemetry.recorder.mode": "text"}) as stack:
        await stack.call({**chat(), "messages": [{"role": "user", "content": "remember me"}]})
    ((request,), _) = await asyncio.to_thread(read_tape, tmp_path / "recorded", 10)
    assert request.text == "remember me"


def fill(made: Tape, number: int) -> None:
    made._waiting.append(RecordedRequest(at=float(number), tenant="t", model="m", question=f"{number:032x}"))
    made.flush()


def test_a_recording_keeps_its_size_and_forgets_the_oldest(tmp_path: Path) -> None:
    now = [1e9]
    made = tape(tmp_path, now)
    for number in range(300):
        now[0] += 1
        fill(made, number)
    assert sum(path.stat().st_size for path in tmp_path.glob("*.jsonl")) <= 8_000
    saved = [request.at for request in read_tape(tmp_path, 1_000).requests]
    assert saved == sorted(saved)
    assert saved[-1] == 299
    assert len(read_tape(tmp_path, 5).requests) == 5


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    made = tape(tmp_path, [1e9])
    fill(made, 1)
    (path,) = tmp_path.glob("*.jsonl")
    with path.open("ab") as stream:
        stream.write(b'{"at": 2.0, "tena')
    assert [request.at for request in read_tape(tmp_path, 10).requests] == [1.0]


def test_equal_words_have_other_digests_on_another_machine(tmp_path: Path) -> None:
    one, two = tape(tmp_path / "one", [0.0]), tape(tmp_path / "two", [0.0])
    assert one.digest("anna") == one.digest("anna") != two.digest("anna")


def decided(request_id: str, decision: Decision, **fields: object) -> RequestRecord:
    """A finished request that was recorded, with its first routing decision."""
    record = RequestRecord(request_id, 10.0)
    record.tenant, record.route, record.deployment = "shop", "main", "large"
    record.outcome, record.sample, record.attempts = Outcome.COMPLETED, {"question": "00", "prompt_bytes": 8}, 1
    record.decisions = (decision,)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def test_the_first_choice_is_recorded_with_its_probabilities_and_who_was_ruled_out(tmp_path: Path) -> None:
    made = tape(tmp_path, [1e9])
    views = [DeploymentView(id=name, model="m", is_ready=name != "spare") for name in ("large", "small", "spare")]
    own = profile_for("first_available").decide(views, FIRST_ATTEMPT, random.Random(1))
    rule = Explore(ratio=0.5)
    drawn = next(
        decision
        for n in range(100)
        if (decision := with_exploration(own, rule, ("large", "small"), f"r{n}", is_bound=False)).deployment == "small"
    )
    waiting = Decision(deployment=None, policy="first_available", dropped={"large": "full", "small": "full"})
    made.note(decided("r1", drawn))
    made.note(decided("r2", own))
    made.note(decided("r3", waiting))
    made.note(decided("r4", own, degraded=("small-model",)))
    made.flush()
    by_id = {request.id: request for request in read_tape(tmp_path, 10).requests}
    assert (by_id["r1"].choice, by_id["r1"].deployment) == ("small", "large")  # the small one failed, say
    assert by_id["r1"].propensities == {"large": 0.75, "small": 0.25}
    assert by_id["r1"].excluded == ("spare",)
    assert (by_id["r2"].choice, by_id["r2"].propensities) == ("large", {"large": 1.0})
    assert (by_id["r3"].choice, by_id["r3"].propensities) == ("large", {"large": 1.0})
    assert (by_id["r4"].choice, by_id["r4"].propensities) == ("", {})


def test_verdicts_are_recorded_once_and_only_for_the_tenants_own_requests(tmp_path: Path) -> None:
    made = tape(tmp_path, [1e9])
    waiting = Decision(deployment=None, policy="first_available", dropped={})
    made.note(decided("r1", waiting))
    assert [made.note_wrong("r1", "shop"), made.note_wrong("r1", "shop")] == [True, True]
    assert not made.note_wrong("r1", "another")
    assert not made.note_wrong("r2", "shop")
    made.note_audit("r1", "shop", is_wrong=False)
    made.flush()
    assert [(one.verdict_of, one.by, one.is_wrong) for one in read_tape(tmp_path, 10).verdicts] == [
        ("r1", "feedback", True),
        ("r1", "audit", False),
    ]
