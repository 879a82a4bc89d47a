"""Audits that a process knows."""

from __future__ import annotations

from gateway.cache.audit.audit_record import Texts
from gateway.cache.audit.audit_registry import AuditRegistry
from gateway.cache.audit.route_stats import RouteStatsTable
from tests.gateway.cache.audit.test_audit_journal import record
from tests.gateway.cache.word_encoder import NearMatchModel


def test_a_purge_takes_the_texts_off_the_records_of_what_it_covers() -> None:
    stats = AuditRegistry(RouteStatsTable(NearMatchModel()), bound_of=lambda route: None)
    texts = Texts("asked", "kept", "one", "two")
    import msgspec

    stats.add(msgspec.structs.replace(record(1), texts=texts), 0.0)
    stripped = stats.forget_texts(lambda found: found.entry_id == "req_0")
    assert [found.texts for found in stripped] == [None]
    assert [found.texts for found in stats] == [None]
