"""Sends a generation on to its client as it comes: an event stream, or one body at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from engine.front.asgi import EVENT_STREAM, Send, send_answer, start_answer
from engine.front.choice import Choice, Delta
from engine.front.errors import ApiError
from engine.front.generation import Generation
from engine.front.mailbox import ClientGone
from engine.front.wire import DONE, Answer, Usage, Wire

logger = logging.getLogger(__name__)


class Relay:
    """One answer on its way out. The generation must have been entered."""

    def __init__(
        self,
        generation: Generation,
        wire: Wire,
        send: Send,
        *,
        headers: Callable[[], Mapping[str, str]],
        report: Callable[[], dict[str, Any] | None],
        write_stall_s: float,
    ) -> None:
        """`headers`: of the response, asked for when it starts. `report`: members for the end, or None."""
        self._generation = generation
        self._wire = wire
        self._send = send
        self._headers = headers
        self._report = report
        self._write_stall_s = write_stall_s
        self._opened: set[int] = set()

    async def plain(self) -> None:
        """Collect everything, send one body. Raises ApiError, ClientGone."""
        answers = [Answer(choice, [], []) for choice in self._generation.choices]
        while not self._generation.is_done:
            for choice, delta in await self._generation.next():
                if delta.text:
                    self._generation.note_first_token()
                answers[choice.index].texts.append(delta.text)
                answers[choice.index].entries.extend(delta.entries)
        body = self._wire.body(answers, self._usage(), self._report())
        await self._write(send_answer(self._send, 200, body, self._headers()))
        self._generation.note_completed()

    async def stream(self, *, include_usage: bool) -> None:
        """Send events as outputs come; the status line goes with the first of them.

        Raises ApiError before the first byte and ClientGone; later failures become an error event.
        """
        gained = await self._generation.next()
        headers = {**self._headers(), "cache-control": "no-cache", "x-accel-buffering": "no"}
        await start_answer(self._send, 200, headers, EVENT_STREAM)
        try:
            await self._send_events(gained, include_usage)
            while not self._generation.is_done:
                await self._send_events(await self._generation.next(), include_usage)
        except ApiError as error:
            logger.warning("answer cut after its first byte: %s", error.message)
            await self._write(self._send({"type": "http.response.body", "body": error.event()}))
            return
        self._generation.note_completed()

    async def _send_events(self, gained: list[tuple[Choice, Delta]], include_usage: bool) -> None:
        """One write for all that was gained at once."""
        parts: list[bytes] = []
        for choice, delta in gained:
            self._add_events(parts, choice, delta, include_usage)
        is_done = self._generation.is_done
        if is_done:
            if include_usage:
                parts.append(self._wire.usage(self._usage(), self._report()))
            parts.append(DONE)
        if parts:
            message = {"type": "http.response.body", "body": b"".join(parts), "more_body": not is_done}
            await self._write(self._send(message))

    def _add_events(self, parts: list[bytes], choice: Choice, delta: Delta, include_usage: bool) -> None:
        if choice.index not in self._opened:
            self._opened.add(choice.index)
            parts.append(self._wire.opening(choice.index))
        if delta.text or delta.entries:
            self._generation.note_first_token()
            parts.append(self._wire.delta(choice.index, delta))
        if delta.finish is not None:
            is_last = self._generation.is_done and not include_usage and self._is_last_to_end(choice)
            parts.append(self._wire.finish(choice.index, delta.finish, self._report() if is_last else None))

    def _is_last_to_end(self, choice: Choice) -> bool:
        """Of choices that end in one write, the one whose event is the last; then it carries the report."""
        return choice.index == self._generation.last_ended_index

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=len(self._generation.prompt.token_ids),
            completion_tokens=sum(choice.num_tokens for choice in self._generation.choices),
            cached_tokens=self._generation.num_cached_tokens,
        )

    async def _write(self, sending: Any) -> None:
        """Finish a send, or give the client up when it does not read. Raises ClientGone."""
        try:
            async with asyncio.timeout(self._write_stall_s):
                await sending
        except TimeoutError as error:
            self._generation.cancel()
            raise ClientGone from error
