"""What is counted for each side of a canary."""

from __future__ import annotations

from gateway.policies.canary import CanaryTrial
from gateway.policies.canary_counts import CanaryCounts
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Outcome


def test_audits_count_for_the_side_that_gave_the_answer_and_for_nobody_elses() -> None:
    canary = CanaryTrial(
        id="c1",
        state="running",
        base={"revision": "old"},
        revision="new",
        document="",
        at=0.0,
        percent=10,
        tenants=None,
        author="a",
        reason="r",
    )
    counts = CanaryCounts(canary)
    for request_id, revision in (("r1", "old"), ("r2", "new"), ("r3", "another")):
        record = RequestRecord(request_id, 0.0)
        record.tenant, record.policy, record.outcome = "shop", revision, Outcome.CACHED
        counts.note(record)
    counts.note_audit("r1", "shop", is_wrong=False)
    counts.note_audit("r2", "shop", is_wrong=True)
    counts.note_audit("r2", "bank", is_wrong=True)
    counts.note_audit("r3", "shop", is_wrong=True)
    old, new = counts.published.old["audit"], counts.published.new["audit"]
    assert ((old.events, old.count), (new.events, new.count)) == ((0, 1), (1, 1))
