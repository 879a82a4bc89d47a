"""The router over live state: forecasts, conversations, many candidates, and a deployment that becomes slow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.load_report import LaneReport, LoadReport
from gateway.limits.permit import AdmissionRequest
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import PolicySnapshot
from routing_policies.estimation.estimators import Price
from tests.gateway.routing.fleet import Fleet, fleet_policy, mixed_offers, snapshot_of

NOBODY: frozenset[str] = frozenset()


class Scene:
    """A fleet that stands still, and requests to it."""

    def __init__(self, num: int, policy: str = "latency_first", **policy_options: Any) -> None:
        self.now = 0.0
        self.made: PolicySnapshot = snapshot_of(fleet_policy(num, policy, **policy_options), lambda: self.now)
        self.planned = self.made.router.match("auto", None, {})

    def routing_request(self, request: ChatRequest | None = None, tokens: int = 2000) -> RoutingRequest:
        routing_request = RoutingRequest(
            Price(tokens, tokens, 100), AdmissionRequest(self.made.lanes["interactive"], "t", tokens)
        )
        return routing_request if request is None else self.made.router.with_history(routing_request, request)

    def queue(self, name: str, wait_s: float) -> None:
        lane = LaneReport(wait_s, 10_000.0)
        self.made.deployments[name].forecast.note_report(self.now, LoadReport(lanes={"interactive": lane}))

    def pick(
        self, routing_request: RoutingRequest, tried: frozenset[str] = NOBODY, avoid: frozenset[str] = NOBODY
    ) -> str:
        return self.made.router.pick(self.planned, tried, "interactive", routing_request, avoid)[0].id


def conversation(*contents: str) -> ChatRequest:
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode())


def test_requests_go_where_the_first_token_comes_soonest() -> None:
    scene = Scene(3)
    for name, wait_s in (("d0", 3.0), ("d1", 0.2), ("d2", 1.0)):
        scene.queue(name, wait_s)
    assert scene.pick(scene.routing_request()) == "d1"
    assert scene.pick(scene.routing_request(), frozenset({"d1"})) == "d2"
    assert scene.pick(scene.routing_request(), avoid=frozenset({"d1", "d2"})) == "d0"
    assert scene.pick(scene.routing_request(), avoid=frozenset({"d0", "d1", "d2"})) == "d1", "late is better than never"


def test_what_is_sent_counts_at_once_so_that_a_burst_spreads() -> None:
    scene = Scene(3)
    picks = []
    for _ in range(30):
        name = scene.pick(scene.routing_request())
        picks.append(name)
        scene.made.deployments[name].forecast.note_sent(scene.now, Price(2000, 2000, 100))
    assert {picks.count(name) for name in ("d0", "d1", "d2")} == {10}


def test_a_conversation_stays_with_who_holds_it_unless_that_one_is_busier_than_the_saving() -> None:
    scene = Scene(3)
    first = conversation("a long story " * 200)
    home = scene.pick(scene.routing_request(first))
    second = conversation("a long story " * 200, "well", "go on")
    for _ in range(5):
        assert scene.pick(scene.routing_request(second)) == home
    scene.queue(home, 10.0)
    assert scene.pick(scene.routing_request(second)) != home


def test_what_a_deployment_holds_is_taken_off_its_price_only() -> None:
    scene = Scene(2)
    request = conversation("a long story " * 200)
    home = scene.pick(scene.routing_request(request))
    routing_request = scene.routing_request(request)
    assert routing_request.price_at(home).uncached_tokens < 0.5 * routing_request.price.uncached_tokens
    assert routing_request.price_at("d0" if home == "d1" else "d1") == routing_request.price


def test_policies_that_do_not_read_history_remember_nothing() -> None:
    scene = Scene(3, "first_available")
    routing_request = scene.routing_request(conversation("hello"))
    assert (routing_request.prefix, routing_request.held_tokens) == ((), {})


def test_a_view_is_what_admission_and_pages_may_show() -> None:
    scene = Scene(2)
    scene.queue("d1", 2.0)
    first, second = scene.planned.views(scene.now, scene.routing_request())
    assert (first.id, second.id) == ("d0", "d1")
    assert first.forecast_ttft_s is not None
    assert second.forecast_ttft_s is not None
    assert second.forecast_ttft_s > first.forecast_ttft_s + 1.0
    assert first.prompt_tokens == 2000


def test_a_gateway_prefers_its_own_zone_among_equals() -> None:
    text = fleet_policy(2).replace("limits:", "zone: far, limits:", 1)
    made = snapshot_of(text, lambda: 0.0, zone="near")
    planned = made.router.match("auto", None, {})
    routing_request = RoutingRequest(Price(100, 100, 10), AdmissionRequest(made.lanes["interactive"], "t", 100))
    assert made.router.pick(planned, NOBODY, "interactive", routing_request)[0].id == "d1"


BEGINS, ENDS = 20.0, 40.0


def brown_out(name: str, now: float) -> float:
    return 10.0 if name == "d0" and BEGINS <= now < ENDS else 1.0


@pytest.mark.parametrize("reports", [True, False])
def test_a_deployment_that_becomes_ten_times_slower_is_left_within_two_seconds_and_found_again(reports: bool) -> None:
    fleet = Fleet(num=3, reports=reports, slowdown=brown_out, policy="latency_first")
    fleet.run(mixed_offers(40, 70, prompt=400))

    def share(begin: float, end: float) -> float:
        sent = [one.deployment for one in fleet.answered if begin <= one.sent_at < end]
        return sent.count("d0") / len(sent)

    def p50(begin: float, end: float) -> float:
        found = sorted(one.measured_s for one in fleet.answered if begin <= one.sent_at < end)
        return found[len(found) // 2]

    assert share(5, BEGINS) > 0.25
    assert share(BEGINS + 2, ENDS) < 0.04
    assert p50(BEGINS + 2, ENDS) < 2.5 * p50(5, BEGINS), "two carry what three did"
    assert share(ENDS + 15, 70) > 0.25
