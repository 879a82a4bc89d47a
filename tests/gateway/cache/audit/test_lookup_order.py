"""Whether a lookup comes before the deployment or runs beside it."""

from __future__ import annotations

from gateway.cache.audit.lookup_order import LookupOrder


def test_the_lookup_comes_first_only_where_hits_are_usual_and_deployments_are_loaded() -> None:
    order = LookupOrder()
    assert not order.waits(1.0), "nothing is known yet"
    for _ in range(200):
        order.note(is_hit=True, took_s=0.008)
        order.note_upstream(0.5)
    assert order.waits(1.0)
    assert not order.waits(0.0), "an idle deployment loses nothing"
    for _ in range(400):
        order.note(is_hit=False, took_s=0.008)
    assert not order.waits(1.0), "every miss would be late for nothing"


def test_where_nearly_every_lookup_hits_not_even_an_idle_deployment_is_called_for_nothing() -> None:
    order = LookupOrder()
    for _ in range(200):
        order.note(is_hit=True, took_s=0.005)
        order.note_called_off(0.0006)
    assert order.waits(0.0), "each request sent would be work for nothing"
    for _ in range(4):
        order.note(is_hit=False, took_s=0.005)
    assert not order.waits(0.0), "one miss in six, late by a lookup, costs more than five such requests"
    for _ in range(400):
        order.note(is_hit=False, took_s=0.005)
    assert not order.waits(0.0)


def test_where_a_lookup_beside_the_call_would_be_late_waiting_saves_the_client_time_too() -> None:
    order = LookupOrder(hit_ratio=0.5, lookup_s=0.02, saved_s=0.1)
    assert not order.waits(0.0), "beside the call a hit is as soon"
    assert order.waits(0.0, may_race=False)
    assert not LookupOrder(hit_ratio=0.05, lookup_s=0.02, saved_s=0.1).waits(0.0, may_race=False), "misses would pay"
