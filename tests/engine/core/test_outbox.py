"""Frames to the front."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from engine.core.inbox import FrontGoneError
from engine.core.outbox import Outbox
from engine.protocol import FrameSplitter, Phase, decode_to_front
from tests.engine.core.fakes import FakeClock


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The front's socket and the core's."""
    front, core = socket.socketpair()
    with front, core:
        yield front, core


def test_sending_to_a_front_that_is_gone_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    front, core = pair
    front.close()
    with pytest.raises(FrontGoneError):
        Outbox(core, FakeClock()).send(Phase(name="x", seconds=0.0))


def test_a_phase_is_reported_with_its_seconds_and_one_that_fails_is_not(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    front, core = pair
    clock = FakeClock()
    outbox = Outbox(core, clock)
    with outbox.phase("weights"):
        clock.advance(2.5)
    with pytest.raises(RuntimeError), outbox.phase("kv_pool"):
        raise RuntimeError("out of memory")
    outbox.send(Phase(name="last", seconds=0.0))
    core.close()
    data = b"".join(iter(lambda: front.recv(4096), b""))
    messages = [decode_to_front(body) for body in FrameSplitter().feed(data)]
    assert messages == [Phase(name="weights", seconds=2.5), Phase(name="last", seconds=0.0)]
