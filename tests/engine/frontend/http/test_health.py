"""`GET /engine/load` has every member that its description in the README names, in every state of the core."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, get_args

import httpx
import msgspec

from engine.protocol import Counters, Lane, LaneLoad, Phase, StepReport, StepTimeTerms
from tests.engine.frontend.conftest import Running, StartFront, chat
from tests.engine.frontend.fake_core import LOAD

INTEGERS = {
    "num_open",
    "block_size",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "num_threads",
    "num_running",
    "num_waiting",
    "num_blocks_total",
    "num_blocks_free",
    "num_blocks_cached",
    "num_blocks_leaked",
    "num_kv_tokens",
    "num_step_tokens",
    "waiting_prompt_tokens",
    "expected_output_tokens",
}
NUMBERS = {"silent_s", "step_s", "drain_tokens_per_s", "forecast_wait_s"}
OTHERS = {"device", "state", "ready", "step_time", "lanes", "adapters"}
LANE_MEMBERS = {
    "num_running",
    "num_waiting",
    "waiting_prompt_tokens",
    "expected_output_tokens",
    "forecast_wait_s",
    "prefill_tokens_per_s",
}
TERMS = {"fixed_s", "row_s", "prefill_token_s", "kv_token_s", "pair_s", "chunk_s"}

LANE = LaneLoad(
    num_running=1,
    num_waiting=2,
    waiting_prompt_tokens=300,
    expected_output_tokens=60,
    forecast_wait_s=0.25,
    prefill_tokens_per_s=4000.0,
)
BUSY = msgspec.structs.replace(
    LOAD,
    max_num_seqs=8,
    waiting_prompt_tokens=900,
    expected_output_tokens=180,
    drain_tokens_per_s=750.0,
    forecast_wait_s=0.25,
    step_time=StepTimeTerms(fixed_s=0.002, row_s=1e-4, prefill_token_s=5e-5, kv_token_s=1e-7, pair_s=0.0, chunk_s=3e-4),
    lanes=dict.fromkeys(get_args(Lane), LANE),
)


async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The feed's events."""
    async for line in response.aiter_lines():
        if line:
            yield json.loads(line.removeprefix("data: "))


def check_schema(event: dict[str, Any]) -> None:
    """Every member is there and has its type."""
    assert event.keys() == INTEGERS | NUMBERS | OTHERS
    assert all(type(event[name]) is int for name in INTEGERS)
    assert all(isinstance(event[name], int | float) for name in NUMBERS)
    assert event["ready"] == (event["state"] == "ready")
    assert event["step_time"] is None or event["step_time"].keys() == TERMS
    assert event["lanes"].keys() <= set(get_args(Lane))
    assert all(lane.keys() == LANE_MEMBERS for lane in event["lanes"].values())


async def test_a_busy_core_s_load_is_all_there(running: Running) -> None:
    core = await running.core()
    async with running.client.stream("GET", "/engine/load") as response:
        feed = events(response)
        core.announce(StepReport(outputs=[], load=BUSY, counters=Counters()))
        while (event := await anext(feed))["num_running"] == 0:
            check_schema(event)
        check_schema(event)
    assert (event["max_num_seqs"], event["block_size"], event["max_model_len"]) == (8, 16, 512)
    assert event["lanes"]["long"] == msgspec.structs.asdict(LANE)
    assert event["step_time"]["prefill_token_s"] == 5e-5


async def test_what_the_warm_up_taught_is_there_before_the_first_step(start_front: StartFront) -> None:
    async with start_front(starts_up=False) as running:
        core = await running.cores.next()
        core.start_up(load=BUSY)
        await running.until_ready()
        async with running.client.stream("GET", "/engine/load") as response:
            event = await anext(events(response))
    assert event["step_time"] is not None
    assert event["lanes"]["interactive"]["prefill_tokens_per_s"] == 4000.0


async def test_the_state_goes_from_starting_over_warming_to_ready_and_draining(start_front: StartFront) -> None:
    async with start_front(starts_up=False, drain_timeout_s=5.0) as running:
        core = await running.cores.next()
        async with running.client.stream("GET", "/engine/load") as response:
            feed, seen = events(response), list[str]()

            async def until(state: str) -> None:
                while not seen or seen[-1] != state:
                    event = await anext(feed)
                    check_schema(event)
                    if not seen or event["state"] != seen[-1]:
                        seen.append(event["state"])

            await until("starting")
            core.announce(Phase(name="import", seconds=0.1))
            core.announce(Phase(name="weights", seconds=0.1))
            await until("warming")
            assert (await running.client.get("/readyz")).json()["state"] == "warming"
            core.start_up()
            await until("ready")
            request = asyncio.create_task(running.client.post("/v1/chat/completions", json=chat()))
            add = await core.next_add()
            running.front.stop()
            await until("draining")
            core.emit(add.seq_id, running.ids("hello"), "length")
            await request
    assert seen == ["starting", "warming", "ready", "draining"]


async def test_head_of_the_load_feed_ends(running: Running) -> None:
    head = await running.client.head("/engine/load")
    assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_head_states_when_nothing_is_ready(start_front: StartFront) -> None:
    async with start_front(starts_up=False) as running:
        assert (await running.client.head("/readyz")).status_code == 503


async def test_the_model_is_listed(running: Running) -> None:
    await running.core()
    models = (await running.client.get("/v1/models")).json()
    assert models["object"] == "list"
    assert [(model["id"], model["max_model_len"]) for model in models["data"]] == [("tiny", 512)]
    assert (await running.client.get("/v1/models/tiny")).json() == models["data"][0]


async def test_probes_show_the_phases_of_start_up(start_front: StartFront) -> None:
    async with start_front(starts_up=False) as running:
        core = await running.cores.next()
        assert (await running.client.get("/livez")).status_code == 200
        assert (await running.client.get("/startupz")).status_code == 503
        core.start_up()
        await running.until_ready()
        started = await running.client.get("/startupz")
        assert "load" not in started.json()["core"]
        phases = [("import", 0.5), ("weights", 0.25)]
        assert [(phase["name"], phase["seconds"]) for phase in started.json()["phases"]] == phases
        assert started.json()["core"]["device"] == "cpu"


async def test_the_load_feed_reports_changes_at_once_and_the_rest_every_tenth_of_a_second(running: Running) -> None:
    core = await running.core()
    async with running.client.stream("GET", "/engine/load") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        loads = (json.loads(line.removeprefix("data: ")) async for line in response.aiter_lines() if line)
        first = await anext(loads)
        # Before its first step the core's pool is known from its start, and all of it is free.
        assert (first["ready"], first["num_blocks_total"], first["num_blocks_free"]) == (True, 100, 100)
        core.step([])
        while (load := await anext(loads))["num_running"] == 0:
            continue
        assert (load["num_running"], load["num_blocks_free"], load["state"]) == (1, 75, "ready")
        core.die()
        while (load := await anext(loads))["ready"]:
            continue
        assert load["state"] in ("down", "starting")
