"""Quotes with the bundled engine: stated, sent back, and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.lone_engine import lone_engine
from tests.gateway.quotes.serving.test_quote_endpoint import QUOTE, expected_result
from tests.gateway.stack import chat, running

pytestmark = pytest.mark.e2e

_POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{path}", model: small, limits: {{max_in_flight: 8}}}}
quotes: {{hold_ms: 20000}}
"""


async def test_the_bundled_engine_answers_what_was_quoted(tmp_path: Path) -> None:
    with lone_engine(tmp_path) as engine:
        async with running(tmp_path, policy=_POLICY.format(path=engine.path)) as stack:
            body = chat("small", stream=True, max_tokens=4)
            for _ in range(20):
                assert (await stack.call(body)).status == 200
            quote = (await stack.call(body, path=QUOTE)).json
            assert (quote["admitted"], quote["reserved"], quote["coverage"]) == (True, True, 0.95)
            reply = await stack.call(body, headers={"x-penstock-quote": quote["quote"]})
            assert (reply.status, reply.headers["x-penstock-quote"]) == (200, "redeemed")
            assert b'"content"' in reply.body
            line = stack.lines()[-1]
            assert line["quote"]["bound_ms"] == pytest.approx(quote["ttft_ms"], abs=0.01)
            assert line["quote"]["result"] == expected_result(line)

            plain = chat("small", max_tokens=4)
            quote = (await stack.call(plain, path=QUOTE)).json
            reply = await stack.call(plain, headers={"x-penstock-quote": quote["quote"]})
            assert reply.headers["x-penstock-quote"] == "redeemed"
            line = stack.lines()[-1]
            assert line["quote"]["result"] == expected_result(line), (
                "the engine reports the first token of plain answers"
            )

            assert await stack.metric("penstock_quoted_bounds_total", kind="first_token") == 2
            assert await stack.metric("penstock_quotes_held") == 0
