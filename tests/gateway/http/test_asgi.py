"""Verbs over plain ASGI, and the watch for clients that leave: behind this edge, and behind any other server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.http.asgi import (
    BodyTooLarge,
    ClientGone,
    Message,
    Receive,
    Scope,
    edge_channel,
    find_header,
    find_headers,
    read_body,
    respond,
    until_gone,
)


def _messages(*messages: Message) -> Receive:
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    return receive


def _parts(*parts: bytes) -> Receive:
    return _messages(
        *(
            {"type": "http.request", "body": part, "more_body": number + 1 < len(parts)}
            for number, part in enumerate(parts)
        )
    )


async def test_a_body_in_one_piece_is_not_copied() -> None:
    body = b"x" * 1000
    assert await read_body(_parts(body), 1000) is body


async def test_a_body_in_pieces_is_joined() -> None:
    assert await read_body(_parts(b"a", b"", b"bc"), 3) == b"abc"


@pytest.mark.parametrize("parts", [(b"abcd",), (b"ab", b"cd"), (b"a", b"b", b"c", b"d")])
async def test_a_body_over_the_limit_is_refused(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(BodyTooLarge):
        await read_body(_parts(*parts), 3)


@pytest.mark.parametrize("first", [(), ({"type": "http.request", "body": b"a", "more_body": True},)])
async def test_a_body_that_ends_early_is_a_client_gone(first: tuple[Message, ...]) -> None:
    with pytest.raises(ClientGone):
        await read_body(_messages(*first, {"type": "http.disconnect"}), 10)


async def test_a_message_without_body_is_an_empty_body() -> None:
    assert await read_body(_messages({"type": "http.request"}), 0) == b""


def test_headers_are_found_by_name() -> None:
    scope = {"headers": [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]}
    assert find_header(scope, b"a") == b"1"
    assert find_header(scope, b"c") is None
    assert find_headers(scope, b"a") == [b"1", b"3"]


async def test_a_response_is_two_messages_with_a_length() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await respond(send, 201, [(b"x-a", b"b")], b"hello")
    assert sent == [
        {"type": "http.response.start", "status": 201, "headers": [(b"x-a", b"b"), (b"content-length", b"5")]},
        {"type": "http.response.body", "body": b"hello", "more_body": False},
    ]


@pytest.mark.parametrize("scope", [{}, {"extensions": None}, {"extensions": {}}])
def test_another_server_offers_no_channel(scope: dict[str, object]) -> None:
    assert edge_channel(scope) is None


class FakeChannel:
    """The edge's channel, given by the test that the client left."""

    is_stopping = False

    def __init__(self) -> None:
        self.is_gone = False
        self.callbacks: list[Callable[[], None]] = []

    def on_gone(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def off_gone(self, callback: Callable[[], None]) -> None:
        if callback in self.callbacks:
            self.callbacks.remove(callback)

    def leave(self) -> None:
        self.is_gone = True
        for callback in self.callbacks[:]:
            callback()


class Client:
    """One request's other end: behind the edge (`channel`) or behind a server that only has `receive`."""

    def __init__(self, *, is_edge: bool, body: tuple[bytes, ...] = (b"",)) -> None:
        self.channel = FakeChannel()
        self.scope: Scope = {"type": "http", "extensions": {"penstock": self.channel} if is_edge else {}}
        self.is_edge = is_edge
        self.num_receiving = 0
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        for number, part in enumerate(body):
            message = {"type": "http.request", "body": part, "more_body": number + 1 < len(body)}
            self._messages.put_nowait(message)

    async def receive(self) -> Message:
        self.num_receiving += 1
        assert self.num_receiving == 1, "two readers race for messages"
        try:
            return await self._messages.get()
        finally:
            self.num_receiving -= 1

    def leave(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})
        if self.is_edge:
            self.channel.leave()


@pytest.fixture(params=["edge", "other server"])
def is_edge(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "edge")


async def test_the_body_is_read_whole_under_the_watch(is_edge: bool) -> None:
    client = Client(is_edge=is_edge, body=(b"a", b"b", b"c", b"d", b"e", b"f", b"g"))
    async with until_gone(client.scope, client.receive) as gone:
        await asyncio.sleep(0.001)
        assert await read_body(gone.receive, 100) == b"abcdefg"
        assert not gone.is_gone


async def test_waiting_ends_when_the_client_leaves_unless_somebody_else_waits(is_edge: bool) -> None:
    client = Client(is_edge=is_edge)
    notified = asyncio.Event()
    async with until_gone(client.scope, client.receive) as gone:
        gone.stays = lambda end: True
        gone.on_gone(notified.set)
        asyncio.get_running_loop().call_later(0.005, client.leave)
        await asyncio.wait_for(notified.wait(), 2.0)
        assert gone.is_gone


async def test_a_client_that_leaves_before_its_body_is_complete_ends_the_reading(is_edge: bool) -> None:
    client = Client(is_edge=is_edge, body=(b"a", b"b"))
    client._messages.get_nowait()
    client._messages.get_nowait()
    client._messages.put_nowait({"type": "http.request", "body": b"a", "more_body": True})
    client.leave()
    with pytest.raises(ClientGone):
        async with until_gone(client.scope, client.receive) as gone:
            await read_body(gone.receive, 100)


async def test_work_for_a_client_that_left_is_cancelled_and_cleaned_up(is_edge: bool) -> None:
    client = Client(is_edge=is_edge)
    cleaned: list[str] = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.005, client.leave)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # cleaning up may wait
            cleaned.append("released")

    with pytest.raises(ClientGone):
        async with until_gone(client.scope, client.receive):
            await work()
    assert cleaned == ["released"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert client.channel.callbacks == []


async def test_a_client_gone_before_the_watch_began_cancels_at_the_first_wait() -> None:
    client = Client(is_edge=True)
    original = client.channel.on_gone
    client.channel.on_gone = lambda callback: callback()  # type: ignore[method-assign]
    with pytest.raises(ClientGone):
        async with until_gone(client.scope, client.receive):
            await asyncio.sleep(5.0)
    client.channel.on_gone = original  # type: ignore[method-assign]


async def test_a_cancellation_from_outside_stays_one(is_edge: bool) -> None:
    client = Client(is_edge=is_edge)

    async def work() -> None:
        async with until_gone(client.scope, client.receive):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_work_itself_passes_through(is_edge: bool) -> None:
    client = Client(is_edge=is_edge)
    with pytest.raises(LookupError):
        async with until_gone(client.scope, client.receive):
            raise LookupError


async def test_work_that_finished_is_not_cancelled_by_a_later_leave(is_edge: bool) -> None:
    client = Client(is_edge=is_edge)
    async with until_gone(client.scope, client.receive) as gone:
        await read_body(gone.receive, 10)
    client.leave()
    await asyncio.sleep(0.002)


async def test_callbacks_run_once_and_late_ones_at_once(is_edge: bool) -> None:
    client = Client(is_edge=is_edge)
    calls: list[str] = []
    async with until_gone(client.scope, client.receive) as gone:
        gone.stays = lambda end: True
        notified = asyncio.Event()
        gone.on_gone(lambda: calls.append("first"))
        gone.on_gone(notified.set)
        client.leave()
        await notified.wait()
        gone.on_gone(lambda: calls.append("late"))
    assert calls == ["first", "late"]


async def test_no_task_outlives_the_watch(is_edge: bool) -> None:
    client = Client(is_edge=is_edge)
    async with until_gone(client.scope, client.receive):
        pass
    assert len(asyncio.all_tasks()) == 1


async def test_an_error_of_the_servers_receive_reaches_the_reader() -> None:
    async def receive() -> Message:
        raise ConnectionError("server broke")

    scope: dict[str, Any] = {"type": "http"}
    async with until_gone(scope, receive) as gone:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ConnectionError, match="server broke"):
            await gone.receive()


async def test_behind_the_edge_a_watch_costs_microseconds() -> None:
    client = Client(is_edge=True)
    best_s = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            async with until_gone(client.scope, client.receive):
                pass
        best_s = min(best_s, (time.perf_counter() - began) / 100)
    assert best_s < 20e-6  # twice the budget of 10 µs, so that a busy machine does not fail the build
