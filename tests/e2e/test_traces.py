"""One trace over three processes: the client's span, the gateway's stages, the engine's phases."""

from __future__ import annotations

import time

import httpx
import pytest

from tests.e2e.conftest import Stack
from tests.e2e.raw import chat

pytestmark = pytest.mark.e2e

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NUM_SPANS = 8
"""The gateway's own, prepare, queue and call; the engine's own, queue, prefill and decode."""


def test_a_clients_trace_reaches_the_engines_steps(stack: Stack) -> None:
    body = chat(model="penstock-small", stream=True, max_tokens=8)
    headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
    assert httpx.post(f"{stack.base_url}/chat/completions", json=body, headers=headers, timeout=60.0).status_code == 200
    deadline = time.monotonic() + 60
    while len(found := [span for span in stack.traces.spans if span["trace"] == TRACE]) < NUM_SPANS:
        assert time.monotonic() < deadline, f"of the trace came {[span['name'] for span in found]}"
        time.sleep(0.05)
    spans = {span["name"]: span for span in found}
    assert stack.traces.services == {"penstock-gateway", "penstock-engine"}
    own = spans["POST /v1/chat/completions"]
    assert own["parent"] == CLIENT
    # Gateway and engine both call it `chat penstock-small`: the engine's is a server's span below the gateway's call.
    named = [span for span in found if span["name"] == "chat penstock-small"]
    (call,) = [span for span in named if span["kind"] == 3]
    (engine,) = [span for span in named if span["kind"] == 2]
    assert call["parent"] == own["id"]
    assert engine["parent"] == call["id"]
    for phase in ("prefill", "decode"):
        assert spans[phase]["parent"] == engine["id"]
        assert own["start"] <= spans[phase]["start"] <= spans[phase]["end"]
    assert spans["decode"]["attributes"]["penstock.output_tokens"] >= 1
