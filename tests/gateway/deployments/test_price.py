"""Prices in tokens, from bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.price import MAX_KEYS, Pricer
from gateway.telemetry.records.record import Usage
from routing_policies.estimation.estimators import Price, cost_of
from routing_policies.policy.deployment import CostPerMtok

PARSER = ChatRequestParser()


def chat(content: Any, **fields: Any) -> ChatRequest:
    body = {"model": "auto", "messages": [{"role": "user", "content": content}], **fields}
    return PARSER.parse(json.dumps(body).encode())


def test_a_stranger_is_priced_by_its_bytes() -> None:
    price = Pricer().price(chat("x" * 4000), tenant="t", route="r")
    assert price.prompt_tokens == price.uncached_tokens == pytest.approx(1015, rel=0.02)
    assert price.output_tokens > 100


def test_what_engines_count_makes_the_next_price_better() -> None:
    pricer, rng = Pricer(), random.Random(1)
    for _ in range(100):
        request = chat("x" * rng.randrange(50, 9000))
        pricer.settle(request, Usage(len(request.raw) // 3 + 20, 40), tenant="t", route="r")

    request = chat("x" * 3000)
    price = pricer.price(request, tenant="t", route="r")
    assert price.prompt_tokens == pytest.approx(len(request.raw) / 3 + 20, rel=0.03)
    assert price.output_tokens == pytest.approx(40, rel=0.15)
    assert pricer.price(request, tenant="other", route="r").prompt_tokens < 0.8 * price.prompt_tokens


def test_the_clients_limit_bounds_every_choice() -> None:
    price = Pricer().price(chat("hello", max_tokens=10, n=3), tenant="t", route="r")
    assert price.output_tokens <= 30


def test_an_image_is_not_priced_by_its_bytes() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    assert chat([{"type": "text", "text": "what is this?"}, image]).text_bytes < 2_000


def test_work_weighs_output_and_quota_does_not() -> None:
    price = Price(1000, 400, 100)
    assert (price.work_tokens, price.total_tokens) == (600, 1100)


def test_cost_is_in_the_operators_currency() -> None:
    assert cost_of(CostPerMtok(prompt=2.0, completion=10.0), Price(1000, 1, 100)) == pytest.approx(0.003)
    assert cost_of(None, Price(1000, 1, 100)) is None


def test_as_many_tenants_as_come_do_not_fill_the_memory() -> None:
    pricer = Pricer()
    for number in range(MAX_KEYS + 100):
        pricer.settle(chat("hello"), Usage(10, 10), tenant=f"t{number}", route="r")
    assert len(pricer._ratios) == MAX_KEYS
