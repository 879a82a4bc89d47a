"""Long and ill-meant requests to a gateway of its own: linear in time, beside its event loop, and no reason to stay."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.processes import GatewayProcess, gateway_process
from tests.gateway.scripted import COMPLETION, Script, ScriptedUpstream, Wire
from tests.gateway.stack import Reply, chat, encode

pytestmark = pytest.mark.e2e

KINDS: Final = ("plain", "exact", "standalone", "trim", "quality", "cascade")
POLICY: Final = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{engine}", model: penstock-small, cost_per_mtok: {{prompt: 1, completion: 1}}}}
  - {{id: large, url: "unix:{engine}", model: penstock-large, cost_per_mtok: {{prompt: 9, completion: 9}}}}
routes:
  - id: plain
    match: {{models: [plain]}}
    select: {{policy: first_available, candidates: [small, large]}}
  - id: exact
    match: {{models: [exact]}}
    cache: {{mode: exact}}
    select: {{policy: first_available, candidates: [small, large]}}
  - id: standalone
    match: {{models: [standalone]}}
    cache: {{mode: exact_then_semantic, history: standalone}}
    select: {{policy: first_available, candidates: [small, large]}}
  - id: trim
    match: {{models: [trim]}}
    trim: {{budget_tokens: 1000, strategies: [minify, dedupe, cap_tool_outputs, drop_old_turns, extract_passages]}}
    select: {{policy: first_available, candidates: [small, large]}}
  - id: quality
    match: {{models: [quality], when: 'request.text.matches("(a+)+b") || request.turns > 0'}}
    select: {{policy: quality_then_latency, min_quality: 0.8, candidates: [small, large]}}
  - id: cascade
    match: {{models: [cascade]}}
    select: {{policy: cascade, min_quality: 0.8, candidates: [small, large]}}
"""
MAX_LAG_S: Final = 0.5
"""Of the whole process on a machine that others use too, some twenty times what it has on an idle one: a step of the
loop that grew with the square of the body took twelve seconds.
"""
ANSWERED_S: Final = 20.0

BODIES: Final[dict[str, Callable[[int], list[dict[str, Any]]]]] = {
    "one word": lambda size: [{"role": "user", "content": "a" * size}],
    "spaces": lambda size: [{"role": "user", "content": "a" + " " * size + "b"}],
    "full stops": lambda size: [{"role": "user", "content": "." * size + "x"}, {"role": "user", "content": "what?"}],
    "turns": lambda size: [{"role": "user", "content": f"{n} " + "x" * (size // 4096)} for n in range(4000)],
    "marks": lambda size: [{"role": "user", "content": "a" + "\u0323\u0301" * (size // 14)}],
}


async def answer(wire: Wire) -> None:
    """At once, whatever was called; the test's own loop reads no megabytes of JSON."""
    await wire.answer(COMPLETION)


@asynccontextmanager
async def served(
    folder: Path, *program: str, settings: Mapping[str, object] | None = None, script: Script = answer
) -> AsyncIterator[GatewayProcess]:
    async with (
        ScriptedUpstream(folder / "engine.sock", script) as engine,
        gateway_process(
            folder,
            "a",
            engine.path,
            listen=f"unix:{folder}/public.sock",
            policy_text=POLICY,
            program=("tests.gateway.watched_gateway", *program),
            settings=settings,
        ) as found,
    ):
        yield found


async def call(place: Path, body: bytes = b"", **how: Any) -> Reply:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_unix_connection(place)
    writer.write(encode(body or None, **how))
    async with asyncio.timeout(ANSWERED_S):
        raw = await reader.read()
    writer.close()
    return Reply(raw)


async def worst_lag_s(folder: Path) -> float:
    """Since this was last called."""
    text = (await call(folder / "a.sock", path="/metrics", method="GET")).body.decode()
    found = re.search(r"^penstock_event_loop_lag_seconds (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found.group(1))


async def least_lag_s(folder: Path, send: Callable[[], Awaitable[None]]) -> float:
    """Return the least of the worst lags of up to three tries: others work on this machine, too."""
    least_s = math.inf
    for _ in range(3):
        await worst_lag_s(folder)
        await send()
        least_s = min(least_s, await worst_lag_s(folder))
        if least_s < MAX_LAG_S:
            break
    return least_s


def keys(num: int, *, space: str) -> bytes:
    """A body with so many unknown keys at its top."""
    unknown = ",".join(f'"k{number:06}"{space}:{number}' for number in range(num))
    return f'{{"model"{space}:"plain","messages":[{{"role":"user","content":"hi"}}],{unknown}}}'.encode()


@pytest.mark.parametrize("kind", KINDS)
async def test_eight_megabytes_on_every_kind_of_route_hold_nobody_up(kind: str, tmp_path: Path) -> None:
    """Bad input row 53."""
    async with served(tmp_path, "watched"):
        for name, make in BODIES.items():
            body = json.dumps(chat(kind, messages=make(8 << 20))).encode()

            async def send(name: str = name, body: bytes = body) -> None:
                reply = await call(tmp_path / "public.sock", body)
                assert reply.status == 200, (name, reply.body[:300])

            assert await least_lag_s(tmp_path, send) < MAX_LAG_S, name


async def test_thousands_of_unknown_keys_are_served_or_refused_beside_the_loop(tmp_path: Path) -> None:
    """Bad input row 24, with and without a login."""
    async with served(tmp_path, "watched"):
        for num in (5_000, 20_000, 100_000, 300_000):
            for space in ("", " ", "\n"):
                body, status = keys(num, space=space), 200 if num <= 200_000 else 400

                async def send(body: bytes = body, status: int = status) -> None:
                    reply = await call(tmp_path / "public.sock", body)
                    assert reply.status == status, reply.body[:300]
                    twice = await call(tmp_path / "public.sock", body[:-1] + b',"k000007" :1}')
                    assert (twice.status, twice.error["code"]) == (400, "invalid_json")
                    login = await call(tmp_path / "a.sock", body, path="/admin/api/login")
                    assert login.status in (400, 401, 413, 429)

                assert await least_lag_s(tmp_path, send) < MAX_LAG_S, (num, space)


MANY_VALUES: Final = {
    "least floats": (",".join(["9e-309"] * 28_000), 200),
    "greatest floats": (",".join(["1.7976931348623157e308"] * 190_000), 200),
    "long floats": (",".join([f"1.{'1' * 780}e-300"] * 5_000), 200),
    "millions of floats": (",".join(["1e-320"] * 1_100_000), 200),
    "millions of lists": (",".join(["[]"] * 2_700_000), 400),
    "millions of objects": (",".join(["{}"] * 2_700_000), 400),
    "nests": (",".join(["[" * 58 + "]" * 58] * 68_000), 400),
    "lists and strings": (",".join(['["[{"]'] * 1_000_000), 400),
    "brackets in strings": (",".join(['"[[[[[[{\\"["'] * 190_000), 200),
    "brackets in a string": ('"' + '[\\"{' * 1_500_000 + '"', 200),
}


@pytest.mark.parametrize(("values", "status"), MANY_VALUES.values(), ids=MANY_VALUES.keys())
async def test_values_that_are_slow_to_read_hold_nobody_up(values: str, status: int, tmp_path: Path) -> None:
    """Bad input row 24."""
    body = f'{{"model":"plain","messages":[{{"role":"user","content":"hi"}}],"own":[{values}]}}'.encode()

    async def send() -> None:
        reply = await call(tmp_path / "public.sock", body)
        assert reply.status == status, reply.body[:300]

    async def log_in() -> None:
        await call(tmp_path / "a.sock", body, path="/admin/api/login")

    async with served(tmp_path, "watched"):
        assert await least_lag_s(tmp_path, send) < MAX_LAG_S
        assert await least_lag_s(tmp_path, log_in) < MAX_LAG_S


FLAT_LISTS: Final = {
    "stops": ('"stop":[%s]', '"a"', 400, "stop"),
    "biases": ('"logit_bias":{%s}', '"%d":1', 400, "logit_bias"),
    "metadata": ('"metadata":{%s}', '"%d":"a"', 400, None),  # up to the limit of all keys
    "tools": ('"tools":[%s]', "1", 400, "tools"),
    "parts": ('"messages":[{"role":"user","content":[%s]}]', '"a"', 400, "messages[0].content"),
    "input": ('"input":[%s]', "17", 200, ""),
    "words": ('"input":[%s]', '"ab"', 200, ""),
    "nested": ('"own":{"a":[{"b":[%s]}]}', "0.5", 200, ""),
    "in a message": ('"messages":[{"role":"user","content":"a","own":[%s]}]', '"ab"', 200, ""),
    "in a schema": (
        '"tools":[{"type":"function","function":{"name":"f","parameters":{"enum":[%s]}}}]',
        '"ab"',
        200,
        "",
    ),
    "in a short object": ('"own":{%s}', '"k%06d":1', 400, None),
}


@pytest.mark.parametrize("num_bytes", [16 << 10, 256 << 10, 4 << 20])
async def test_flat_lists_are_capped_or_hold_nobody_up(num_bytes: int, tmp_path: Path) -> None:
    async with served(tmp_path, "watched"):
        for name, (place, item, status, field) in FLAT_LISTS.items():
            num = num_bytes // (len(item % 0 if "%" in item else item) + 1)
            items = ",".join(item % number for number in range(num)) if "%" in item else ",".join([item] * num)
            message = "" if '"messages"' in place else '"messages":[{"role":"user","content":"hi"}],'
            body = f'{{"model":"exact",{message}{place % items}}}'.encode()
            allowed = {200, 400} if field is None else {status}

            async def send(
                name: str = name, body: bytes = body, allowed: set[int] = allowed, field: str | None = field
            ) -> None:
                reply = await call(tmp_path / "public.sock", body)
                assert reply.status in allowed, (name, reply.body[:300])
                if reply.status == 400 and field is not None:
                    assert reply.error["param"].startswith(field), (name, reply.body[:300])

            assert await least_lag_s(tmp_path, send) < MAX_LAG_S, name


async def test_a_message_with_thousands_of_members_ends_no_process(tmp_path: Path) -> None:
    """Bad input row 24: sorted by the encoder they overflow the stack."""
    async with served(tmp_path, "watched") as gateway:
        for kind in ("exact", "standalone"):
            for num in (200, 4_000, 150_000):
                unknown = ",".join(f'"k{number:06}":{number}' for number in range(num))
                body = f'{{"model":"{kind}","messages":[{{"role":"user","content":"hi",{unknown}}}]}}'.encode()

                async def send(body: bytes = body) -> None:
                    reply = await call(tmp_path / "public.sock", body)
                    assert reply.status == 200, reply.body[:300]

                assert await least_lag_s(tmp_path, send) < MAX_LAG_S, (kind, num)
        assert gateway.process.returncode is None


async def test_short_requests_are_answered_while_long_ones_are_read(tmp_path: Path) -> None:
    long = keys(100_000, space=" ")
    async with served(tmp_path, "watched"):
        flood = [asyncio.create_task(call(tmp_path / "public.sock", long)) for _ in range(16)]
        while not all(task.done() for task in flood):
            began_at = time.monotonic()
            assert (await call(tmp_path / "public.sock", json.dumps(chat("plain")).encode())).status == 200
            assert time.monotonic() - began_at < ANSWERED_S / 4
        assert {task.result().status for task in flood} == {200}
