"""Canaries: start canary trials, watch them with the other replicas, and end them by hand, evidence or time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from gateway.access.audit_log import AuditBroken, AuditLog
from gateway.access.identity import SYSTEM, Identity
from gateway.policies.canary import CanaryState, CanaryTrial
from gateway.policies.canary_counts import CanaryCounts, Published, add_up, slow_above_ms
from gateway.policies.errors import CanaryRunning, InvalidPolicy, NotSeparable, RevisionConflict
from gateway.policies.history import SPACE
from gateway.policies.policy_file import revision_of
from gateway.policies.revision import Revision
from gateway.policies.stored import StoredPolicy
from gateway.store.base import Store, StoreUnavailable
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Clock
from routing_policies.policy.diff import diff
from routing_policies.policy.document import Policy
from routing_policies.trial import TrialFinding, TrialGuard, evaluate_trial, is_worse, shared_changes

KEY: Final = "canary"
COUNTS: Final = "canary"
PAST: Final = "past-canary/"
WATCH_S: Final = 0.5
MAX_PAST: Final = 20
_COUNTS_TTL_S: Final = 7 * 86_400.0

OnTrial = Callable[[Policy | None, CanaryTrial | None], None]
"""Callback with the policy and the trial in force beside the head from now on, or None for both."""


class Canaries:
    """Canary trials of one process; methods raise StoreUnavailable.

    Every process decides by the counts of all replicas, and the first one to decide ends the trial.
    """

    def __init__(
        self,
        store: Store,
        stored: StoredPolicy,
        audit: AuditLog,
        *,
        holder: str,
        on_trial: OnTrial,
        report: Callable[[BaseException], None],
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        """Follow the trial in the store; `report` receives errors that should never occur."""
        self._store = store
        self._stored = stored
        self._audit = audit
        self._holder = holder
        self._on_trial = on_trial
        self._report = report
        self._clock = clock
        self._new_id = new_id
        self._version = 0
        self._counts: CanaryCounts | None = None
        self.current: CanaryTrial | None = None
        """Running trial; None without one."""
        stored.others[KEY] = self.take

    def note(self, record: RequestRecord) -> None:
        """Count a finished request."""
        if self._counts is not None:
            self._counts.note(record)

    def note_wrong(self, request_id: str, tenant: str) -> bool:
        """Count an answer that feedback marked as wrong; return False when no running trial counts it."""
        return self._counts is not None and self._counts.note_wrong(request_id, tenant)

    def note_audit(self, request_id: str, tenant: str, verdict: Literal["right", "wrong", "unknown"]) -> None:
        """Count the verdict of an audit."""
        if self._counts is not None and verdict != "unknown":
            self._counts.note_audit(request_id, tenant, is_wrong=verdict == "wrong")

    async def start(
        self,
        document: str,
        who: Identity,
        *,
        reason: str,
        if_match: str,
        percent: int,
        tenants: tuple[str, ...] | None,
        promote_after_s: float | None,
        guard: TrialGuard,
    ) -> CanaryTrial:
        """Start a trial of `document` against the newest revision, whose entity tag must be `if_match` (or `*`).

        Raises InvalidPolicy, RevisionConflict, CanaryRunning, or NotSeparable for revisions that exclude each other.
        """
        await self._stored.catch_up()
        base = self._stored.newest
        if if_match not in ("*", base.etag):
            raise RevisionConflict(if_match, base)
        if self.current is not None:
            raise CanaryRunning
        await asyncio.to_thread(self._require_separable, base, document)
        canary = CanaryTrial(
            id=self._new_id(),
            state="running",
            base=base.as_line(),
            revision=revision_of(document.encode()),
            document=document,
            percent=percent,
            tenants=tenants,
            author=who.name,
            reason=reason,
            at=self._stored.wall(),
            promote_after_s=promote_after_s,
            guard=guard,
        )
        detail = {"revision": canary.revision, "percent": percent, "tenants": tenants, "base": base.number}
        line = await self._audit.record(who, "canary.start", canary.id, reason=reason, detail=detail)
        if await self._store.put(SPACE, KEY, msgspec.json.encode(canary), expect=self._version) is None:
            await self._audit.withdraw(who, line, "canary.start", canary.id)
            raise CanaryRunning
        await self._stored.catch_up()
        return canary

    async def stop(self, who: Identity, reason: str) -> CanaryTrial | None:
        """Stop the running trial and return it, or None without one."""
        findings = await self._findings()
        return await self._end("stopped", who, reason, findings)

    async def promote(self, who: Identity, reason: str) -> Revision | None:
        """Make the running trial's document the revision in force, or return None; raises as `StoredPolicy.apply`."""
        canary, findings = self.current, await self._findings()
        if canary is None:
            return None
        line = await self._audit.record(who, "canary.promote", canary.id, reason=reason)
        try:
            revision = await self._stored.apply(
                canary.document,
                author=who.name,
                reason=reason,
                if_match=canary.base["etag"],
                kind="promote",
                evidence=_evidence(canary, findings),
            )
        except (RevisionConflict, InvalidPolicy):
            await self._audit.withdraw(who, line, "canary.promote", canary.id)
            raise
        await self._end("promoted", who, reason, findings)
        return revision

    async def past(self) -> list[CanaryTrial]:
        """Return the latest ended trials, newest first."""
        keys = await self._past_keys()
        found = [await self._store.get(SPACE, key) for key in keys[: -MAX_PAST - 1 : -1]]
        return [msgspec.json.decode(entry.value, type=CanaryTrial) for entry in found if entry is not None]

    async def shown(self) -> CanaryTrial | None:
        """Return the running trial with its evidence so far, or None."""
        canary = self.current
        if canary is None:
            return None
        return msgspec.structs.replace(canary, evidence=_evidence(canary, await self._findings()))

    async def take(self, value: bytes | None) -> None:
        """Adopt the state of the trial in the store."""
        entry = await self._store.get(SPACE, KEY)
        self._version = 0 if entry is None else entry.version
        try:
            canary = None if entry is None else msgspec.json.decode(entry.value, type=CanaryTrial)
        except msgspec.DecodeError as error:  # damaged, or of a newer version: as a document that cannot be served
            self._put(None, None)
            self._report(error)
            return
        if canary is None or not canary.is_running:
            self._put(None, None)
            return
        if self.current is not None and self.current.id == canary.id and self._counts is not None:
            self.current = self._counts.canary = canary  # it has its slowness limit now
            return
        try:
            policy = await asyncio.to_thread(self._stored.reader.read, canary.document)
            self._put(policy, canary)
        except (InvalidPolicy, ValueError) as error:  # this replica cannot serve it, so its traffic stays on the head
            self._put(None, None)
            self._report(error)

    async def run(self) -> None:
        """Publish counts, evaluate and decide, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self.current is not None:
                with suppress(StoreUnavailable, AuditBroken):  # the next round tries again
                    await self.watch()

    async def watch(self) -> None:
        """Publish counts, evaluate and decide once."""
        canary, counts = self.current, self._counts
        if canary is None or counts is None:
            return
        if counts.has_changed:
            counts.has_changed = False
            name = f"{canary.id}/{self._holder}"
            await self._store.put(COUNTS, name, msgspec.json.encode(counts.published), ttl_s=_COUNTS_TTL_S)
        total = await self._total(canary)
        newest = self._stored.newest
        if newest.etag != canary.base["etag"] and newest.kind == "promote" and newest.document == canary.document:
            # The promoting replica wrote the revision but has not ended the trial yet.
            await self._end("promoted", _by(newest.author), newest.reason, _evaluated(canary, total))
        elif newest.etag != canary.base["etag"]:
            await self._end("stopped", SYSTEM, "the revision beside it was replaced", _evaluated(canary, total))
        elif canary.slow_above_ms is None and (limit := slow_above_ms(total.samples)) is not None:
            await self._write(msgspec.structs.replace(canary, slow_above_ms=limit))
        else:
            await self._decide(canary, _evaluated(canary, total))

    async def _decide(self, canary: CanaryTrial, findings: tuple[TrialFinding, ...]) -> None:
        if is_worse(findings):
            message = "; ".join(_stated(finding) for finding in findings if finding.verdict == "worse")
            await self._end("rolled_back", SYSTEM, message, findings)
        elif canary.promote_after_s is not None and self._stored.wall() >= canary.at + canary.promote_after_s:
            seen = max(finding.new.count for finding in findings)
            if seen >= canary.guard.min_requests:
                with suppress(RevisionConflict):  # another replica was faster
                    await self.promote(SYSTEM, f"no worse after {canary.promote_after_s:g} s and {seen} requests")

    async def _end(
        self, state: CanaryState, who: Identity, why: str, findings: tuple[TrialFinding, ...]
    ) -> CanaryTrial | None:
        canary = self.current
        if canary is None:
            return None
        ended = msgspec.structs.replace(
            canary,
            state=state,
            evidence=_evidence(canary, findings),
            ended_at=self._stored.wall(),
            ended_by=who.name,
            why=why,
        )
        if not await self._write(ended):
            return None  # another replica has ended it
        await self._remember(ended)
        actions: dict[CanaryState, Literal["canary.stop", "canary.rolled_back"]]
        actions = {"stopped": "canary.stop", "rolled_back": "canary.rolled_back"}
        if state in actions:
            detail = {"revision": ended.revision, "metrics": ended.evidence["metrics"]}
            await self._audit.record(who, actions[state], ended.id, reason=why, detail=detail)
        return ended

    async def _remember(self, ended: CanaryTrial) -> None:
        """Add an ended trial behind all others, whatever the clock says, and delete the oldest beyond MAX_PAST."""
        keys = await self._past_keys()
        last = float(keys[-1].removeprefix(PAST)) if keys else 0.0
        await self._store.put(SPACE, f"{PAST}{max(ended.at, last + 0.001):015.3f}", msgspec.json.encode(ended))
        for key in keys[: 1 - MAX_PAST]:
            await self._store.delete(SPACE, key)

    async def _past_keys(self) -> list[str]:
        """Return the keys of all ended trials, oldest first."""
        found: list[str] = []
        while True:
            keys = await self._store.keys(SPACE, after=found[-1] if found else PAST)
            found += [key for key in keys if key.startswith(PAST)]
            if not keys or not keys[-1].startswith(PAST):
                return found

    async def _write(self, canary: CanaryTrial) -> bool:
        """Write the trial; return False when another replica has changed it since it was read."""
        written = await self._store.put(SPACE, KEY, msgspec.json.encode(canary), expect=self._version)
        await self._stored.catch_up()
        return written is not None

    def _put(self, policy: Policy | None, canary: CanaryTrial | None) -> None:
        self._on_trial(policy, canary)
        self.current = canary
        self._counts = None if canary is None else CanaryCounts(canary, began_at=self._clock())

    def _require_separable(self, base: Revision, document: str) -> None:
        changes = diff(self._stored.reader.load(base.document), self._stored.reader.read(document))
        shared = shared_changes(changes)
        if shared:
            message = "; ".join(change.text for change in shared[:5])
            raise NotSeparable(
                f"{message}: queues, permits and quotas are shared by all traffic, so this needs an apply"
            )
        if not changes:
            raise NotSeparable("nothing changes")

    async def _findings(self) -> tuple[TrialFinding, ...]:
        canary = self.current
        return () if canary is None else _evaluated(canary, await self._total(canary))

    async def _total(self, canary: CanaryTrial) -> Published:
        mine = self._counts.published if self._counts is not None else None
        found = [] if mine is None else [mine]
        prefix = f"{canary.id}/"
        for name in await self._store.keys(COUNTS, after=prefix):
            if name.startswith(prefix) and not name.endswith(self._holder):
                entry = await self._store.get(COUNTS, name)
                found += [] if entry is None else [msgspec.json.decode(entry.value, type=Published)]
        return add_up(found)


def _by(name: str) -> Identity:
    return msgspec.structs.replace(SYSTEM, name=name)


def _evaluated(canary: CanaryTrial, total: Published) -> tuple[TrialFinding, ...]:
    return evaluate_trial(total.old, total.new, canary.guard)


def _evidence(canary: CanaryTrial, findings: tuple[TrialFinding, ...]) -> dict[str, Any]:
    return {
        "canary": canary.id,
        "slow_above_ms": canary.slow_above_ms,
        "metrics": [msgspec.to_builtins(finding) for finding in findings],
    }


def _stated(finding: TrialFinding) -> str:
    new, old = finding.new, finding.old
    return (
        f"{finding.name}: {new.events} of {new.count} (at least {new.low:.1%}) against "
        f"{old.events} of {old.count} (at most {old.high:.1%})"
    )
