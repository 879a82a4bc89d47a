"""Requests that a proof prints are taken by the gateway's own reading of a request as the proof says."""

from __future__ import annotations

import json

import pytest

from gateway.admission.context_check import MAX_BYTES_PER_TOKEN, refuse_hopeless
from gateway.admission.request_reader import MAX_BODY_BYTES
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.errors import InvalidRequest, Shed
from gateway.limits.lane import LiveLane
from gateway.limits.limit import StaticLimit
from gateway.limits.limiter import Limiter
from gateway.limits.permit import AdmissionRequest
from gateway.routing.facts import RequestFacts
from routing_policies.loading import load_policy
from routing_policies.matching import RequestView, RouteTable
from routing_policies.policy.policy_tests import TestRequest
from routing_policies.proof.atoms import MAX_PROMPT_BYTES
from routing_policies.proof.contexts import MOST_BYTES_PER_TOKEN
from routing_policies.proof.prover import prove

HEAD = """\
schema_version: 1
deployments:
  - {id: small, url: "http://small", model: small-model, context_tokens: 16, limits: {max_in_flight: 3}}
"""


def sent(request: TestRequest) -> ChatRequest:
    """Return a request as a client sends it, of exactly the size that the proof states."""
    messages = [{"role": "user", "content": "x"} for _ in range(request.turns - 1)]
    messages += [{"role": "user", "content": request.text}] if request.turns else []
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    body = {"model": request.model, "messages": messages, "stream": request.stream}
    body |= {"tools": tools} if request.has_tools else {}
    text = json.dumps(body)
    missing = (request.prompt_bytes or len(text)) - len(text)
    assert missing >= 0, "a client cannot send the request this short"
    return ChatRequestParser().parse((text + " " * missing).encode())


@pytest.mark.parametrize(
    "first",
    [
        "request.turns <= 3 || request.has_tools",
        'request.text.startsWith("translate") && !request.stream',
        "request.prompt_bytes < 5000 && request.turns != 2",
        'request.text.matches("(?i)^invoice [0-9]+") || size(request.text) > 40',
        'tenant == "shop" && headers["x-plan"] != "pro"',
        "request.turns % 2 == 0 || request.prompt_bytes >= 2000 && request.stream",
    ],
)
def test_a_request_in_a_gap_is_in_the_gap_as_the_gateway_reads_it(first: str) -> None:
    policy = load_policy(
        HEAD + f"tenants: [{{id: shop}}]\nroutes:\n  - {{id: a, match: {{models: [any], when: '{first}'}}, "
        "select: {candidates: [small]}}\ntotal: [any]\n",
        source="p",
    )
    (found,) = [one for one in prove(policy).violations if one.kind == "not_total"]
    (request,) = found.requests
    view = RequestView(
        model=request.model, tenant=request.tenant, headers=request.headers, facts=RequestFacts(sent(request))
    )
    with pytest.raises(LookupError, match="model_not_found"):
        RouteTable(policy).match(view)


def test_a_prompt_that_no_candidate_holds_is_refused_by_the_gateway() -> None:
    least = 16 * MOST_BYTES_PER_TOKEN + 1
    policy = load_policy(
        HEAD + f"routes:\n  - {{id: a, match: {{when: 'request.prompt_bytes >= {least}'}}, "
        "select: {candidates: [small]}}\n",
        source="p",
    )
    (found,) = prove(policy).violations
    size = found.requests[0].prompt_bytes
    assert found.kind == "context"
    assert size is not None
    with pytest.raises(InvalidRequest, match="must fit into the largest context here, 16 tokens"):
        refuse_hopeless(sent(TestRequest(text="!" * (size + MOST_BYTES_PER_TOKEN))), 16)


def test_the_proof_counts_with_the_sizes_of_the_gateway() -> None:
    assert MOST_BYTES_PER_TOKEN == MAX_BYTES_PER_TOKEN
    assert MAX_PROMPT_BYTES == MAX_BODY_BYTES


async def test_a_starved_tenant_is_refused_by_the_limiter_for_as_long_as_the_other_goes_on() -> None:
    policy = load_policy(
        HEAD + "lanes: [{id: now, max_queue: 0}, {id: later}]\ntenants: [{id: shop, lanes: [now]}, {id: labs}]\n"
        "routes: [{id: a, select: {candidates: [small]}}]\n",
        source="p",
    )
    (found,) = prove(policy).violations
    *attacks, victim = found.requests
    lanes = {lane.id: LiveLane(lane.id, weight=lane.weight, max_queue=lane.max_queue) for lane in policy.lanes}
    limiter = Limiter(StaticLimit(policy.deployments[0].limits.max_in_flight), clock=lambda: 100.0)
    theirs = AdmissionRequest(lanes["later"], str(attacks[0].tenant))
    permits = [await limiter.acquire(theirs) for _ in range(3)]
    for turn in range(20):
        with pytest.raises(Shed):
            await limiter.acquire(AdmissionRequest(lanes[str(victim.lane)], str(victim.tenant)))
        permits[turn % 3].release()
        permits[turn % 3] = await limiter.acquire(theirs)
