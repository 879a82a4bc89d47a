"""Where the outputs of one request's sequences wait for the task that sends them on."""

from __future__ import annotations

import asyncio

from engine.protocol import SeqOutput


class RequestAbandoned(Exception):
    """Nobody waits for this request any more."""


class DeadlinePassed(Exception):
    """Whoever waits for this request has given it no more time."""


class Mailbox:
    """Many writers, one reader, one event loop. Bounded by what the sequences may generate."""

    def __init__(self) -> None:
        self._outputs: list[tuple[SeqOutput, float]] = []
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, output: SeqOutput, arrived_at: float) -> None:
        """Add an output with the instant it came."""
        self._outputs.append((output, arrived_at))
        self._wake()

    def fail(self, failure: Exception) -> None:
        """Nothing more will come; the first failure is kept and raised after the outputs before it."""
        if self._failure is None:
            self._failure = failure
            self._wake()

    async def take(self) -> list[tuple[SeqOutput, float]]:
        """Everything that came since the last call; waits for something. Raises the failure; ClientGone at once."""
        while not self._outputs and self._failure is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._failure is not None and (not self._outputs or isinstance(self._failure, RequestAbandoned)):
            raise self._failure
        outputs, self._outputs = self._outputs, []
        return outputs

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
