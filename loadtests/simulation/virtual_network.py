"""Connections in memory on a virtual loop: bytes come late, in pieces or never, and either end may vanish.

A connection keeps the order of its bytes, as TCP does. Different connections overtake each other at random, and
so do the end of a connection and the bytes of the opposite direction.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from loadtests.simulation.virtual_loop import VirtualLoop

_HIGH_WATER: Final = 64 * 1024
_SILENCE_S: Final = 30.0
"""Time after which the kernel gives up a connection whose bytes nobody acknowledges."""
_MAX_CUTS: Final = 4

Maker = Callable[[], asyncio.BaseProtocol]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How bad the network is."""

    refused_ratio: float = 0.02
    """Share of connects that are refused."""
    hole_ratio: float = 0.01
    """Share of connects that get no answer."""
    short_ratio: float = 0.01
    """Share of connections that the server closes as soon as they are made."""
    silent_ratio: float = 0.01
    """Share of connections that lose everything from some piece on."""
    late_ratio: float = 0.05
    """Share of pieces that are late by up to a second."""
    cut_ratio: float = 0.1
    """Share of pieces that arrive in several parts."""


class VirtualNetwork:
    """Listeners by port, and the random source that decides about every piece."""

    def __init__(self, rng: random.Random, weather: Weather) -> None:
        self.rng = rng
        self.weather = weather
        self.listeners: dict[int, Maker] = {}
        self.num_late = 0
        self.num_lost = 0

    def delay_s(self) -> float:
        """How long the next piece travels."""
        if self.rng.random() < self.weather.late_ratio:
            self.num_late += 1
            return self.rng.random()
        return self.rng.choice((0.0, 0.0, 0.0002, 0.001))

    async def connect(self, make: Maker, port: int) -> tuple[VirtualTransport, asyncio.BaseProtocol]:
        """A connection to a listener. Raises ConnectionRefusedError; waits for ever in a black hole."""
        await asyncio.sleep(self.delay_s())
        weather, drawn = self.weather, self.rng.random()
        if port not in self.listeners or drawn < weather.refused_ratio:
            raise ConnectionRefusedError("refused")
        if drawn < weather.refused_ratio + weather.hole_ratio:
            self.num_lost += 1
            await asyncio.sleep(3600.0)
        near, far = self.join(make(), self.listeners[port]())
        if self.rng.random() < weather.short_ratio:
            far.close()
        return near, near.get_protocol()

    def join(self, near: asyncio.BaseProtocol, far: asyncio.BaseProtocol) -> tuple[VirtualTransport, VirtualTransport]:
        """Both ends of a new connection."""
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        ends = VirtualTransport(self, loop, near), VirtualTransport(self, loop, far)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        if self.rng.random() < self.weather.silent_ratio:
            ends[0].pieces_left = ends[1].pieces_left = self.rng.randrange(6)
        for end in ends:
            end.get_protocol().connection_made(end)
        return ends


class VirtualTransport(asyncio.Transport):
    """One end of a connection."""

    peer: VirtualTransport

    def __init__(self, network: VirtualNetwork, loop: VirtualLoop, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._network = network
        self._loop = loop
        self._protocol = protocol
        self._outgoing: deque[bytes] = deque()
        self._size = 0
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._timer: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._is_closing = False
        self._has_written_eof = False
        self._is_paused = False
        self.pieces_left: int | None = None
        """Pieces that still get through; None for all."""
        self.is_lost = False
        """Whether the protocol was notified of the end."""
        self.closed_at: float | None = None
        """When this end began to close, or noticed that the other had."""

    # asyncio.Transport

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.peer.deliver_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._has_written_eof or not data:
            return
        piece = bytes(data)
        self._size += len(piece)
        self._outgoing.extend(self._cut(piece))
        if self._size > self._high and not self._is_paused:
            self._is_paused = True
            cast(asyncio.Protocol, self._protocol).pause_writing()
        self.deliver_soon()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._has_written_eof:
            self._has_written_eof = True
            self.deliver_soon()

    def close(self) -> None:
        if self._is_closing:
            return
        self._note_closing()
        self._has_written_eof = True
        self.deliver_soon()
        self.peer.deliver_soon()  # what waited to be read is refused now

    def abort(self) -> None:
        """Vanish: the other end sees a reset, unless nothing gets through to it."""
        if self.is_lost:
            return
        self._note_closing()
        self._drop()
        self._loop.call_soon(self._lose, None)
        if not self._is_silent:
            self._loop.call_later(self._network.delay_s(), self.peer.reset)

    # Between the ends

    @property
    def _is_silent(self) -> bool:
        return self.pieces_left is not None and self.pieces_left <= 0

    def deliver_soon(self) -> None:
        """Let the next piece, or the end, travel."""
        if self._timer is None and not self.is_lost and (self._outgoing or self._has_written_eof):
            self._timer = self._loop.call_later(self._network.delay_s(), self._deliver)

    def reset(self) -> None:
        """The other end vanished."""
        if not self.is_lost:
            self._note_closing()
            self._drop()
            self._lose(ConnectionResetError("reset by peer"))

    def _deliver(self) -> None:
        self._timer = None
        if self._is_silent:
            self._network.num_lost += 1
            self._timer = self._loop.call_later(_SILENCE_S, self._give_up)
            return
        peer = self.peer
        if peer._is_closing or peer.is_lost:
            self._drop()  # nobody reads there any more
            if self._is_closing:
                self._finish()
            else:
                self._loop.call_soon(self.reset)
            return
        if not peer._is_reading:
            return  # its `resume_reading` goes on
        if self._outgoing:
            self._send_one(peer)
        else:
            self._send_eof(peer)

    def _send_one(self, peer: VirtualTransport) -> None:
        piece = self._outgoing.popleft()
        self._size -= len(piece)
        if self.pieces_left is not None:
            self.pieces_left -= 1
        cast(asyncio.Protocol, peer._protocol).data_received(piece)
        if self._is_paused and self._size <= self._low and not self.is_lost:
            self._is_paused = False
            cast(asyncio.Protocol, self._protocol).resume_writing()
        self.deliver_soon()

    def _send_eof(self, peer: VirtualTransport) -> None:
        if not cast(asyncio.Protocol, peer._protocol).eof_received():
            peer.close()
        if self._is_closing:
            self._finish()

    def _cut(self, piece: bytes) -> list[bytes]:
        rng = self._network.rng
        if len(piece) < 2 or rng.random() >= self._network.weather.cut_ratio:
            return [piece]
        cuts = sorted({rng.randrange(1, len(piece)) for _ in range(rng.randint(1, _MAX_CUTS))})
        return [piece[start:end] for start, end in zip([0, *cuts], [*cuts, len(piece)], strict=True)]

    def _give_up(self) -> None:
        self._timer = None
        if not self.is_lost:
            self._note_closing()
            self._drop()
            self._lose(TimeoutError("nothing was acknowledged"))

    def _note_closing(self) -> None:
        self._is_closing = True
        if self.closed_at is None:
            self.closed_at = self._loop.time()

    def _drop(self) -> None:
        self._outgoing.clear()
        self._size = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish(self) -> None:
        self._loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._note_closing()
        self._protocol.connection_lost(error)
        self.peer.deliver_soon()  # it learns that nobody reads here


class _Listening:
    """What `create_unix_server` returns."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def close(self) -> None:
        """Close the socket that names the listener."""
        self._raw.close()


class NetworkedLoop(VirtualLoop):
    """A virtual loop whose connections go through `network`."""

    network: VirtualNetwork | None = None
    served: dict[str, Maker]
    """Factories of the connections of each listening Unix socket, by path."""

    def __init__(self) -> None:
        super().__init__()
        self.served = {}

    async def create_connection(  # type: ignore[override] # the part that is used
        self, protocol_factory: Maker, host: str | None = None, port: int = 0, **options: Any
    ) -> tuple[VirtualTransport, asyncio.BaseProtocol]:
        if self.network is None:
            raise ConnectionRefusedError("there is no network yet")
        return await self.network.connect(protocol_factory, port)

    async def create_unix_server(  # type: ignore[override] # the part that is used
        self, protocol_factory: Maker, path: str | None = None, *, sock: Any = None, **options: Any
    ) -> _Listening:
        self.served[sock.getsockname()] = protocol_factory
        return _Listening(sock)
