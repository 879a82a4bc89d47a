"""Delivery of a generation to its client: an event stream as it proceeds, or one body at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from engine.frontend.core_client.generation import Generation
from engine.frontend.core_client.mailbox import RequestAbandoned, StreamHandedOver
from engine.frontend.http.wire import DONE, CollectedChoice, TokenUsage, Wire
from engine.frontend.request.asgi import EVENT_STREAM, Send, send_answer, start_answer
from engine.frontend.request.errors import ApiError, overloaded_error
from engine.frontend.resume.token_report import HANDED_OVER, can_report, token_report
from engine.frontend.text.choice import Choice, Delta

Gained = list[tuple[Choice, Delta]]


class StreamCutError(Exception):
    """A stream ended with an error event; its connection must be closed."""


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
        """Create the response.

        At its start, `headers` returns its headers; at its end, `report` returns further members, or None.
        """
        self._generation = generation
        self._wire = wire
        self._send = send
        self._headers = headers
        self._report = report
        self._write_stall_s = write_stall_s
        self._begun: set[int] = set()
        self._shows_usage = False
        self._reports = False
        self._waiting: Gained = []
        """Output of choices whose next log probabilities wait for later tokens, so that no report could cover it."""

    def resume(self, begun: Iterable[int]) -> None:
        """Report the tokens behind each write to the gateway; choices `begun` had their first events elsewhere."""
        self._reports = True
        self._begun.update(begun)

    async def plain(self) -> None:
        """Collect everything, send one body. Raises ApiError, RequestAbandoned."""
        answers = [CollectedChoice(choice, [], []) for choice in self._generation.choices]
        while not self._generation.is_done:
            for choice, delta in await self._generation.next():
                if delta.has_content:
                    self._generation.note_first_token()
                answers[choice.index].add(delta)
        await self._generation.settle()
        body = self._wire.body(answers, self._usage(), self._report())
        await self._write(send_answer(self._send, 200, body, self._headers()))
        self._generation.note_completed()

    async def stream(self, *, include_usage: bool, is_continuous: bool = False) -> None:
        """Send events as outputs come; the status line goes with the first of them.

        With `is_continuous`, every event carries the usage so far.

        Raises ApiError before the first byte, RequestAbandoned, and StreamCutError after an error event.
        """
        self._shows_usage = is_continuous
        try:
            gained = await self._generation.next()
        except StreamHandedOver:
            raise overloaded_error("The engine is shutting down.", reason="draining") from None
        headers = {**self._headers(), "cache-control": "no-cache", "x-accel-buffering": "no"}
        await self._write(start_answer(self._send, 200, headers, EVENT_STREAM))
        try:
            while not self._generation.is_done:
                await self._send_events(gained)
                gained = await self._generation.next()
            await self._send_ending(gained, include_usage)
        except StreamHandedOver:
            await self._write_events([HANDED_OVER], more=False)
            return
        except ApiError as error:
            await self._write(self._send({"type": "http.response.body", "body": error.event()}))
            raise StreamCutError(error.message) from error
        self._generation.note_completed()

    async def _send_events(self, gained: Gained) -> None:
        """Send all events of one gain in a single write; with reports, those that one can cover."""
        if self._reports:
            self._waiting += gained
            gained = [each for each in self._waiting if can_report(each[0])]
            self._waiting = [each for each in self._waiting if not can_report(each[0])]
        if parts := [*self._text_events(gained), *self._finish_events(gained, None)]:
            if self._reports:
                parts.append(token_report([one for one in self._generation.choices if one.index in self._begun]))
            await self._write_events(parts, more=True)

    async def _send_ending(self, gained: Gained, include_usage: bool) -> None:
        """Send the last texts, finish reasons, the usage if requested, and [DONE]."""
        gained = self._waiting + gained
        parts = self._text_events(gained)
        if not self._generation.is_settled and (include_usage or self._report() is not None):
            await self._write_events(parts, more=True)
            parts = []
            await self._generation.settle()
        report = self._report()
        if include_usage:
            parts += self._finish_events(gained, None)
            parts.append(self._wire.usage(self._usage(), report))
        else:
            parts += self._finish_events(gained, report)
        await self._write_events([*parts, DONE], more=False)

    def _text_events(self, gained: Gained) -> list[bytes]:
        parts: list[bytes] = []
        if self._shows_usage:
            self._wire.show_usage(self._usage())
        for choice, delta in gained:
            if choice.index not in self._begun:
                if choice.may_call and not (delta.has_content or delta.entries or delta.finish is not None):
                    continue  # text or a tool call: the next tokens tell
                self._begun.add(choice.index)
                has_text = bool(delta.text) or not delta.calls
                if opening := self._wire.opening(choice.index, has_text=has_text):
                    parts.append(opening)
            if delta.has_content or delta.entries or delta.reasoning_entries:
                self._generation.note_first_token()
                parts.append(self._wire.delta(choice.index, delta))
        return parts

    def _finish_events(self, gained: Gained, report: dict[str, Any] | None) -> list[bytes]:
        """Finish reasons; the last of these events carries the report."""
        ended = [(choice, delta.finish) for choice, delta in gained if delta.finish is not None]
        return [
            self._wire.finish(choice.index, finish, report if i == len(ended) else None, matched=choice.matched_stop)
            for i, (choice, finish) in enumerate(ended, 1)
        ]

    async def _write_events(self, parts: list[bytes], *, more: bool) -> None:
        await self._write(self._send({"type": "http.response.body", "body": b"".join(parts), "more_body": more}))

    def _usage(self) -> TokenUsage:
        return TokenUsage(
            prompt_tokens=self._generation.prompt.num_tokens,
            completion_tokens=sum(choice.num_tokens for choice in self._generation.choices),
            cached_tokens=self._generation.num_cached_tokens,
            reasoning_tokens=(
                sum(choice.num_reasoning_tokens for choice in self._generation.choices)
                if self._generation.prompt.may_reason
                else None
            ),
            predicted_tokens=self._generation.predicted_tokens,
        )

    async def _write(self, sending: Awaitable[None]) -> None:
        """Finish a send, or give the client up when it does not read. Raises RequestAbandoned."""
        try:
            async with asyncio.timeout(self._write_stall_s):
                await sending
        except TimeoutError as error:
            self._generation.cancel()
            raise RequestAbandoned from error
