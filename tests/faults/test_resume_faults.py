"""Streams that go on at another engine when theirs fails: what clients read is what an undisturbed stream has."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from routing_policies.policy.deployment import UP_RESUME_KEY
from tests.e2e.lone_engine import LoneEngine, lone_engine
from tests.faults.resume_proof import COMPLETION, SIGNALS, SPECULATION, TAKEN_OUT, breaking_connections, struck
from tests.faults.resume_stack import KEY_VARIABLE, REQUESTS, read_stream, resuming, stream_of, two_engines
from tests.faults.up import up_process
from tests.support.fault_proxy import Toxics

pytestmark = pytest.mark.e2e

_NUM_POINTS = 6
"""Random points of each kind of stream at which its connection breaks."""

_UP_POLICY = f"""\
schema_version: 1
deployments:
  - {{id: small, url: "unix:${{runtime_dir}}/small.sock", model: penstock-small, resume_key_env: {UP_RESUME_KEY}}}
  - {{id: large, url: "unix:${{runtime_dir}}/large.sock", model: penstock-small, resume_key_env: {UP_RESUME_KEY}}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small, large]}}
    resume: exact
"""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoneEngine, LoneEngine]]:
    """Two engines with the same model and key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, "0123456789abcdef" * 4)
        with two_engines(tmp_path_factory.mktemp("engines")) as found:
            yield found


async def test_a_stream_whose_connection_breaks_anywhere_goes_on_token_for_token(
    engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    rng = random.Random(1)
    async with resuming(tmp_path, *engines) as stack:
        for kind in REQUESTS:
            assert await breaking_connections(stack, kind, rng, _NUM_POINTS) == []
        assert await stack.num_resumed() >= len(REQUESTS)  # others broke before their first event, or behind the last


_STORY = "Write a story about a ship."
OTHER_APIS = {
    "/v1/responses": {"input": _STORY, "max_output_tokens": 40},
    "/v1/messages": {"messages": [{"role": "user", "content": _STORY}], "max_tokens": 40},
}
"""Requests of other APIs than chat completions, by path."""
_OWN = {"id", "item_id", "created_at", "completed_at", "sequence_number"}
"""Members of events that are each request's own."""
_CACHED = {"cached_tokens", "cache_read_input_tokens"}
"""Members with the number of tokens that an engine had in its cache."""


def content_of(stream: bytes) -> list[tuple[str, Any]]:
    """Return what the events of a stream say, with the pieces of each text as one."""
    found: list[tuple[str, Any]] = []
    for event in stream.split(b"\n\n"):
        data = next((line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")), b"")
        if not data:
            continue
        document = json.loads(data)
        kind, delta = document["type"], document.get("delta")
        piece = delta if isinstance(delta, str) else (delta or {}).get("text")
        if piece is not None and found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + piece)
        else:
            found.append((kind, _shared(document) if piece is None else piece))
    return found


def _shared(value: Any) -> Any:
    """Return what every answer to the same request has of a document; cached tokens count as computed ones."""
    if isinstance(value, list):
        return [_shared(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {name: _shared(item) for name, item in value.items() if name not in _OWN | _CACHED}
    if "cache_read_input_tokens" in value:
        found["input_tokens"] += value["cache_read_input_tokens"] or 0
    return found


@pytest.mark.parametrize("path", OTHER_APIS)
async def test_a_stream_of_another_api_goes_on_as_well(
    path: str, engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    rng = random.Random(path)
    async with resuming(tmp_path, *engines) as stack:
        body = {"model": "auto", "stream": True, "temperature": 0, **OTHER_APIS[path]}
        undisturbed = await stack.call(body, path=path)
        assert undisturbed.status == 200, undisturbed.body
        assert content_of(undisturbed.body)[-1][0] in ("response.completed", "response.incomplete", "message_stop")
        chat = {**stream_of("greedy"), "messages": [{"role": "user", "content": _STORY}], "ignore_eos": False}
        num_bytes = len((await stack.call(chat)).body)
        for _ in range(2 * _NUM_POINTS):
            point = rng.randint(600, max(num_bytes, 1200))
            stack.first.toxics = Toxics(limit_bytes=point, limit_behind=COMPLETION, limit_ends="reset")
            reply = await stack.call(body, path=path)
            if reply.status not in (502, 503):  # it broke before its first event, and retries were used up
                assert content_of(reply.body) == content_of(undisturbed.body), point
        assert await stack.num_resumed() >= 1  # others broke before their first event, or behind the last


def num_accepted(engine: LoneEngine) -> float:
    """Return the number of tokens of predictions that an engine's answers have."""
    with engine.client() as client:
        lines = client.get("/metrics").text.splitlines()
    kind = 'kind="accepted_prediction_tokens"'
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("engine_stage_counts_total") and kind in line
    )


async def test_a_stream_with_a_prediction_goes_on_as_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "0123456789abcdef" * 4)
    rng = random.Random(2)
    with two_engines(tmp_path, *SPECULATION) as engines:
        async with resuming(tmp_path, *engines) as stack:
            for kind in ("greedy", "seeded", "penalties", "stop strings", "logprobs", "schema"):
                assert await breaking_connections(stack, kind, rng, _NUM_POINTS, predicts=True) == []
            assert await stack.num_resumed() >= 6
        assert sum(map(num_accepted, engines)) > 0


async def test_streams_of_an_engine_that_hangs_go_on_at_another(
    engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    async with resuming(tmp_path, *engines, inter_token_ms=700) as stack:
        assert await struck(stack, engines[0], "hung", random.Random(1)) == []
        assert await stack.num_resumed() >= 4


@pytest.mark.parametrize("fate", sorted(SIGNALS.keys() - {"hung"}))
async def test_streams_of_an_engine_that_is_killed_or_drains_go_on_at_another(
    fate: str, engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    with lone_engine(tmp_path, "--resume-key-env", KEY_VARIABLE, "--drain-timeout-s", "60") as victim:
        async with resuming(tmp_path, victim, engines[1]) as stack:
            assert await struck(stack, victim, fate, random.Random(fate)) == []
            assert await stack.num_resumed() >= 4


async def test_a_deployment_that_an_operator_drains_is_empty_before_its_streams_end(
    engines: tuple[LoneEngine, LoneEngine], tmp_path: Path
) -> None:
    async with resuming(tmp_path, *engines) as stack:
        assert await struck(stack, engines[0], TAKEN_OUT, random.Random(5)) == []
        assert await stack.num_resumed() >= 4
        assert {line["deployment"] for line in stack.lines() if "resumed" in (line.get("detail") or "")} == {"second"}


async def test_engines_with_different_keys_do_not_continue_streams(
    engines: tuple[LoneEngine, LoneEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "f" * 64)
    async with resuming(tmp_path, *engines) as stack:
        stack.first.toxics = Toxics(limit_bytes=900, limit_behind=COMPLETION, limit_ends="reset")
        found = await stack.read(stream_of("greedy"))
        assert found is not None
        assert found.num_roles == 1
        assert not found.is_whole
        assert await stack.num_resumed() == 0


async def test_a_route_with_resume_needs_no_key_of_its_own_under_up(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "policy.yaml").write_text(_UP_POLICY)
    models = ("--small", "penstock-small", "--large", "penstock-small")
    async with up_process(folder, "--policy", "policy.yaml", *models) as up:
        await up.until(lambda: "curl http" in up.text)
        body = {**stream_of("greedy", 400), "max_tokens": 400}
        async with httpx.AsyncClient(timeout=60) as client:
            url = f"http://127.0.0.1:{up.port}/v1/chat/completions"
            undisturbed = await client.post(url, json=body)
            async with client.stream("POST", url, json=body) as reply:
                pieces = reply.aiter_bytes()
                got = await anext(pieces)
                os.kill(up.child_pid("small.sock"), signal.SIGKILL)
                got += b"".join([piece async for piece in pieces])
        found, expected = read_stream(got), read_stream(undisturbed.content)
        assert expected.is_whole
        assert found == expected
        await up.until(lambda: len(up.lines("request")) == 2)
        assert up.lines("request")[1]["detail"].startswith("resumed at large behind ")
        assert UP_RESUME_KEY not in up.text
