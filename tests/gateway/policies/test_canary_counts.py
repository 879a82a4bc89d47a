"""What is counted for each side of a canary."""

from __future__ import annotations

from gateway.policies.canary import CanaryTrial
from gateway.policies.canary_counts import CanaryCounts
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Outcome, Stage


def counting() -> CanaryCounts:
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
    return CanaryCounts(canary, began_at=0.0)


def test_audits_count_for_the_side_that_gave_the_answer_and_for_nobody_elses() -> None:
    counts = counting()
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


def test_requests_from_before_the_trial_count_for_neither_side() -> None:
    """Requests of an earlier trial of the same document may end late, and in errors."""
    counts = counting()
    for revision, started_at in (("old", -1.0), ("new", -1.0), ("new", 1.0)):
        record = RequestRecord("r", started_at)
        record.tenant, record.policy, record.outcome = "shop", revision, Outcome.FAILED
        counts.note(record)
    old, new = counts.published.old["error"], counts.published.new["error"]
    assert ((old.events, old.count), (new.events, new.count)) == ((0, 0), (1, 1))


def rejected(revision: str, status: int, *, was_read: bool = True) -> RequestRecord:
    record = RequestRecord("r", 0.0)
    record.tenant, record.policy, record.outcome, record.status = "shop", revision, Outcome.REJECTED, status
    if was_read:
        record.timeline.mark(Stage.READ, 0.1)
    return record


def test_what_the_policy_rejects_counts_among_all_requests_of_its_side() -> None:
    counts = counting()
    for status in (400, 403, 404):
        counts.note(rejected("new", status))
        counts.note(rejected("old", status))
    answered = RequestRecord("r", 0.0)
    answered.tenant, answered.policy, answered.outcome = "shop", "new", Outcome.COMPLETED
    counts.note(answered)
    old, new = counts.published.old["rejected"], counts.published.new["rejected"]
    assert ((old.events, old.count), (new.events, new.count)) == ((3, 3), (3, 4))
    assert (counts.published.new["error"].count, counts.published.new["shed"].count) == (1, 1)


def test_what_no_policy_could_have_served_counts_for_no_side() -> None:
    counts = counting()
    counts.note(rejected("old", 400, was_read=False))  # before it was clear whose it would be
    counts.note(rejected("new", 429))
    assert not counts.has_changed
    assert (counts.published.old["rejected"].count, counts.published.new["rejected"].count) == (0, 0)
