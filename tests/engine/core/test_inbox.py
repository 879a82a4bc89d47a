"""Frames off a socket, stamped on receipt."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from engine.core.inbox import FrontGoneError, Inbox
from engine.protocol import Abort, Shutdown, ToCore, encode_frame
from tests.engine.core.fakes import FakeClock, make_add


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The front's socket and the core's."""
    front, core = socket.socketpair()
    with front, core:
        yield front, core


def test_messages_come_in_order_with_their_time_of_receipt(pair: tuple[socket.socket, socket.socket]) -> None:
    front, core = pair
    inbox = Inbox(core, FakeClock())
    inbox.start()
    sent: list[ToCore] = [make_add(1, range(50_000)), Abort(seq_ids=[1]), Shutdown()]
    front.sendall(b"".join(encode_frame(message) for message in sent))
    received = inbox.drain(wait=True)
    while len(received) < 3:
        received += inbox.drain(wait=True)
    assert [item.message for item in received] == sent
    assert {item.at for item in received} == {1000.0}
    assert inbox.drain(wait=False) == []


def test_the_end_of_the_stream_is_an_error_after_what_came_before(pair: tuple[socket.socket, socket.socket]) -> None:
    front, core = pair
    inbox = Inbox(core, FakeClock())
    front.close()
    inbox.start()
    with pytest.raises(FrontGoneError, match="closed"):
        inbox.drain(wait=True)


def test_a_broken_frame_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    front, core = pair
    inbox = Inbox(core, FakeClock())
    inbox.start()
    front.sendall(b"\x00\x00\x00\x03abc")
    with pytest.raises(FrontGoneError, match="bad frame"):
        inbox.drain(wait=True)
