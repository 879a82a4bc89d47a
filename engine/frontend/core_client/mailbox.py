"""Buffer of one request's outputs between the connection and the task that sends them to the client."""

from __future__ import annotations

import asyncio

from engine.protocol import SeqOutput


class RequestAbandoned(Exception):
    """The client of this request has disconnected."""


class DeadlinePassed(Exception):
    """The deadline of this request has passed."""


class StreamHandedOver(Exception):
    """The gateway continues this stream at another engine, because this one drains."""


class Mailbox:
    """Queue with many writers and one reader on one event loop, bounded by the sequences' output limits."""

    def __init__(self) -> None:
        self._outputs: list[tuple[SeqOutput, float]] = []
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, output: SeqOutput, arrived_at: float) -> None:
        """Add an output with its arrival time."""
        self._outputs.append((output, arrived_at))
        self._wake()

    def fail(self, failure: Exception) -> None:
        """End the queue with an exception. The first one counts, and `take` raises it after the outputs before it."""
        if self._failure is None:
            self._failure = failure
            self._wake()

    async def take(self) -> list[tuple[SeqOutput, float]]:
        """Wait for outputs and return all that arrived since the last call.

        Raises:
            RequestAbandoned: At once, even with outputs left.
            Exception: The failure set by `fail`, once no output is left.
        """
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
