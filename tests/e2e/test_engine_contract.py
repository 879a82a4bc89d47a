"""What an engine shows other schedulers: its load in a response header and as a feed."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Stack
from tests.e2e.engine import engine_client
from tests.e2e.raw import chat

pytestmark = pytest.mark.e2e

ORCA = re.compile(
    r"TEXT named_metrics\.kv_cache_utilization=(0|1|0\.\d+|1\.0+), "
    r"named_metrics\.num_requests_waiting=\d+, named_metrics\.num_requests_running=\d+"
)
LOAD_KEYS = {
    "state",
    "ready",
    "num_open",
    "num_running",
    "num_waiting",
    "num_blocks_total",
    "num_blocks_free",
    "num_blocks_cached",
    "num_blocks_leaked",
    "step_s",
    "num_step_tokens",
}
PERIOD_S = 0.1


def loads(response: httpx.Response, count: int) -> list[dict[str, Any]]:
    """The next `count` events of the feed."""
    found: list[dict[str, Any]] = []
    for line in response.iter_lines():
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", chat(model="penstock-small")),
        ("/v1/completions", {"model": "penstock-small", "prompt": "1 + 1 =", "max_tokens": 2}),
    ],
)
def test_answers_carry_the_load_in_orcas_text_form(stack: Stack, path: str, body: dict[str, Any], stream: bool) -> None:
    with engine_client(stack) as client:
        response = client.post(path, json=body | {"stream": stream})
    assert response.status_code == 200
    assert ORCA.fullmatch(response.headers["endpoint-load-metrics"])


def test_the_gateway_keeps_the_load_of_its_engines_to_itself(stack: Stack) -> None:
    response = httpx.post(f"{stack.base_url}/chat/completions", json=chat(), timeout=120.0)
    assert "endpoint-load-metrics" not in response.headers


def test_the_load_comes_as_a_feed_ten_times_a_second(stack: Stack) -> None:
    with engine_client(stack) as client, client.stream("GET", "/engine/load") as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        loads(response, 1)
    with engine_client(stack) as client, client.stream("GET", "/engine/load") as response:
        began = time.monotonic()
        reported = loads(response, 6)
        took_s = time.monotonic() - began
    assert all(event.keys() >= LOAD_KEYS for event in reported)
    assert reported[0]["state"] == "ready"
    assert reported[0]["num_blocks_total"] > 0
    assert took_s < 5 * PERIOD_S * 10  # a busy machine is late, a feed that waits for work never comes


def test_the_feed_shows_a_sequence_while_it_runs(stack: Stack) -> None:
    body = chat(model="penstock-small", stream=True, max_tokens=2000, min_tokens=1000)
    with engine_client(stack) as watcher, engine_client(stack) as client:
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            pieces = answer.iter_bytes()  # stored: an iterator that is dropped closes its response
            next(pieces)
            with watcher.stream("GET", "/engine/load") as response:
                assert any(event["num_open"] >= 1 for event in loads(response, 3))
        with watcher.stream("GET", "/engine/load") as response:
            deadline = time.monotonic() + 30
            while loads_one(response)["num_open"]:
                assert time.monotonic() < deadline, "a sequence nobody waits for is still open"


def loads_one(response: httpx.Response) -> dict[str, Any]:
    return loads(response, 1)[0]
