"""AuditRegistry: the audits that this process has seen, by request and by entry; bounded, and shared by tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gateway.cache.audit.audit_record import AuditRecord
from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.similarity.decision import EntryAudits
from gateway.util.fair_bounded_dict import FairRecent

MAX_RECORDS: Final = 20_000
MAX_LISTED: Final = 1000
"""Number of records among which reviewers see the newest."""


class AuditRegistry:
    """Audits by request and by entry. Time is passed in. A record replaces an earlier one of its id."""

    __slots__ = ("_bound_of", "_by_exact", "_on_level", "_records", "_route_stats")

    def __init__(
        self,
        route_stats: RouteStatsTable,
        *,
        bound_of: Callable[[str], float | None],
        on_level: Callable[[TenantRoute, RouteStats], None] = lambda whose, stats: None,
    ) -> None:
        """Make an empty registry.

        Args:
            route_stats: Statistics by tenant and route.
            bound_of: Returns a route's `max_error_ratio`, None for one without the semantic tier.
            on_level: Called for every route whose level changes.
        """
        self._route_stats = route_stats
        self._bound_of = bound_of
        self._on_level = on_level
        self._records: FairRecent[str, AuditRecord] = FairRecent(MAX_RECORDS)
        self._by_exact: dict[bytes, dict[str, AuditRecord]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[AuditRecord]:
        """Iterate over records, newest first."""
        by_time = sorted(self._records.values(), key=lambda record: record.at)
        return reversed(by_time)

    def get(self, record_id: str) -> AuditRecord | None:
        """Return the record of a request."""
        return self._records.get(record_id)

    def add(self, record: AuditRecord, now: float, *, is_news: bool = True) -> None:
        """Add a record; `is_news` is False where its effect on the level is already counted."""
        replaced = self._records.pop(record.id)
        if replaced is not None:
            self._leave(replaced)
        self._by_exact.setdefault(record.exact, {})[record.id] = record
        for _, evicted in self._records.put(record.id, record, record.tenant):
            self._leave(evicted)
        whose, sample = TenantRoute(record.tenant, record.route), record.sample
        if sample is None:
            return
        stats = self._route_stats.of(whose)
        stats.add(sample)
        if is_news:
            self.reconsider(whose, now)

    def reconsider(self, whose: TenantRoute, now: float) -> None:
        """Adjust the level of a route to the evidence as it is now."""
        stats, bound = self._route_stats.of(whose), self._bound_of(whose.route)
        stats.evidence.expire(now)
        if bound is not None and stats.step(bound):
            stats.since = now
            self._on_level(whose, stats)

    def track_of(self, exact: bytes) -> EntryAudits | None:
        """Return the audits of an entry; None where it has none."""
        records = self._by_exact.get(exact)
        if not records:
            return None
        samples = [sample for record in records.values() if (sample := record.sample) is not None]
        return EntryAudits(
            num_right=sum(sample.weight for sample in samples if not sample.is_wrong),
            num_wrong=sum(sample.weight for sample in samples if sample.is_wrong),
        )

    def is_barred(self, exact: bytes) -> bool:
        """Return whether an entry was served wrongly to a similar question, and no review has changed that."""
        records = self._by_exact.get(exact)
        return records is not None and any(
            record.verdict == "wrong" and record.was_served for record in records.values()
        )

    def forget_texts(self, covers: Callable[[AuditRecord], bool]) -> list[AuditRecord]:
        """Remove the texts of covered records; return the changed records."""
        stripped = [
            msgspec.structs.replace(record, texts=None)
            for record in self._records.values()
            if record.texts is not None and covers(record)
        ]
        for record in stripped:
            self._by_exact[record.exact][record.id] = record
            self._records.put(record.id, record, record.tenant)
        return stripped

    def _leave(self, old: AuditRecord) -> None:
        """Remove a record from the audits of its entry."""
        of_entry = self._by_exact[old.exact]
        del of_entry[old.id]
        if not of_entry:
            del self._by_exact[old.exact]
