"""AuditRegistry: every audit that this process has seen, by request and by entry; bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gateway.cache.audit.audit_record import AuditRecord
from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.similarity.decision import EntryAudits

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
        self._records: OrderedDict[str, AuditRecord] = OrderedDict()
        self._by_exact: dict[bytes, dict[str, AuditRecord]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[AuditRecord]:
        """Iterate over records, newest first."""
        return iter(tuple(reversed(self._records.values())))

    def get(self, record_id: str) -> AuditRecord | None:
        """Return the record of a request."""
        return self._records.get(record_id)

    def add(self, record: AuditRecord, now: float, *, is_news: bool = True) -> None:
        """Add a record; `is_news` is False where its effect on the level is already counted."""
        self._forget(record.id)
        self._records[record.id] = record
        self._by_exact.setdefault(record.exact, {})[record.id] = record
        if len(self._records) > MAX_RECORDS:
            self._forget(next(iter(self._records)))
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
        """Return whether an entry was found wrong for a similar question, and no review has changed that."""
        records = self._by_exact.get(exact)
        return records is not None and any(record.verdict == "wrong" for record in records.values())

    def forget_texts(self, covers: Callable[[AuditRecord], bool]) -> list[AuditRecord]:
        """Remove the texts of covered records; return the changed records."""
        stripped = [
            msgspec.structs.replace(record, texts=None)
            for record in self._records.values()
            if record.texts is not None and covers(record)
        ]
        for record in stripped:
            self._records[record.id] = self._by_exact[record.exact][record.id] = record
        return stripped

    def _forget(self, record_id: str) -> None:
        old = self._records.pop(record_id, None)
        if old is None:
            return
        of_entry = self._by_exact[old.exact]
        del of_entry[record_id]
        if not of_entry:
            del self._by_exact[old.exact]
