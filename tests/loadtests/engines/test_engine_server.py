"""The modelled engine over a socket: tokens at the model's pace, and rows free at once when a client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loadtests.clients.chat_streams import OfferClient, Slo, Tally
from loadtests.clients.http_client import Address, LoadConnection, fetch, request_bytes
from loadtests.engines.engine_server import Engine, ModelConnection
from loadtests.engines.modelled_engine import EngineShape
from loadtests.overload.workload import Offer

SHAPE = EngineShape(max_num_seqs=4, step_fixed_ms=2.0, sequence_us=100.0, prefill_us=5.0)
SLO = Slo(ttft_s=5.0, tpot_s=5.0)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Engine, Address]]:
    """An engine of SHAPE on a Unix socket."""
    engine = Engine(SHAPE)
    path = str(tmp_path / "e.sock")
    server = await asyncio.get_running_loop().create_unix_server(lambda: ModelConnection(engine, is_silent=False), path)
    yield engine, Address(path=path)
    server.close()
    await server.wait_closed()


async def test_a_stream_has_the_scripted_number_of_tokens_and_its_usage(served: tuple[Engine, Address]) -> None:
    engine, address = served
    client = OfferClient(address)
    [one] = await client.run([Offer(at_s=0.0, prompt_tokens=100, output_tokens=7)])
    await client.aclose()
    assert (one.is_whole, one.num_tokens, engine.model.num_made) == (True, 7, 7)
    assert one.ttft_s > SHAPE.step_s(0, 100) * 0.9
    assert Tally.of([one], SLO, 1.0).good_share == 1.0


async def test_a_client_that_leaves_frees_its_row_and_is_counted(served: tuple[Engine, Address]) -> None:
    engine, address = served
    client = OfferClient(address)
    [one] = await client.run([Offer(at_s=0.0, prompt_tokens=10, output_tokens=400, leaves_after_s=0.05)])
    assert one.left_at > 0
    assert not one.is_good(SLO)
    while engine.model.num_running:
        await asyncio.sleep(0.001)
    [(number, _, tokens)] = engine.aborts
    assert (number, tokens) == (one.number, engine.num_wasted)


async def test_a_plain_answer_comes_whole(served: tuple[Engine, Address]) -> None:
    _, address = served
    connection = await LoadConnection.open(address, keep_body=True)
    body = json.dumps({"messages": [], "user": "script:output_tokens=3,id=1"}).encode()
    exchange = await connection.exchange(request_bytes("POST", "/v1/chat/completions", body))
    connection.close()
    assert exchange.is_ok
    answer = json.loads(connection.scanner.content)
    assert answer["usage"]["completion_tokens"] == 3


async def test_the_load_it_publishes_has_the_fields_of_the_real_engine(served: tuple[Engine, Address]) -> None:
    engine, address = served
    load = engine.load()
    assert load["state"] == "ready"
    assert load["max_num_seqs"] == SHAPE.max_num_seqs
    assert (await fetch(address, "/metrics"))[1].startswith("# TYPE model_requests_total counter")
