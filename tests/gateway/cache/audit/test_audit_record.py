"""Records of audits as they are stored."""

from __future__ import annotations

from gateway.cache.audit.audit_record import decode_record, encode_record
from tests.gateway.cache.audit.test_audit_journal import record


def test_a_record_survives_being_stored_and_nothing_else_does() -> None:
    stored = record(1)
    assert decode_record(encode_record(stored)) == stored
    assert decode_record(b"") is None
