"""A real engine whose core is killed, and requests that can never be served: all answered, and it goes on."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app.app import Gateway
from gateway.config.sources import config_of
from tests.e2e.lone_engine import LoneEngine, lone_engine
from tests.gateway.scripted import ScriptedUpstream

pytestmark = pytest.mark.e2e

LIMIT_S = 1.0
CHAT: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}
BOMB: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "bomb",
        "schema": {"type": "string", "pattern": "^(([a-z]{1,999}){1,999}){1,999}$"},
    },
}
NEVER = [
    ("over-long prompt", {**CHAT, "messages": [{"role": "user", "content": "word " * 20_000}]}, 400),
    ("absurdly long prompt", {**CHAT, "messages": [{"role": "user", "content": "x" * 3_000_000}]}, 400),
    ("over the budget", {**CHAT, "max_tokens": 100_000}, 400),
    ("a wrong type", {**CHAT, "temperature": "hot"}, 400),
    ("no messages", {"model": "small"}, 400),
    ("another model", {**CHAT, "model": "other"}, 404),
    ("too many choices", {**CHAT, "n": 1000}, 400),
    ("too many stop strings", {**CHAT, "stop": ["x"] * 100}, 400),
    ("a negative length", {**CHAT, "max_tokens": -1}, 400),
    ("a length beyond all integers", {**CHAT, "max_tokens": 10**30}, 400),
    ("a bias for no token", {**CHAT, "logit_bias": {"999999999": 1}}, 400),
    ("a schema that explodes", {**CHAT, "response_format": BOMB}, 400),
    (
        "tools without a schema",
        {**CHAT, "tools": [{"type": "function", "function": {"name": "f", "parameters": 3}}]},
        400,
    ),
    ("an impossible schema", {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": 7}}}, 400),
]

CRASHING_COMPILER = """\
import os
import signal
import sys

if "engine.core" in sys.orig_argv:
    from numba.core import ccallback

    def crash(code):
        os.kill(os.getpid(), signal.SIGILL)

    ccallback.CFunc.compile = crash
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneEngine]:
    with lone_engine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.mark.parametrize(("name", "body", "status"), NEVER, ids=[name for name, _, _ in NEVER])
def test_what_can_never_be_served_is_refused_at_once(
    engine: LoneEngine, name: str, body: dict[str, Any], status: int
) -> None:
    data = json.dumps(body).encode()
    with engine.client() as client:
        started_at = time.monotonic()
        response = client.post("/v1/chat/completions", content=data, headers={"content-type": "application/json"})
        seconds = time.monotonic() - started_at
    assert response.status_code == status, response.text[:500]
    assert response.json()["error"]["code"]
    assert seconds < LIMIT_S


def test_malformed_bytes_are_refused_at_once(engine: LoneEngine) -> None:
    with engine.client() as client:
        started_at = time.monotonic()
        for data in (b"", b"{", b"[" * 100_000, b"\xff\xfe", b'{"model": "small", "model": "small"}'):
            response = client.post("/v1/chat/completions", content=data, headers={"content-type": "application/json"})
            assert response.status_code == 400
        assert time.monotonic() - started_at < LIMIT_S


def test_a_core_killed_in_the_middle_of_a_stream_is_reported_and_comes_back(engine: LoneEngine) -> None:
    body = {**CHAT, "max_tokens": 3000, "ignore_eos": True, "stream": True}
    first = engine.core_pid()
    with engine.client() as client:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            pieces = response.iter_text()
            received = next(pieces)
            os.kill(first, signal.SIGKILL)
            killed_at = time.monotonic()
            received += "".join(pieces)
            assert time.monotonic() - killed_at < LIMIT_S
        *_, last = [event for event in received.split("\n\n") if event]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "upstream_error"
        assert "[DONE]" not in received

        engine.wait_until_ready()
        assert engine.core_pid() != first
        again = client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 4})
        assert again.status_code == 200
        assert again.json()["usage"]["completion_tokens"] > 0
    phases = engine.start_phases()
    assert phases["recovery"] > phases["import"]  # everything was done anew


def test_a_compiler_that_crashes_costs_one_core_and_then_steps_run_in_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(CRASHING_COMPILER)  # Python imports it at its start
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    with lone_engine(tmp_path) as engine, engine.client() as client:
        response = client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 4})
        assert response.status_code == 200
        metrics = client.get("/metrics").text
    crash = "SIGILL ended the last core while it compiled "
    (kernels,) = [line for line in metrics.splitlines() if line.startswith("engine_cpu_kernels_info")]
    assert 'steps="torch"' in kernels
    assert f'reason="{crash}' in kernels
    log = (tmp_path / "engine.log").read_text()
    (lost,) = [line for line in log.splitlines() if "core lost" in line]
    assert "exit status -4" in lost
    (failed,) = [line for line in log.splitlines() if "compiled code failed" in line]
    assert f"compiled code failed ({crash}" in failed
    assert "steps run in torch" in failed


async def test_a_gateway_in_front_holds_requests_until_the_core_is_back(engine: LoneEngine, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f"schema_version: 1\ndeployments: [{{id: small, url: 'unix:{engine.path}', model: small}}]\n"
        "routes: [{id: main, match: {models: [auto]}, select: {candidates: [small]}}]\n"
    )
    config = config_of(
        {
            "public.listen": f"unix:{tmp_path}/public.sock",
            "admin.listen": f"unix:{tmp_path}/admin.sock",
            "policy.document": policy,
            "process.runtime_dir": tmp_path,
        }
    )
    engine.wait_until_ready()
    gateway = Gateway(config, log_stream=io.BytesIO())
    await gateway.start()
    try:
        transport = httpx.AsyncHTTPTransport(uds=f"{tmp_path}/public.sock")
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=120.0) as client:
            body = {**CHAT, "model": "auto", "max_tokens": 4}
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            live = gateway._current().deployments["small"]
            deadline = time.monotonic() + 60
            while live.forecast.report(time.monotonic()) is None:  # it listens to what the engine states of itself
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            os.kill(engine.core_pid(), signal.SIGKILL)
            while live.is_ready:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            held = await asyncio.gather(*(client.post("/v1/chat/completions", json=body) for _ in range(3)))
            assert [reply.status_code for reply in held] == [200, 200, 200]
            found = await client.post("/v1/chat/completions", json=body, headers={"x-stainless-read-timeout": "30"})
            assert found.status_code == 200
    finally:
        await gateway.stop(drain_timeout_s=0)


async def test_plain_requests_leave_an_engine_whose_core_was_stopped(engine: LoneEngine, tmp_path: Path) -> None:
    """Its port and its probes answer, and its feed states that no step is made."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "schema_version: 1\ndeployments:\n"
        f"  - {{id: small, url: 'unix:{engine.path}', model: small}}\n"
        f"  - {{id: other, url: 'unix:{tmp_path}/other.sock', model: other}}\n"
        "routes: [{id: main, match: {models: [auto]}, select: {candidates: [small, other]}}]\n"
    )
    config = config_of(
        {
            "public.listen": f"unix:{tmp_path}/public.sock",
            "admin.listen": f"unix:{tmp_path}/admin.sock",
            "policy.document": policy,
            "process.runtime_dir": tmp_path,
        }
    )
    engine.wait_until_ready()
    core = engine.core_pid()
    gateway = Gateway(config, log_stream=io.BytesIO())
    async with ScriptedUpstream(tmp_path / "other.sock"):
        await gateway.start()
        try:
            transport = httpx.AsyncHTTPTransport(uds=f"{tmp_path}/public.sock")
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60.0) as client:
                body = {**CHAT, "model": "auto", "max_tokens": 1500, "ignore_eos": True}
                live = gateway._current().deployments["small"]
                deadline = time.monotonic() + 60
                while live.forecast.report(time.monotonic()) is None:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.02)
                whole = await client.post("/v1/chat/completions", json=body)
                assert whole.headers["x-penstock-deployment"] == "small", "a long answer is waited for"
                os.kill(core, signal.SIGSTOP)
                begun = time.monotonic()
                replies = await asyncio.gather(*(client.post("/v1/chat/completions", json=body) for _ in range(3)))
                assert time.monotonic() - begun < 10
                assert {reply.headers["x-penstock-deployment"] for reply in replies} == {"other"}
                assert live.is_ready
                again = await client.post("/v1/chat/completions", json=body)
                assert again.headers["x-penstock-deployment"] == "other"
        finally:
            os.kill(core, signal.SIGCONT)
            await gateway.stop(drain_timeout_s=0)


def test_a_standby_takes_over_from_a_killed_core_without_starting_anew(tmp_path: Path) -> None:
    with lone_engine(tmp_path, "--standby-cores", "1") as engine:
        deadline = time.monotonic() + 120
        while b"a standby is loaded" not in (tmp_path / "engine.log").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        core, standby = engine.core_pids()
        os.kill(core, signal.SIGKILL)
        while "recovery" not in (phases := engine.start_phases()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert standby in engine.core_pids()
        # What took longest was done before it was needed.
        assert phases["recovery"] < phases["import"] + phases["weights"] + phases["kv_pool"] + phases["warm_up"]
        with engine.client() as client:
            again = client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 4})
        assert again.status_code == 200


LATE = [("spent", "-5", 503), ("hopeless", "0.001", 503), ("no number", "soon", 400), ("huge", "9" * 40, 400)]


@pytest.mark.parametrize(("name", "deadline_ms", "status"), LATE, ids=[name for name, _, _ in LATE])
def test_deadlines_that_cannot_be_met_are_refused_at_once(
    engine: LoneEngine, name: str, deadline_ms: str, status: int
) -> None:
    with engine.client() as client:
        started_at = time.monotonic()
        response = client.post("/v1/chat/completions", json=CHAT, headers={"x-penstock-deadline-ms": deadline_ms})
        assert time.monotonic() - started_at < LIMIT_S
    assert response.status_code == status
    assert (response.headers.get("x-penstock-shed-reason") == "deadline") == (status == 503)


def test_nothing_that_was_refused_holds_a_block(engine: LoneEngine) -> None:
    assert engine.metric("engine_kv_leaked_blocks") == 0
    assert engine.metric("engine_running") == 0
