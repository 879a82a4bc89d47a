"""A standby waits for the front's word."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import CoreConfig
from engine.core.inbox import FrontGoneError, Inbox
from engine.core.outbox import Outbox
from engine.core.standby import Standby, StandbyEnded
from engine.protocol import Abort, FrameSplitter, Shutdown, StandingBy, TakeOver, decode_to_front, encode_frame
from tests.engine.core.fakes import FakeClock

CONFIG = CoreConfig.of(Path("/models/tiny"), num_blocks=7, block_size=32)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Standby]]:
    """The front's socket, and a standby at its other end."""
    front, core = socket.socketpair()
    with front, core:
        inbox = Inbox(core, FakeClock())
        inbox.start()
        yield front, Standby(inbox, Outbox(core, FakeClock()))


@pytest.mark.parametrize(("num_blocks", "expected"), [(50, 50), (0, 7)])
def test_a_takeover_continues_with_the_pool_of_the_core_before(
    num_blocks: int, expected: int, pair: tuple[socket.socket, Standby]
) -> None:
    front, standby = pair
    front.sendall(encode_frame(Abort(seq_ids=[1])) + encode_frame(TakeOver(num_blocks=num_blocks)))
    config = standby.wait(CONFIG)
    assert config == CONFIG.changed(num_blocks=expected)
    (body,) = FrameSplitter().feed(front.recv(4096))
    assert decode_to_front(body) == StandingBy()


def test_a_standby_that_is_not_needed_ends(pair: tuple[socket.socket, Standby]) -> None:
    front, standby = pair
    front.sendall(encode_frame(Shutdown()))
    with pytest.raises(StandbyEnded):
        standby.wait(CONFIG)


def test_a_standby_ends_with_its_front(pair: tuple[socket.socket, Standby]) -> None:
    front, standby = pair
    front.shutdown(socket.SHUT_WR)
    with pytest.raises(FrontGoneError):
        standby.wait(CONFIG)
