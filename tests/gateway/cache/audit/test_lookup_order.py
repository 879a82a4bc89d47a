"""Whether a lookup comes before the deployment or runs beside it."""

from __future__ import annotations

import pytest

from gateway.cache.audit.lookup_order import LookupOrder


def test_the_lookup_comes_first_only_where_hits_are_usual_and_deployments_are_loaded() -> None:
    order = LookupOrder()
    assert not order.waits(1.0), "nothing is known yet"
    for _ in range(200):
        order.note(is_hit=True, took_s=0.008)
        order.note_upstream(0.5, 0.5)
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
    order = LookupOrder(hit_ratio=0.5, lookup_s=0.02, saved_s=0.1, answer_s=0.1)
    assert not order.waits(0.0), "beside the call a hit is as soon"
    assert order.waits(0.0, late_lookup_s=0.02)
    rare = LookupOrder(hit_ratio=0.05, lookup_s=0.02, saved_s=0.1, answer_s=0.1)
    assert not rare.waits(0.0, late_lookup_s=0.02), "misses would pay"


def test_an_upstream_that_begins_at_once_and_generates_for_long_does_not_starve_the_cache() -> None:
    order = LookupOrder(hit_ratio=0.05, lookup_s=0.02, saved_s=0.01, answer_s=4.0)
    assert order.waits(0.0, late_lookup_s=0.02), "each hit saves 4 s, each miss loses 20 ms"
    assert not order.waits(0.0), "in time beside the call, no miss needs to lose anything"


@pytest.mark.parametrize(
    ("name", "hit_ratio", "lookup_s", "is_paid", "waits"),
    [
        ("a hit saves money at an answer as fast as the lookup", 0.02, 0.05, True, True),
        ("without a price it saves nothing", 0.02, 0.05, False, False),
        ("hits are too rare", 0.005, 0.05, True, False),
        ("a lookup slower than the answer it would spare", 0.02, 0.2, True, False),
    ],
)
def test_a_price_counts_where_time_does_not(
    name: str, hit_ratio: float, lookup_s: float, is_paid: bool, waits: bool
) -> None:
    order = LookupOrder(hit_ratio=hit_ratio, lookup_s=lookup_s, saved_s=0.06, answer_s=0.06)
    assert order.waits(0.0, late_lookup_s=lookup_s, is_paid=is_paid) is waits, name


def test_a_cancelled_request_costs_its_prompt_at_an_idle_deployment_with_a_price() -> None:
    order = LookupOrder(hit_ratio=0.1, lookup_s=0.008, saved_s=0.5, answer_s=2.0)
    assert not order.waits(0.0)
    assert order.waits(0.0, is_paid=True)


def test_a_lookup_that_was_slow_once_is_not_held_against_later_ones() -> None:
    order = LookupOrder(hit_ratio=0.2, lookup_s=9.0, saved_s=0.01, answer_s=1.0)
    assert order.waits(0.0, late_lookup_s=0.02), "the time of lookups now counts, not that of lookups that began"
