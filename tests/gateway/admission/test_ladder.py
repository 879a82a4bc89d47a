"""The step `trim` of an overloaded lane for a long request: never taken on the event loop."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from gateway.admission.ladder import DegradationStep, Ladder, Shortened, TooLongToTrim
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.price import Pricer
from gateway.routing.routing_request import RoutingRequest
from gateway.trimming.trimmer import MAX_TRIMMED_HERE_BYTES, PolicyTrimmer
from routing_policies.policy.document import Trim


class _Route:
    """What the step checks of a planned route."""

    class route:
        id = "main"
        trim = Trim()


class _AdmissionRequest(msgspec.Struct, frozen=True):
    tenant: str = "dev"
    tokens: int = 0


def request_of(num_turns: int) -> ChatRequest:
    turns = [{"role": "user", "content": f"{number} " + "word " * 40} for number in range(num_turns)]
    return ChatRequestParser().parse(json.dumps({"model": "auto", "messages": turns}).encode())


def form_of(request: ChatRequest, shortened: Shortened | None = None) -> DegradationStep:
    price = Pricer().price(request, tenant="dev", route="main")
    return DegradationStep(
        request, RoutingRequest(price, cast(Any, _AdmissionRequest())), cast(Any, (_Route(),)), shortened=shortened
    )


LADDER = Ladder(trimmer=PolicyTrimmer(), cache=cast(Any, None), pricer=Pricer())


def test_a_short_request_is_trimmed_at_once() -> None:
    request = request_of(10)
    assert request.text_bytes < MAX_TRIMMED_HERE_BYTES
    form = LADDER.take("trim", form_of(request))
    assert form is not None
    assert form.request.text_bytes < request.text_bytes


def test_a_long_one_is_requested_and_then_taken_as_it_was_made_elsewhere() -> None:
    request = request_of(400)
    with pytest.raises(TooLongToTrim) as wanted:
        LADDER.take("trim", form_of(request))
    assert wanted.value.request is request
    shorter = PolicyTrimmer().trim_more(wanted.value.request, wanted.value.rule)
    assert shorter is not None
    form = LADDER.take("trim", form_of(request, Shortened(shorter)))
    assert form is not None
    assert form.request is shorter.request
    assert [strategy for strategy, tokens in form.trimmed if tokens > 0] == ["drop_old_turns"]


def test_a_prompt_that_its_client_wants_whole_takes_no_step() -> None:
    assert LADDER.take("trim", msgspec.structs.replace(form_of(request_of(10)), may_trim=False)) is None


def test_a_long_one_with_nothing_to_cut_takes_no_step() -> None:
    assert LADDER.take("trim", form_of(request_of(400), Shortened(None))) is None
