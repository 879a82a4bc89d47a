"""Routes, request ids, and one envelope for everything that goes wrong."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine.frontend.http import health
from tests.engine.frontend.conftest import Running, StartFront, chat
from tests.engine.frontend.fake_core import STAGES
from tests.engine.frontend.tiny_model import END

ERRORS = [
    ("GET", "/nowhere", 404, "not_found"),
    ("GET", "/", 404, "not_found"),
    ("GET", "/v1/models/", 404, "model_not_found"),
    ("GET", "/v1/models/other", 404, "model_not_found"),
    ("GET", "//livez", 404, "not_found"),
    ("GET", "/livez/", 404, "not_found"),
    ("POST", "/v1/responses", 404, "not_found"),
    ("GET", "/docs", 404, "not_found"),
    ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
    ("POST", "/v1/models", 405, "method_not_allowed"),
    ("HEAD", "/v1/chat/completions", 405, "method_not_allowed"),
    ("HEAD", "/v1/completions", 405, "method_not_allowed"),
    ("HEAD", "/nowhere", 404, "not_found"),
    ("HEAD", "/v1/models/other", 404, "model_not_found"),
    ("DELETE", "/livez", 405, "method_not_allowed"),
    ("OPTIONS", "/v1/chat/completions", 405, "method_not_allowed"),
    ("POST", "/v1/chat/completions", 415, "unsupported_media_type"),
]


async def test_errors_have_the_envelope(running: Running) -> None:
    for method, path, status, code in ERRORS:
        response = await running.client.request(method, path)
        assert response.status_code == status
        assert response.headers["x-request-id"]
        if method == "HEAD":
            assert response.content == b""
        else:
            error = response.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert (error["code"], error["type"]) == (code, "invalid_request_error")
        if status == 405:
            assert response.headers["allow"] in ("GET, HEAD", "POST")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz", "/v1/models", "/v1/models/tiny", "/metrics"])
async def test_head_answers_like_get_without_the_body(running: Running, path: str) -> None:
    await running.core()
    head, get = await running.client.head(path), await running.client.get(path)
    assert (head.status_code, head.content, get.status_code) == (200, b"", 200)
    assert head.headers["content-type"] == get.headers["content-type"]
    assert "content-length" in head.headers


async def test_a_fault_of_ours_is_a_500_with_the_request_id_and_nothing_else(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "generate_latest", lambda registry: 1 / 0)
    response = await running.client.get("/metrics", headers={"x-request-id": "mine"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "mine")
    error = response.json()["error"]
    assert (error["code"], error["message"]) == ("internal_error", "Internal error; request id mine.")
    assert (await running.client.get("/livez")).status_code == 200


async def test_head_of_the_load_feed_ends(running: Running) -> None:
    head = await running.client.head("/engine/load")
    assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_head_states_when_nothing_is_ready(start_front: StartFront) -> None:
    async with start_front(starts_up=False) as running:
        assert (await running.client.head("/readyz")).status_code == 503


OTHER_MEDIA = [
    {"content-type": "text/plain"},
    {"content-type": "multipart/form-data; boundary=x"},
    {"content-type": "application/json", "content-encoding": "gzip"},
]


async def test_other_media_types_are_a_415(running: Running) -> None:
    for headers in OTHER_MEDIA:
        response = await running.client.post("/v1/chat/completions", content=b"{}", headers=headers)
        assert response.status_code == 415


async def test_a_bad_body_is_a_400_before_the_core_is_ready(start_front: StartFront) -> None:
    async with start_front(starts_up=False) as running:
        headers = {"content-type": "application/json; charset=utf-8"}
        response = await running.client.post("/v1/chat/completions", content=b"[" * 10_000, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")
        response = await running.client.post("/v1/chat/completions", json=chat(n=0))
        assert response.json()["error"]["param"] == "n"


HARMLESS_IDS = ["abc-123", "a.b:c_d"]


async def test_a_harmless_request_id_is_stored(running: Running) -> None:
    for given in HARMLESS_IDS:
        response = await running.client.get("/livez", headers={"x-request-id": given})
        assert response.headers["x-request-id"] == given


STRANGE_IDS = ["", "a b", "x" * 200, "é".encode().decode("latin-1"), "a;b"]


async def test_a_strange_request_id_is_replaced(running: Running) -> None:
    for given in STRANGE_IDS:
        response = await running.client.get("/livez", headers=[(b"x-request-id", given.encode("latin-1"))])
        assert response.headers["x-request-id"] not in (given, "")


NONSENSE = [
    ({"x-penstock-priority": "urgent"}, "x-penstock-priority"),
    ({"x-penstock-deadline-ms": "soon"}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": "1e12"}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": "nan"}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": ""}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": "1 000"}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": "9" * 400}, "x-penstock-deadline-ms"),
    ({"x-penstock-cache-salt": "x" * 300}, "x-penstock-cache-salt"),
]


async def test_nonsense_in_headers_is_named(running: Running) -> None:
    await running.core()
    for headers, param in NONSENSE:
        response = await running.client.post("/v1/chat/completions", json=chat(), headers=headers)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_long_interactive_prompts_have_their_own_lane(start_front: StartFront) -> None:
    async with start_front(max_model_len=4096) as running:
        core = await running.core()
        for text, headers, fields, lane in (
            ("hi", {}, {}, "interactive"),
            ("one two three four. " * 400, {}, {}, "long"),
            ("one two three four. " * 400, {"x-penstock-priority": "batch"}, {}, "batch"),
            ("hi", {}, {"service_tier": "flex"}, "batch"),
        ):
            body = chat(text, max_tokens=5, **fields)
            request = asyncio.create_task(running.client.post("/v1/chat/completions", json=body, headers=headers))
            add = await core.next_add()
            assert add.lane == lane
            core.emit(add.seq_id, [END], "stop")
            assert (await request).status_code == 200


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


async def test_metrics_have_the_names_and_labels_of_the_contract(running: Running) -> None:
    core = await running.core()
    request = asyncio.create_task(running.client.post("/v1/chat/completions", json=chat(stream=True)))
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    core.emit(add.seq_id, running.ids(" world"))
    core.emit(add.seq_id, [END], "stop")
    await request
    core.step([], freed=[(99, "decode", 0.01)])
    client = await running.raw("GET", "/livez")
    await client.read_until(b"alive")
    await client.leave()
    text = (await running.client.get("/metrics")).text
    labels = '{lane="interactive",prompt_bucket="0-256"}'
    for name in ("ttft", "itl", "chunk_gap", "tpot", "e2e", "queue", "prefill", "decode"):
        assert f"engine_{name}_seconds_count{labels}" in text
    assert f"engine_prefill_seconds_sum{labels} {STAGES.prefill_s}" in text
    for line in (
        "engine_running 1.0", "engine_waiting 0.0", "engine_kv_blocks_total 100.0", "engine_kv_blocks_free 75.0",
        "engine_kv_blocks_cached 10.0", "engine_kv_utilization 0.25", "engine_kv_leaked_blocks 0.0",
        "engine_prefix_cache_queries_tokens_total 0.0", "engine_prefix_cache_hits_tokens_total 0.0",
        "engine_speculation_drafted_tokens_total 0.0", "engine_speculation_accepted_tokens_total 0.0",
        "engine_speculation_enabled 0.0", "engine_preemptions_total 0.0", "engine_prompt_tokens_total 10.0",
        "engine_generation_tokens_total 5.0", 'engine_startup_seconds{phase="weights"} 0.25',
        'engine_aborts_total{state="decode"} 1.0', 'engine_aborts_total{state="queued"} 0.0',
        'engine_abort_to_free_seconds_count{state="grammar"} 0.0',
        'engine_abort_to_free_seconds_count{state="decode"} 1.0', "engine_step_seconds_count 1.0",
        "engine_detokenize_seconds_count 1.0",
        'engine_stage_counts_total{kind="cached_tokens",lane="interactive",prompt_bucket="0-256"}',
        'engine_ttft_seconds_bucket{lane="interactive",le="0.0001",',
    ):  # fmt: skip
        assert line in text


async def test_totals_go_on_when_the_core_is_replaced(running: Running) -> None:
    core = await running.core()
    core.step([])
    while "engine_generation_tokens_total 5.0" not in (await running.client.get("/metrics")).text:
        await asyncio.sleep(0.005)
    core.die()
    second = await running.core()
    second.step([])
    while "engine_generation_tokens_total 10.0" not in (await running.client.get("/metrics")).text:
        await asyncio.sleep(0.005)
