"""ExactCache: cached responses by request, and answers under way that identical requests share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from gateway.cache.exact.cache_lookup import CacheIdentity, CacheLookup
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_tier import ExactTier, Selection
from gateway.cache.exact.fingerprint import Fingerprint, fingerprint, scope_of, stream_shape
from gateway.cache.exact.needs import needs_of
from gateway.cache.exact.quarantine import QUARANTINE_S, Quarantines, digest_of
from gateway.cache.exact.recent_answers import RecentAnswers
from gateway.cache.exact.shared_answer import SharedAnswers
from gateway.cache.exact.volatile import owner_of, volatile_reason
from gateway.chat.request import ChatRequest
from gateway.telemetry.records.cache_reasons import ExactReason
from gateway.telemetry.records.record import CacheResult, Usage
from gateway.util.fair_bounded_dict import FairRecent

STALE_S: Final = 24 * 3600.0
"""Time for which an expired entry is still held, to be served where a new response would come too late."""


def is_current(entry: CacheEntry, ttl_s: float, now: float) -> bool:
    """Return whether an entry is fresh by its own lifetime and by that of the requesting route."""
    return now < min(entry.expires_at - STALE_S, entry.created_at + ttl_s)


_MAX_HITS_KNOWN: Final = 10_000
"""Hits whose request ids feedback may name."""

_OFF: Final = CacheLookup(CacheResult.BYPASS, "policy")


class Others(Protocol):
    """The other processes that share the cache; no method waits or fails."""

    def stored(self, entry: CacheEntry, fresh_until: float) -> None:
        """Share a new entry."""
        ...

    def quarantined(self, exact: bytes, digest: bytes, until: float) -> None:
        """Share that a response is wrong."""
        ...

    def evicted(self, exact: bytes) -> None:
        """Share that an entry was evicted here."""
        ...

    def purged(self, selection: Selection) -> None:
        """Share a purge."""
        ...

    def doubted(self, request_id: str, tenant: str) -> bool:
        """Share feedback on a response that this process does not have; return False without other processes."""
        ...


class ExactCache:
    """The exact tier, and one upstream call for identical requests in flight."""

    def __init__(
        self,
        tier: ExactTier,
        *,
        wall: Callable[[], float],
        on_taken: Callable[[CacheEntry], None] = lambda entry: None,
        on_wrong: Callable[[str, CacheEntry], None] = lambda request_id, entry: None,
        on_purged: Callable[[Selection], None] = lambda selection: None,
    ) -> None:
        """Make an empty cache over a tier.

        Args:
            tier: The entries.
            wall: Seconds since 1970, since entries outlive processes.
            on_taken: Gets entries that other processes made and sent with a vector.
            on_wrong: Gets the request id of each response that was called wrong, and the entry behind it.
            on_purged: Gets every purge.
        """
        self._on_purged = on_purged
        self._on_wrong = on_wrong
        self._on_taken = on_taken
        self.tier = tier
        self._shared = SharedAnswers()
        self._wall = wall
        self._wrong = Quarantines()
        self._recent = RecentAnswers()
        self._others: Others | None = None
        self._hits: FairRecent[str, str] = FairRecent(_MAX_HITS_KNOWN)
        """Request ids of hits with the ids of their entries."""
        self.on_doubt: Callable[[str, str], object] = lambda request_id, tenant: None
        """Callback for feedback that came to another process; its response may not be stored anywhere."""

    @property
    def num_entries(self) -> int:
        """Number of entries."""
        return len(self.tier)

    @property
    def num_bytes(self) -> int:
        """Memory of all entries."""
        return self.tier.num_bytes

    def unix_time(self) -> int:
        """Return the time in whole seconds since 1970."""
        return int(self._wall())

    def share_with(self, others: Others) -> None:
        """Share what happens here from now on."""
        self._others = others

    def lookup(self, request: ChatRequest, wanted: CacheIdentity) -> CacheLookup:
        """Return a hit, an answer under way, or a miss with what it takes to store the response."""
        if wanted.rule.mode == "off":
            return _OFF
        if wanted.control.no_store:
            return CacheLookup(CacheResult.BYPASS, "no_store")
        barred = volatile_reason(request, wanted.rule, wanted.tenant)
        if barred is not None:
            return CacheLookup(CacheResult.BYPASS, barred)
        key = self._key(request, wanted)
        if key is None:
            return CacheLookup(CacheResult.BYPASS, "no_scope")
        if wanted.control.no_cache:
            return CacheLookup(CacheResult.BYPASS, "no_cache", key=key, wanted=wanted)
        now = self._wall()
        if self._is_regenerating(wanted, key.exact, now):
            return CacheLookup(CacheResult.BYPASS, "regenerate", key=key, wanted=wanted)
        found, needs = self.tier.find(key.exact, now, max_age_s=wanted.control.max_age_s), needs_of(request)
        reason: ExactReason = "new" if found is None else "stale"
        if found is not None and is_current(found, wanted.rule.ttl_s, now):
            if needs.are_met_by(found.answer):
                self._note_answer(wanted, key.exact, now)
                return self._hit(found, now)
            reason = "lacking"
        lookup = CacheLookup(CacheResult.MISS, reason, key=key, wanted=wanted)
        under_way = self._shared.find(key.exact)
        if under_way is None:
            lookup.leading = self._shared.lead(key.exact, stream_shape(request))
        elif needs.may_follow(under_way.shape):
            lookup.following = under_way
        return lookup

    def peek(self, request: ChatRequest, wanted: CacheIdentity) -> CacheLookup:
        """Return what `lookup` would, but count and lead nothing: a hit, or a miss with its key."""
        barred = volatile_reason(request, wanted.rule, wanted.tenant)
        key = None if wanted.rule.mode == "off" or barred is not None else self._key(request, wanted)
        if key is None:
            return CacheLookup(CacheResult.BYPASS, "policy" if wanted.rule.mode == "off" else barred or "no_scope")
        found, now = self.tier.by_exact(key.exact), self._wall()
        if (
            found is not None
            and is_current(found, wanted.rule.ttl_s, now)
            and not self.tier.is_quarantined(found.id)
            and needs_of(request).are_met_by(found.answer)
        ):
            return self._hit(found, now)
        return CacheLookup(CacheResult.MISS, "new", key=key, wanted=wanted)

    def stale(self, request: ChatRequest, wanted: CacheIdentity) -> CacheLookup | None:
        """Return a hit that may have expired up to a day ago."""
        if wanted.rule.mode == "off" or wanted.control.no_store or wanted.control.no_cache:
            return None
        key = self._key(request, wanted) if volatile_reason(request, wanted.rule, wanted.tenant) is None else None
        now = self._wall()
        found = None if key is None else self.tier.find(key.exact, now, max_age_s=wanted.control.max_age_s)
        return self._hit(found, now) if found is not None and needs_of(request).are_met_by(found.answer) else None

    def store(
        self,
        lookup: CacheLookup,
        answer: bytes | None,
        *,
        is_lasting: bool,
        request_id: str,
        deployment: str,
        usage: Usage | None,
    ) -> None:
        """Store the response unless it is None or not `is_lasting`, and give it to followers."""
        key, wanted = lookup.key, lookup.wanted
        if is_lasting and key is not None and wanted is not None and answer is not None:
            now = self._wall()
            cost = 0 if usage is None else usage.completion_tokens + usage.prompt_tokens - (usage.cached_tokens or 0)
            entry = CacheEntry(
                id=request_id,
                exact=key.exact,
                context=key.context,
                text=key.text,
                answer=answer,
                tenant=wanted.tenant,
                route=wanted.route,
                deployment=deployment,
                created_at=now,
                expires_at=now + wanted.rule.ttl_s + STALE_S,
                cost_tokens=max(0, cost),
            )
            self._note_answer(wanted, key.exact, now)
            if not self._wrong.covers(entry.exact, answer, now) and self.tier.put(entry, now):
                share = partial(self._share, fresh_until=now + wanted.rule.ttl_s)
                if lookup.on_stored is None:
                    share(entry)
                else:
                    lookup.on_stored(entry, share)
        if lookup.leading is not None:
            lookup.leading.entry_id = request_id
            lookup.leading.finish(answer)
            lookup.leading = None

    def _is_regenerating(self, wanted: CacheIdentity, exact: bytes, now: float) -> bool:
        user = wanted.regenerating_user
        return user is not None and self._recent.is_repeated(exact, user, now, wanted.rule.regenerate_window_s)

    def _note_answer(self, wanted: CacheIdentity, exact: bytes, now: float) -> None:
        if wanted.regenerating_user is not None:
            self._recent.note(exact, wanted.regenerating_user, wanted.tenant, now)

    def note_hit(self, request_id: str, entry_id: str) -> None:
        """Remember which entry answered a request, so that feedback can name it."""
        entry = self.tier.by_id(entry_id)
        if entry is not None:
            self._hits.put(request_id, entry_id, entry.tenant)

    def note_wrong(self, request_id: str, tenant: str) -> bool:
        """Quarantine the entry that a request made or was given, and every equal response from now on.

        Returns:
            False when this tenant has no such entry.
        """
        entry = self.tier.by_id(self._hits.get(request_id) or request_id)
        if entry is None or entry.tenant != tenant:
            return False
        digest, until = digest_of(entry.answer), self._wall() + QUARANTINE_S
        self.take_quarantine(entry.exact, digest, until)
        if self._others is not None:
            self._others.quarantined(entry.exact, digest, until)
        self._on_wrong(request_id, entry)
        return True

    def take_doubt(self, request_id: str, tenant: str) -> None:
        """Apply feedback that came to another process; this process may not have the response."""
        self.note_wrong(request_id, tenant)
        self.on_doubt(request_id, tenant)

    def pass_on_doubt(self, request_id: str, tenant: str) -> bool:
        """Pass on to other processes what `note_wrong` could not do; return False where there are none."""
        return self._others is not None and self._others.doubted(request_id, tenant)

    def purge(self, selection: Selection, *, dry_run: bool) -> list[CacheEntry]:
        """Return the entries covered here; they are removed, here and everywhere, unless it is a dry run."""
        covered = self.tier.purge(selection, dry_run=dry_run)
        if not dry_run:
            self._on_purged(selection)
        if not dry_run and self._others is not None:
            self._others.purged(selection)
        return covered

    def evicted(self, entry: CacheEntry) -> None:
        """Share that the tier evicted an entry."""
        if self._others is not None:
            self._others.evicted(entry.exact)

    # Events of other processes.

    def take(self, entry: CacheEntry) -> None:
        """Store an entry of another process."""
        now = self._wall()
        if self._wrong.covers(entry.exact, entry.answer, now):
            return
        resting = msgspec.structs.replace(entry, vector=b"", encoder="") if entry.vector else entry
        if self.tier.take(resting, now) and entry.vector:
            self._on_taken(entry)

    def take_purge(self, selection: Selection) -> None:
        """Apply a purge that came to another process."""
        self.tier.purge(selection, dry_run=False)
        self._on_purged(selection)

    def take_quarantine(self, exact: bytes, digest: bytes, until: float) -> None:
        """Quarantine a response that was called wrong, here or elsewhere."""
        entry = self.tier.by_exact(exact)
        self._wrong.add(exact, digest, until, "" if entry is None else entry.tenant)
        if entry is not None and digest_of(entry.answer) == digest:
            self.tier.quarantine(entry.id)

    def _share(self, entry: CacheEntry, fresh_until: float) -> None:
        if self._others is not None:
            self._others.stored(entry, fresh_until)

    def _key(self, request: ChatRequest, wanted: CacheIdentity) -> Fingerprint | None:
        rule = wanted.rule
        scope = scope_of(owner_of(request, rule, wanted.tenant), tenant=wanted.tenant, user=request.fields.user)
        if scope is None:
            return None
        return fingerprint(request, scope=scope, candidates=wanted.candidates, history=rule.history)

    def _hit(self, entry: CacheEntry, now: float) -> CacheLookup:
        age_s = max(0.0, now - entry.created_at)
        return CacheLookup(CacheResult.HIT_EXACT, "exact", answer=entry.answer, age_s=age_s, entry_id=entry.id)
