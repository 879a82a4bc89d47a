"""Replays of recorded answers with real engines: byte-equal where nothing changed, and each kind of change named."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from gateway.app.app import Gateway
from gateway.cli.main import main
from gateway.config.sources import config_of
from gateway.replay.report import FACTORS
from tests.e2e.lone_engine import MODELS, LoneEngine, lone_engine
from tests.gateway.stack import NO_EJECTION, Stack, holding_nothing

pytestmark = pytest.mark.e2e

_POLICY: Final = """
schema_version: 1
deployments:
  - {{id: first, url: "unix:{first}", model: small}}
  - {{id: second, url: "unix:{second}", model: small}}
routes:
{routes}
"""
_TIMEOUTS: Final = "timeouts: {connect_ms: 5000, first_token_ms: 60000, inter_token_ms: 60000, total_ms: 60000}"
_STORY: Final = [
    {"role": "system", "content": "You tell stories."},
    {"role": "user", "content": "Write a story about a ship and its crew."},
    {"role": "assistant", "content": "The ship left at dawn, and its crew sang. " * 20},
    {"role": "user", "content": "Go on with the story."},
]
SEED: Final = 0
"""Seed with which the quantized model draws other tokens."""
MAIN: Final = "select: {policy: first_available, candidates: [first]}"


def route(name: str, rules: str, model: str = "auto") -> str:
    """Return a route of a policy."""
    return (
        f"  - id: {name}\n    match: {{models: [{model}]}}\n    {_TIMEOUTS}\n    "
        + rules.replace("\n", "\n    ")
        + "\n"
    )


class ReplayStack(Stack):
    """A gateway that records answers, over one engine or two."""

    def __init__(self, gateway: Gateway, folder: Path, engines: tuple[Path, Path], log: io.BytesIO) -> None:
        super().__init__(gateway, None, None, log)  # type: ignore[arg-type]  # no scripted upstreams
        self.folder = folder
        self._engines = engines

    async def take(self, routes: str) -> None:
        """Put a policy with these routes in force."""
        write_policy(self.folder, self._engines, routes)
        await self.gateway.control.look()

    async def probe(self) -> None:
        """Let the gateway see which engines are ready."""
        await self.gateway._prober.probe_all()

    async def send(self, *, cache_control: str | None = None, **fields: Any) -> str:
        """Send a request and return its id."""
        fixed = {"model": "auto", "messages": _STORY, "max_tokens": 64, "ignore_eos": True, "temperature": 1.2}
        headers = {} if cache_control is None else {"cache-control": cache_control}
        async with self._client("public") as client:
            reply = await client.post("/v1/chat/completions", json={**fixed, **fields}, headers=headers)
        assert reply.status_code == 200, reply.text
        return reply.headers["x-request-id"]

    async def replay(self, request_id: str, **order: Any) -> dict[str, Any]:
        """Replay a recorded answer through the admin API."""
        headers = {"authorization": f"Bearer {self.admin_token}"}
        async with self._client("admin") as client:
            reply = await client.post("/admin/api/replay", json={"id": request_id, **order}, headers=headers)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()["replay"]
        return found

    async def bisect(self, request_id: str, **order: Any) -> dict[str, Any]:
        """Search for the change that changed an answer."""
        found = await self.replay(request_id, bisect=True, **order)
        assert [one["factor"] for one in found["factors"]] == [
            name for name in FACTORS if name in {one["factor"] for one in found["factors"]}
        ]
        return found

    def _client(self, listener: str) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(uds=str(self.folder / f"{listener}.sock"))
        return httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=120.0)


def write_policy(folder: Path, engines: tuple[Path, Path], routes: str) -> Path:
    """Write the policy file."""
    path = folder / "policy.yaml"
    path.write_text(_POLICY.format(first=engines[0], second=engines[1], routes=routes))
    return path


def settings_of(folder: Path) -> dict[str, Any]:
    """Return the settings of a gateway that records answers."""
    return {
        "public.listen": f"unix:{folder}/public.sock",
        "admin.listen": f"unix:{folder}/admin.sock",
        "policy.document": folder / "policy.yaml",
        "process.runtime_dir": folder / "run",
        "telemetry.recorder.mode": "answers",
    }


@asynccontextmanager
async def recording(folder: Path, engines: tuple[Path, Path], routes: str) -> AsyncIterator[ReplayStack]:
    """Run a gateway that records answers."""
    write_policy(folder, engines, routes)
    log = io.BytesIO()
    gateway = Gateway(config_of(settings_of(folder)), log_stream=log, ejection=NO_EJECTION)
    async with holding_nothing(ReplayStack(gateway, folder, engines, log)) as stack:
        yield stack


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoneEngine, LoneEngine]]:
    """Two engines with the small model, the second one quantized."""
    folders = [tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")]
    with lone_engine(folders[0]) as first, lone_engine(folders[1], "--quantization", "int4") as second:
        yield first, second


@pytest.fixture
def paths(engines: tuple[LoneEngine, LoneEngine]) -> tuple[Path, Path]:
    """Sockets of the engines."""
    return engines[0].path, engines[1].path


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    """Return the verdict of each factor that is not as it was."""
    return {one["factor"]: one["verdict"] for one in found["factors"] if one["verdict"] != "same"}


async def test_an_answer_is_given_again_byte_for_byte(tmp_path: Path, paths: tuple[Path, Path]) -> None:
    async with recording(tmp_path, paths, route("main", MAIN)) as stack:
        greedy = await stack.send(temperature=0)
        sampled = await stack.send()
        streamed = await stack.send(stream=True)
        seeded = await stack.send(seed=7)
        found = {name: await stack.bisect(name) for name in (greedy, sampled, streamed, seeded)}
        for one in found.values():
            assert one["is_equal"], one["summary"]
            assert one["compared"] == "deployment"
            assert one["first"] is None
            assert verdicts(one) == {}
            assert one["state"] == one["state_now"]
            assert one["state"]["quantization"].startswith("none/")
        assert found[greedy]["seed"] is None, "a greedy answer needs none"
        assert found[seeded]["seed"] == 7
        assert isinstance(found[sampled]["seed"], int), "the gateway fixed one"
        assert found[sampled]["seed"] != found[streamed]["seed"]
        assert await stack.metric("penstock_replays_total", result="equal") == 4
        assert await stack.metric("penstock_answer_records_total", end="recorded") == 4


async def test_another_trimming_is_named(tmp_path: Path, paths: tuple[Path, Path]) -> None:
    async with recording(tmp_path, paths, route("main", MAIN)) as stack:
        sent = await stack.send()
        await stack.take(route("main", f"{MAIN}\ntrim: {{budget_tokens: 60, strategies: [drop_old_turns]}}"))
        found = await stack.bisect(sent)
        assert found["first"] == "trimming", found["summary"]
        assert verdicts(found) == {"trimming": "changes", "policy": "no_effect"}
        assert found["is_equal"], "the recorded body still gives the recorded text"


async def test_another_cached_response_is_named(tmp_path: Path, paths: tuple[Path, Path]) -> None:
    async with recording(tmp_path, paths, route("main", f"{MAIN}\ncache: {{mode: exact}}")) as stack:
        sent = await stack.send()
        assert verdicts(await stack.bisect(sent)) == {"cache": "no_effect"}, "its own response is in the cache now"
        await stack.send(cache_control="no-cache")  # another draw, which replaces the cached response
        found = await stack.bisect(sent)
        assert found["first"] == "cache", found["summary"]
        assert verdicts(found) == {"cache": "changes"}
        hit = await stack.send()
        again = await stack.replay(hit)
        assert again["compared"] == "origin"
        assert again["is_equal"], again["summary"]


async def test_another_choice_of_deployment_is_named(tmp_path: Path, paths: tuple[Path, Path]) -> None:
    async with recording(tmp_path, paths, route("main", MAIN)) as stack:
        sent = await stack.send(seed=SEED)
        await stack.take(route("main", "select: {policy: first_available, candidates: [second]}"))
        found = await stack.bisect(sent)
        assert found["first"] == "routing", found["summary"]
        assert verdicts(found) == {"routing": "changes", "policy": "no_effect"}


async def test_another_policy_revision_is_named(tmp_path: Path, paths: tuple[Path, Path]) -> None:
    async with recording(tmp_path, paths, route("main", MAIN)) as stack:
        sent = await stack.send(seed=SEED)
        other = route("newer", "select: {policy: first_available, candidates: [second]}")
        await stack.take(other + route("main", MAIN))
        found = await stack.bisect(sent)
        assert found["first"] == "policy", found["summary"]
        assert verdicts(found) == {"policy": "changes"}


async def test_a_policy_that_refuses_the_request_is_named(tmp_path: Path, paths: tuple[Path, Path]) -> None:
    async with recording(tmp_path, paths, route("main", MAIN, model="mine")) as stack:
        sent = await stack.send(model="mine")
        await stack.take(route("main", MAIN, model="yours"))
        found = await stack.bisect(sent)
        assert found["first"] == "policy", found["summary"]
        (policy,) = [one for one in found["factors"] if one["factor"] == "policy"]
        assert "it refuses the request now" in policy["note"]


async def test_another_prompt_is_named(tmp_path: Path, paths: tuple[Path, Path]) -> None:
    async with recording(tmp_path, paths, route("main", MAIN)) as stack:
        sent = await stack.send()
        found = await stack.bisect(sent, prompt="You answer with one word.")
        assert found["first"] == "prompt", found["summary"]
        assert verdicts(found) == {"prompt": "changes"}
        assert found["is_equal"]
        same = await stack.bisect(sent, prompt=json.dumps({"messages": _STORY}))
        assert same["first"] is None, same["summary"]


async def test_another_quantization_and_another_model_are_named(tmp_path: Path, paths: tuple[Path, Path]) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    path = folder / "engine.sock"
    async with AsyncEngine(folder) as engine, recording(tmp_path, (path, paths[1]), route("main", MAIN)) as stack:
        sent = await stack.send(seed=SEED)
        await engine.restart("--quantization", "int4")
        await stack.probe()
        quantized = await stack.bisect(sent)
        assert quantized["first"] == "quantization", quantized["summary"]
        assert verdicts(quantized) == {"quantization": "changes"}

        await engine.restart("--model", str(with_other_weights(folder / "model")))
        await stack.probe()
        other = await stack.bisect(sent)
        assert other["first"] == "model", other["summary"]
        assert verdicts(other) == {"model": "changes"}
        (model,) = [one for one in other["factors"] if one["factor"] == "model"]
        assert model["then"] == other["state"]["model"] != model["now"] == other["state_now"]["model"]

        await engine.restart()
        assert (await stack.replay(sent))["is_equal"], "the first model gives the first answer again"


async def test_the_command_prints_what_changed(
    tmp_path: Path, paths: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    async with recording(tmp_path, paths, route("main", MAIN)) as stack:
        sent = await stack.send(seed=SEED)
        config = tmp_path / "penstock.toml"
        config.write_text(
            f'[admin]\nlisten = "unix:{tmp_path}/admin.sock"\n[process]\nruntime_dir = "{tmp_path}/run"\n'
        )
        command = ["replay", sent, "--config", str(config)]
        assert await asyncio.to_thread(main, command) == 0
        assert "Byte-equal" in capsys.readouterr().out
        copied = shutil.copytree(tmp_path / "run" / "recorded" / "answers", tmp_path / "copied")
        shutil.rmtree(tmp_path / "run" / "recorded" / "answers")
        assert await asyncio.to_thread(main, command) == 1
        assert "is recorded here" in capsys.readouterr().err
        await stack.take(route("main", "select: {policy: first_available, candidates: [second]}"))
        assert await asyncio.to_thread(main, [*command, "--bisect", "--records", str(copied)]) == 1
        printed = capsys.readouterr().out
        assert "The first change that changes the text is routing" in printed
        assert "from byte" in printed


class AsyncEngine:
    """An engine that is restarted with other flags on its socket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = lone_engine(folder)

    async def __aenter__(self) -> AsyncEngine:
        await asyncio.to_thread(self._running.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._running.__exit__, None, None, None)

    async def restart(self, *flags: str) -> None:
        """End the engine, and start it anew."""
        await self.__aexit__()
        self._running = lone_engine(self._folder, *flags)
        await self.__aenter__()


def with_other_weights(folder: Path) -> Path:
    """Copy the small model, and change its weights a little."""
    shutil.copytree(MODELS / "penstock-small", folder)
    path = folder / "model.safetensors"
    weights = bytearray(path.read_bytes())
    for place in range(len(weights) // 2 & ~1, len(weights) - 1, 2):
        weights[place] ^= 0x20  # a high bit of each fraction
    path.write_bytes(weights)
    return folder
