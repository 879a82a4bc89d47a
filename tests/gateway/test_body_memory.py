"""Memory of requests and answers: counted by tenant, slowed or refused, and given back on every path."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cache.exact.shared_answer import SharedAnswers
from gateway.limits.body_budget import parsed_bytes
from tests.gateway.quota_policy import quota_policy
from tests.gateway.scripted import COMPLETION, Wire
from tests.gateway.stack import Reply, Stack, chat, encode, running

MB = 1024 * 1024
TOTAL = 32 * MB


def policy(folder: Path) -> str:
    return quota_policy(folder, {"hog": "{max_in_flight: 100}", "calm": "{max_in_flight: 100}"}, permits=64)


@asynccontextmanager
async def small(folder: Path) -> AsyncIterator[Stack]:
    """A gateway in which bodies and answers may take 32 MB together, one tenant's at most 24."""
    async with running(folder, policy=policy(folder)) as stack:
        stack.gateway.bodies.total_bytes = TOTAL
        yield stack


def key(tenant: str) -> dict[str, str]:
    return {"authorization": f"Bearer sk-{tenant}"}


def large(num_bytes: int, **fields: Any) -> dict[str, Any]:
    return {**chat(**fields), "messages": [{"role": "user", "content": "x" * num_bytes}]}


async def unfinished(stack: Stack, tenant: str, num_bytes: int, *, is_chunked: bool) -> tuple[Any, Any]:
    """A client that declares a body of twice `num_bytes`, sends what it can of so many, and waits."""
    reader, writer = await stack.connect()
    framing = {"transfer-encoding": "chunked"} if is_chunked else {"content-length": str(2 * num_bytes)}
    head = {"host": "gateway", "content-type": "application/json", **key(tenant), **framing}
    lines = ["POST /v1/chat/completions HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    writer.write("\r\n".join(lines).encode())
    piece = b"x" * 65536
    if is_chunked:
        piece = b"%x\r\n%b\r\n" % (len(piece), piece)
    for _ in range(num_bytes // 65536):
        writer.write(piece)
    return reader, writer


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_unfinished_bodies_of_one_key_leave_room_for_others(tmp_path: Path, is_chunked: bool) -> None:
    async with small(tmp_path) as stack:
        bodies = stack.gateway.bodies
        clients = [await unfinished(stack, "hog", 3 * MB, is_chunked=is_chunked) for _ in range(30)]
        await asyncio.sleep(0.2)  # real sockets: let them push
        assert bodies.used_bytes <= bodies.total_bytes
        for size in (10, 1000, 200_000):
            reply = await asyncio.wait_for(stack.call(large(size), headers=key("calm")), 2)
            assert reply.status == 200
        refused = [client for client in clients if client[0]._buffer]
        assert refused, "the line of a tenant is short"
        reply = Reply(bytes(refused[0][0]._buffer))
        assert reply.status == 503
        assert reply.headers["x-penstock-shed-reason"] == "tenant_share"
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.headers["connection"] == "close"
        for _, writer in clients:
            writer.transport.abort()
        await until(lambda: bodies.used_bytes == 0 and bodies.num_waiting == 0)
        bodies.check_integrity()
        assert (await stack.call(large(2 * MB), headers=key("hog"))).status == 200
        await until(lambda: bodies.used_bytes == 0)


async def test_a_body_that_has_to_wait_is_read_when_there_is_room(tmp_path: Path) -> None:
    async with small(tmp_path) as stack:
        bodies = stack.gateway.bodies
        _, first = await unfinished(stack, "hog", MB, is_chunked=True)
        holding = bodies.open("hog")
        await holding.cover(bodies.most_bytes - 4 * MB)
        waiting = asyncio.create_task(stack.call(large(3 * MB), headers=key("hog")))
        await until(lambda: bodies.num_waiting == 1)
        holding.release()
        first.transport.abort()
        assert (await waiting).status == 200
        await until(lambda: bodies.used_bytes == 0)


async def test_a_body_counts_until_its_request_has_ended(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def slow(wire: Wire) -> None:
        await go.wait()
        await wire.answer(COMPLETION)

    async with small(tmp_path) as stack:
        stack.small.otherwise = stack.large.otherwise = slow
        requested = asyncio.create_task(stack.call(large(MB), headers=key("hog")))
        await until(lambda: stack.gateway.bodies.used_by("hog") >= 3 * MB)
        go.set()
        assert (await requested).status == 200
        await until(lambda: stack.gateway.bodies.used_bytes == 0)


@pytest.mark.parametrize(
    "request_bytes",
    [
        encode(b"{", headers=key("hog")),
        encode({"model": "auto"}, headers=key("hog")),
        encode(chat("unknown"), headers=key("hog")),
        encode(large(200_000, model="unknown"), headers=key("hog")),
        encode(large(200_000, temperature="hot"), headers=key("hog")),
        encode(large(100), headers={"authorization": "Bearer nobody"}),
        encode(large(100), path="/v1/nothing"),
        encode({"request_id": "r", "verdict": "wrong"}, path="/v1/feedback", headers=key("hog")),
        encode(large(100, stream=True), headers=key("hog")),
    ],
)
async def test_however_a_request_ends_its_memory_is_given_back(tmp_path: Path, request_bytes: bytes) -> None:
    async with small(tmp_path) as stack:
        reader, writer = await stack.connect()
        writer.write(request_bytes)
        await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await until(lambda: stack.gateway.bodies.used_bytes == 0)
        stack.gateway.bodies.check_integrity()


async def test_a_body_that_would_take_everything_once_parsed_is_refused_before_it_is(tmp_path: Path) -> None:
    async with small(tmp_path) as stack:
        body = b'{"model":"auto","messages":[' + b"[]," * 1_000_000 + b"[]]}"
        reply = await stack.call(body, headers=key("hog"))
        assert reply.status == 413
        assert reply.error["code"] == "request_too_large"


@pytest.mark.parametrize(
    "document",
    [
        {"messages": [{"role": "user", "content": "hello " * 2000}]},
        {"messages": [{"role": "user", "content": "a, b, [c] {d}" * 500}]},
        {"x": [[] for _ in range(10_000)]},
        {"x": [{} for _ in range(10_000)]},
        {"x": [f"w{number}" for number in range(10_000)]},
        {"x": list(range(1000, 11_000))},
        {"x": [number + 0.5 for number in range(10_000)]},
        {f"k{number}": number for number in range(10_000)},
    ],
)
def test_the_estimate_covers_what_a_body_takes(document: dict[str, Any]) -> None:
    body = msgspec.json.encode(document)
    assert len(body) + size_of(msgspec.json.decode(body)) <= parsed_bytes(body)


def size_of(value: Any) -> int:
    own = sys.getsizeof(value)
    if isinstance(value, dict):
        return own + sum(size_of(name) + size_of(item) for name, item in value.items())
    return own + sum(map(size_of, value)) if isinstance(value, list) else own


# Answers


def long_completion(num_bytes: int) -> bytes:
    document = json.loads(COMPLETION)
    document["choices"][0]["message"]["content"] = "y" * num_bytes
    return json.dumps(document).encode()


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_long_answers_that_nobody_reads_count(tmp_path: Path, is_chunked: bool) -> None:
    answer = long_completion(4 * MB)

    async def long(wire: Wire) -> None:
        with suppress(ConnectionError):
            if not is_chunked:
                await wire.answer(answer)
                return
            await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
            for begin in range(0, len(answer), 50_000):
                piece = answer[begin : begin + 50_000]
                await wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await wire.end()

    async with small(tmp_path) as stack:
        bodies = stack.gateway.bodies
        stack.small.otherwise = stack.large.otherwise = long
        clients = [await stack.connect() for _ in range(8)]
        for _, writer in clients:
            _reading(writer).pause_reading()
            writer.write(encode(chat(), headers=key("hog")))
        await until(lambda: bodies.used_by("hog") > bodies.most_bytes // 2)
        assert bodies.used_bytes <= bodies.total_bytes
        stack.small.otherwise = stack.large.otherwise = short
        assert (await asyncio.wait_for(stack.call(chat(), headers=key("calm")), 2)).status == 200
        for reader, writer in clients:
            _reading(writer).resume_reading()
            reply = Reply(await asyncio.wait_for(reader.read(), 20))
            assert reply.status in (200, 503)
            assert reply.status == 503 or reply.body == answer
            writer.close()
        await until(lambda: bodies.used_bytes == 0)


def _reading(writer: asyncio.StreamWriter) -> asyncio.ReadTransport:
    """The side of a client's connection that may be left unread."""
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    return transport


async def short(wire: Wire) -> None:
    await wire.answer(COMPLETION)


async def test_an_answer_that_can_never_fit_is_an_upstream_failure(tmp_path: Path) -> None:
    async with small(tmp_path) as stack:

        async def long(wire: Wire) -> None:
            with suppress(ConnectionError):
                await wire.answer(long_completion(20 * MB))

        stack.small.otherwise = stack.large.otherwise = long
        assert (await stack.call(chat(), headers=key("hog"))).status == 502
        await until(lambda: stack.gateway.bodies.used_bytes == 0)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.01)


# Copies and followers


async def test_a_follower_that_is_cut_off_ends_and_others_go_on() -> None:
    shared = SharedAnswers().lead(b"k", b"shape")
    got: list[bytes] = []
    slow, quick = shared.follow(got.append), shared.follow(got.append)
    ends = asyncio.gather(slow.whole(), quick.whole())
    await asyncio.sleep(0)
    slow.cut()
    shared.feed(b"piece")
    shared.finish(b"whole")
    assert list(await ends) == [None, b"whole"]
    assert got == [b"piece"]
