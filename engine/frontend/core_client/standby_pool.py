"""Pool of prepared standby cores, one of which takes over when the serving core is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.live_core import LiveCore, Spawn, compiler_crash
from engine.protocol import Compiling, Fatal, Phase, StandingBy, TakeOver, ToFront, encode_frame

logger = logging.getLogger(__name__)


class StandbyCore:
    """Listener of one standby; it forwards the recorded phases to the link at takeover."""

    def __init__(self) -> None:
        self.standing_by = asyncio.Event()
        self.taken = asyncio.Event()
        self.phases: list[Phase] = []
        self.fatal = ""
        self.compiling = ""
        """Name of the code that the standby compiles; empty: nothing is being compiled."""
        self._transport: asyncio.WriteTransport | None = None

    def attached(self, transport: asyncio.WriteTransport) -> None:
        """Store the transport of the process that has connected."""
        self._transport = transport

    def received(self, message: ToFront) -> None:
        """Handle a frame from the standby."""
        if isinstance(message, Phase):
            self.phases.append(message)
        elif isinstance(message, StandingBy):
            self.standing_by.set()
        elif isinstance(message, Compiling):
            self.compiling = message.what
        elif isinstance(message, Fatal):
            self.fatal = message.message

    def take_over(self, live: LiveCore, link: CoreLink, num_blocks: int) -> None:
        """Make this standby the serving core.

        Args:
            live: The standby's process and connection.
            link: Listener from now on.
            num_blocks: Size of the lost core's KV pool; 0: the standby measures the memory.
        """
        assert self._transport is not None
        self.taken.set()
        live.connection.listener = link
        link.attached(self._transport)
        for phase in self.phases:
            link.received(phase)
        self._transport.write(encode_frame(TakeOver(num_blocks=num_blocks)))


class StandbyPool:
    """Pool of `size` standbys. It starts them only while a core serves, so that they slow no start of a core."""

    def __init__(
        self,
        link: CoreLink,
        spawn: Spawn,
        size: int,
        *,
        avoid_compiled_code: Callable[[str], None],
        start_s: float,
        stop_s: float,
        pause_s: float,
    ) -> None:
        """Create a pool without standbys.

        Args:
            link: Link to the serving core.
            spawn: Starts a standby.
            size: Number of standbys.
            avoid_compiled_code: Makes later cores compile nothing; the argument tells how the compiler ended a standby.
            start_s: Maximum wait until a standby is loaded, in seconds.
            stop_s: Timeout of each stage of its end, in seconds.
            pause_s: Pause before a lost standby is replaced, in seconds.
        """
        self._link = link
        self._spawn = spawn
        self._size = size
        self._avoid_compiled_code = avoid_compiled_code
        self._start_s = start_s
        self._stop_s = stop_s
        self._pause_s = pause_s
        self._idle: list[tuple[LiveCore, StandbyCore]] = []

    @property
    def num_idle(self) -> int:
        """Number of standbys that could take over now."""
        return len(self._idle)

    async def run(self) -> None:
        """Start the standbys and replace those lost or taken. Cancel it to end the ones that are left."""
        async with asyncio.TaskGroup() as group:
            for index in range(self._size):
                group.create_task(self._keep_one(), name=f"standby {index}")

    def take(self, num_blocks: int) -> LiveCore | None:
        """Make a standby the serving core.

        Returns:
            The standby, or None if no live one is left.
        """
        while self._idle:
            live, standby = self._idle.pop(0)
            if not live.exited.done() and not live.connection.lost.is_set():
                standby.take_over(live, self._link, num_blocks)
                return live
        return None

    async def _keep_one(self) -> None:
        while True:
            await self._until_served()
            standby = StandbyCore()
            try:
                live = await LiveCore.start(self._spawn, standby)
            except OSError as error:
                logger.error("a standby could not be started: %s", error)
                await asyncio.sleep(self._pause_s)
                continue
            try:
                await self._stand_by(live, standby)
            finally:
                if not standby.taken.is_set():
                    self._idle = [pair for pair in self._idle if pair[0] is not live]
                    await live.end(is_polite=False, stop_s=self._stop_s)
            if not standby.taken.is_set():
                crash = compiler_crash(live.status, standby.compiling)
                if crash:
                    self._avoid_compiled_code(crash)
                logger.error("a standby was lost: %s", standby.fatal or crash or "it ended")
                await asyncio.sleep(self._pause_s)

    async def _stand_by(self, live: LiveCore, standby: StandbyCore) -> None:
        """Wait until a started standby is taken or lost."""
        if await self._came(standby.standing_by, live, timeout_s=self._start_s):
            live.seal()
            self._idle.append((live, standby))
            logger.info("a standby is loaded: %s", ", ".join(f"{p.name} {p.seconds:.2f} s" for p in standby.phases))
            await self._came(standby.taken, live, timeout_s=None)
        if not standby.taken.is_set():
            await live.read_to_the_end()

    async def _came(self, event: asyncio.Event, live: LiveCore, *, timeout_s: float | None) -> bool:
        """Wait for the event, the end of the process or the timeout; return whether the event is set."""
        waiting = asyncio.create_task(event.wait(), name="standby event")
        endings: set[asyncio.Task[object]] = {waiting, live.exited}
        try:
            await asyncio.wait(endings, timeout=timeout_s, return_when="FIRST_COMPLETED")
        finally:
            waiting.cancel()
        return event.is_set()

    async def _until_served(self) -> None:
        with self._link.watch() as changed:
            while self._link.state != "ready":
                changed.clear()
                await changed.wait()
