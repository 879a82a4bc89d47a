"""Responses that were called wrong stay barred, whatever other tenants report."""

from __future__ import annotations

import pytest

from gateway.cache.exact.quarantine import Quarantines, digest_of

ANSWER = b'{"choices":[{"index":0,"message":{"content":"no"},"finish_reason":"stop"}]}'


def test_one_tenants_flood_frees_no_answer_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cache.exact.quarantine.MAX_QUESTIONS", 10)
    wrong = Quarantines()
    wrong.add(b"calm", digest_of(ANSWER), 100.0, "calm")
    for number in range(1000):
        wrong.add(b"flood%d" % number, digest_of(ANSWER), 100.0, "flood")
    assert len(wrong) == 10
    assert wrong.covers(b"calm", ANSWER, 50.0)
    assert not wrong.covers(b"calm", ANSWER, 100.0)
    assert not wrong.covers(b"flood0", ANSWER, 50.0)
    assert wrong.covers(b"flood999", ANSWER, 50.0)
