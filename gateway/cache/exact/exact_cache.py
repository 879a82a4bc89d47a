"""ExactCache: answers given before, found by what was asked, and answers under way that others may share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from gateway.cache.exact.answers import CacheLookup
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_tier import ExactTier, Selection
from gateway.cache.exact.fingerprint import Fingerprint, fingerprint, scope_of, stream_shape
from gateway.cache.exact.needs import needs_of
from gateway.cache.exact.quarantine import QUARANTINE_S, Quarantines, digest_of
from gateway.cache.exact.shared_answer import SharedAnswers
from gateway.cache.exact.wanted import CacheIdentity
from gateway.chat.request import ChatRequest
from gateway.telemetry.records.cache_reasons import ExactReason
from gateway.telemetry.records.record import CacheResult, Usage
from gateway.util.fair_bounded_dict import FairRecent

STALE_S: Final = 24 * 3600.0
"""How long an answer past its time is remembered, for a moment in which a new one would come too late."""


def is_current(entry: CacheEntry, ttl_s: float, now: float) -> bool:
    """Whether it is not past its time: neither the one it was kept for, nor that of the route that asks, now."""
    return now < min(entry.expires_at - STALE_S, entry.created_at + ttl_s)


_MAX_HITS_KNOWN: Final = 10_000
"""Hits whose request ids feedback may name."""

_OFF: Final = CacheLookup(CacheResult.BYPASS, "policy")


class Others(Protocol):
    """The other processes that share the cache; telling them never waits and never fails."""

    def kept(self, entry: CacheEntry, fresh_until: float) -> None:
        """A new answer."""
        ...

    def quarantined(self, exact: bytes, digest: bytes, until: float) -> None:
        """An answer is wrong."""
        ...

    def evicted(self, exact: bytes) -> None:
        """There is no room for it here any more."""
        ...

    def purged(self, selection: Selection) -> None:
        """Operators threw something out."""
        ...

    def doubted(self, request_id: str, tenant: str) -> bool:
        """Feedback on an answer that this process does not know; False: there is nobody to tell."""
        ...


class ExactCache:
    """The exact tier, and one upstream call for identical requests in flight."""

    def __init__(
        self,
        tier: ExactTier,
        *,
        wall: Callable[[], float],
        on_taken: Callable[[CacheEntry], None] = lambda entry: None,
        on_wrong: Callable[[str], None] = lambda request_id: None,
        on_purged: Callable[[Selection], None] = lambda selection: None,
    ) -> None:
        """`wall` tells seconds since 1970: entries outlive processes; `on_taken` hears of entries that other processes
        made and sent with a vector, `on_wrong` of answers that were called wrong, `on_purged` of every purge."""
        self._on_purged = on_purged
        self._on_wrong = on_wrong
        self._on_taken = on_taken
        self._tier = tier
        self._shared = SharedAnswers()
        self._wall = wall
        self._wrong = Quarantines()
        self._others: Others | None = None
        self._hits: FairRecent[str, str] = FairRecent(_MAX_HITS_KNOWN)
        """The request that was answered from the cache → the entry that answered it."""
        self.on_doubt: Callable[[str, str], object] = lambda request_id, tenant: None
        """Told of feedback that came to another process; the answer may be one that nobody keeps."""

    @property
    def num_entries(self) -> int:
        """Answers kept."""
        return len(self._tier)

    @property
    def num_bytes(self) -> int:
        """What they take up."""
        return self._tier.num_bytes

    @property
    def is_full(self) -> bool:
        """Whether what comes next makes something else go."""
        return self._tier.is_full

    def share_with(self, others: Others) -> None:
        """From now on tell them what happens here."""
        self._others = others

    def lookup(self, request: ChatRequest, wanted: CacheIdentity) -> CacheLookup:
        """A kept answer, an answer under way, or what has to be known to keep the one that comes."""
        if wanted.rule.mode == "off":
            return _OFF
        if wanted.control.no_store:
            return CacheLookup(CacheResult.BYPASS, "no_store")
        key = self._key(request, wanted)
        if key is None:
            return CacheLookup(CacheResult.BYPASS, "no_scope")
        if wanted.control.no_cache:
            return CacheLookup(CacheResult.BYPASS, "no_cache", key=key, wanted=wanted)
        now = self._wall()
        found, needs = self._tier.find(key.exact, now, max_age_s=wanted.control.max_age_s), needs_of(request)
        reason: ExactReason = "new" if found is None else "stale"
        if found is not None and is_current(found, wanted.rule.ttl_s, now):
            if needs.are_met_by(found.answer):
                return self._hit(found, now)
            reason = "lacking"
        lookup = CacheLookup(CacheResult.MISS, reason, key=key, wanted=wanted)
        under_way = self._shared.find(key.exact)
        if under_way is None:
            lookup.leading = self._shared.lead(key.exact, stream_shape(request))
        elif needs.may_follow(under_way.shape):
            lookup.following = under_way
        return lookup

    def stale(self, request: ChatRequest, wanted: CacheIdentity) -> CacheLookup | None:
        """A kept answer past its time by up to a day."""
        if wanted.rule.mode == "off" or wanted.control.no_store or wanted.control.no_cache:
            return None
        key = self._key(request, wanted)
        now = self._wall()
        found = None if key is None else self._tier.find(key.exact, now, max_age_s=wanted.control.max_age_s)
        return self._hit(found, now) if found is not None and needs_of(request).are_met_by(found.answer) else None

    def keep(
        self,
        lookup: CacheLookup,
        answer: bytes | None,
        *,
        is_lasting: bool,
        request_id: str,
        deployment: str,
        usage: Usage | None,
    ) -> None:
        """Keep the answer, and give it to those who wait for it."""
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
            if not self._wrong.covers(entry.exact, answer, now) and self._tier.keep(entry, now):
                share = partial(self._share, fresh_until=now + wanted.rule.ttl_s)
                if lookup.on_kept is None:
                    share(entry)
                else:
                    lookup.on_kept(entry, share)
        if lookup.leading is not None:
            lookup.leading.entry_id = request_id
            lookup.leading.finish(answer)
            lookup.leading = None

    def note_hit(self, request_id: str, entry_id: str) -> None:
        """Remember which entry answered this request, so that feedback can name it."""
        entry = self._tier.by_id(entry_id)
        if entry is not None:
            self._hits.put(request_id, entry_id, entry.tenant)

    def note_wrong(self, request_id: str, tenant: str) -> bool:
        """The answer of this request was wrong: quarantine the entry behind it, its own or the one that it was given,
        and keep no answer again that says the same. False when there is none of this tenant."""
        entry = self._tier.by_id(self._hits.get(request_id) or request_id)
        if entry is None or entry.tenant != tenant:
            return False
        digest, until = digest_of(entry.answer), self._wall() + QUARANTINE_S
        self.take_quarantine(entry.exact, digest, until)
        if self._others is not None:
            self._others.quarantined(entry.exact, digest, until)
        self._on_wrong(request_id)
        return True

    def take_doubt(self, request_id: str, tenant: str) -> None:
        """Feedback came to another process, which may not know the answer."""
        self.note_wrong(request_id, tenant)
        self.on_doubt(request_id, tenant)

    def pass_on_doubt(self, request_id: str, tenant: str) -> bool:
        """Ask the other processes to do what `note_wrong` could not; False where there are none."""
        return self._others is not None and self._others.doubted(request_id, tenant)

    def purge(self, selection: Selection, *, dry_run: bool) -> list[CacheEntry]:
        """What the selection covers here; removed, here and everywhere, unless it is a dry run."""
        covered = self._tier.purge(selection, dry_run=dry_run)
        if not dry_run:
            self._on_purged(selection)
        if not dry_run and self._others is not None:
            self._others.purged(selection)
        return covered

    def evicted(self, entry: CacheEntry) -> None:
        """The tier had no room for it any more."""
        if self._others is not None:
            self._others.evicted(entry.exact)

    # What other processes tell.

    def holds(self, exact: bytes) -> bool:
        """Whether there is an entry, of whatever age."""
        return exact in self._tier

    def num_hits(self, exact: bytes) -> int:
        """How often the entry was served here."""
        return self._tier.num_hits(exact)

    def take(self, entry: CacheEntry) -> None:
        """Another process keeps it."""
        now = self._wall()
        if self._wrong.covers(entry.exact, entry.answer, now):
            return
        kept = msgspec.structs.replace(entry, vector=b"", encoder="") if entry.vector else entry
        if self._tier.keep(kept, now) and entry.vector:
            self._on_taken(entry)

    def forget(self, exact: bytes) -> None:
        """It is not in the store any more."""
        self._tier.discard(exact)

    def take_purge(self, selection: Selection) -> None:
        """Operators threw it out elsewhere."""
        self._tier.purge(selection, dry_run=False)
        self._on_purged(selection)

    def take_quarantine(self, exact: bytes, digest: bytes, until: float) -> None:
        """This answer is wrong, whoever was told so."""
        self._wrong.add(exact, digest, until)
        entry = self._tier.by_exact(exact)
        if entry is not None and digest_of(entry.answer) == digest:
            self._tier.quarantine(entry.id)

    def _share(self, entry: CacheEntry, fresh_until: float) -> None:
        if self._others is not None:
            self._others.kept(entry, fresh_until)

    def _key(self, request: ChatRequest, wanted: CacheIdentity) -> Fingerprint | None:
        scope = scope_of(wanted.rule.scope, tenant=wanted.tenant, user=request.fields.user)
        if scope is None:
            return None
        return fingerprint(request, scope=scope, candidates=wanted.candidates, history=wanted.rule.history)

    def _hit(self, entry: CacheEntry, now: float) -> CacheLookup:
        age_s = max(0.0, now - entry.created_at)
        return CacheLookup(CacheResult.HIT_EXACT, "exact", answer=entry.answer, age_s=age_s, entry_id=entry.id)
