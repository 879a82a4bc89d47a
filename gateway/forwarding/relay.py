"""Relay: an upstream's answer to the client, byte for byte, with a bounded copy for the record."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from gateway.cache.exact.fingerprint import stream_shape
from gateway.cache.exact.needs import needs_of
from gateway.cache.exact.shared_answer import SharedAnswer
from gateway.chat.request import ChatRequest
from gateway.chat.strict_json import LONG_BYTES
from gateway.completion.answer_end import AnswerEnd, has_first_token, merge_timing, usage_of
from gateway.completion.prediction_counts import MARK, without_prediction_counts
from gateway.completion.replay import as_event_stream, id_member, reissued
from gateway.completion.stream_outcome import DONE, StreamOutcome
from gateway.errors import UpstreamFailed
from gateway.forwarding.error_mapping import SCHEMA_IGNORED
from gateway.forwarding.logprob_filter import edited_events, events_without_odds, without_odds
from gateway.forwarding.stream_head import EVENT_ENDS, WholeEvents
from gateway.forwarding.timing_events import TimingEvents
from gateway.http.asgi import EdgeChannel, Header
from gateway.request_context import RequestContext
from gateway.telemetry.records.record import RequestPhase, Usage
from gateway.timeline import Stage
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.response import UpstreamResponse

MAX_PLAIN_BYTES: Final = 32 * 1024 * 1024
"""Largest plain answer that is held to see whether it is whole."""


DONE_EVENT: Final = b"data: [DONE]\n\n"

_DONE_EVENT: Final = re.compile(rb"(?<![^\r\n])data: ?\[DONE\]\s*")

FROM_CACHE: Final = "cache"
"""Source of an answer that no deployment had to compute."""

_STREAM_HEADERS: Final[list[Header]] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


async def relay_plain(ctx: RequestContext, status: int, headers: list[Header], body: bytes) -> None:
    """Send a whole answer as it came; its end tells nothing of its first token."""
    record = ctx.record
    if 200 <= status < 300:
        is_long = len(body) > LONG_BYTES
        record.usage = await asyncio.to_thread(usage_of, body) if is_long else usage_of(body)
        if ctx.hides_odds:
            body = await asyncio.to_thread(without_odds, body) if is_long else without_odds(body)
        if record.drafted:
            body = (
                await asyncio.to_thread(without_prediction_counts, body) if is_long else without_prediction_counts(body)
            )
        if ctx.flight is not None:
            ctx.flight.ended(ctx.clock(), record.usage)
        if ctx.capture is not None:
            ctx.capture.take(body)
        if ctx.wants_timing:
            ctx.mark(Stage.RELAY)
            stages = record.timeline.stages_ms()
            body = await asyncio.to_thread(merge_timing, body, stages) if is_long else merge_timing(body, stages)
    await ctx.answer(status, [*headers, *ctx.answer_headers()], body)
    ctx.mark(Stage.RELAY)


async def relay_cached(ctx: RequestContext, request: ChatRequest, answer: bytes, *, created: int, age_s: float) -> None:
    """Send a stored response, a whole JSON completion, in the form that this request needs.

    It gets an id of its own, and the time `created` in seconds since 1970.
    """
    record = ctx.record
    record.deployment = FROM_CACHE
    if ctx.recording is not None:
        ctx.recording.answer, ctx.recording.cache_age_s = answer, age_s
    if request.operation.generates:
        record.timeline.first_token_at = ctx.clock()
    timing = None
    if ctx.wants_timing:
        ctx.mark(Stage.RELAY)
        timing = record.timeline.stages_ms()
    is_long = len(answer) > LONG_BYTES
    serve = partial(_served, answer, request, timing, record.serial, created)
    answer, record.usage = await asyncio.to_thread(serve) if is_long else serve()
    headers = _STREAM_HEADERS if request.stream else [(b"content-type", b"application/json")]
    if ctx.held is not None and is_long:  # a slow client leaves it waiting here
        await ctx.held.cover(ctx.held.num_bytes + len(answer))
    headers = [*headers, *ctx.answer_headers(), (b"age", b"%d" % max(age_s, 0.0))]
    await ctx.answer(200, headers, answer)
    ctx.mark(Stage.RELAY)


async def relay_followed(ctx: RequestContext, request: ChatRequest, shared: SharedAnswer, *, created: int) -> bool:
    """Share the answer of an identical request in flight, live where both have the same form.

    Returns:
        False when the leader failed before any byte went out here, or its answer lacks a part that this request needs.
        The request is then served on its own.

    Raises:
        UpstreamFailed: The leader failed later.
    """
    record, channel = ctx.record, ctx.channel
    ctx.place = RequestPhase.QUEUED
    if not request.stream or channel is None or ctx.wants_timing or shared.shape != stream_shape(request):
        answer = await shared.follow().whole()
        if answer is None or not needs_of(request).are_met_by(answer):
            return False
        await relay_cached(ctx, request, answer, created=created, age_s=0.0)
        return True
    follower = shared.follow()
    try:
        await asyncio.shield(shared.begun)
        if not shared.pieces:
            return False
        record.deployment = FROM_CACHE
        await ctx.begin(200, [*_STREAM_HEADERS, *ctx.answer_headers(), (b"age", b"0")])
        record.timeline.first_token_at = ctx.clock()
        ctx.place = RequestPhase.DECODE

        leaders_id = id_member(shared.pieces[0])
        kind = b"chatcmpl" if leaders_id is not None and b"chatcmpl" in leaders_id else b"cmpl"
        own_id = b'"id":"%b-%b"' % (kind, record.serial.encode("ascii"))

        def sink(piece: bytes) -> None:
            """Buffer pieces for a slow follower, as far as there is memory for it, so that others are not held up."""
            if leaders_id is not None:  # quotes inside a text are escaped, so only the member itself is replaced
                piece = piece.replace(leaders_id, own_id)
            if not channel.write(piece) and ctx.held is not None and not ctx.held.try_grow(len(piece)):
                follower.cut()

        sink(b"".join(shared.pieces))
        follower.sink = None if follower.is_cut else sink
        answer = await follower.whole()
    finally:
        shared.unfollow(follower)
    if answer is None:
        record.is_incomplete = True
        why = "was read too slowly" if follower.is_cut else "broke off"
        raise UpstreamFailed(f"The answer that this request shared {why}. Try again.")
    if ctx.recording is not None:
        ctx.recording.answer = answer
    record.usage = await asyncio.to_thread(usage_of, answer) if len(answer) > LONG_BYTES else usage_of(answer)
    await ctx.end()
    ctx.mark(Stage.RELAY)
    return True


def _served(
    answer: bytes, request: ChatRequest, timing: dict[str, float] | None, serial: str, created: int
) -> tuple[bytes, Usage | None]:
    """Return a stored response in the form that the request needs, and its usage."""
    answer = reissued(answer, serial=serial, created=created)
    usage = usage_of(answer)
    if not request.stream:
        return (answer if timing is None else merge_timing(answer, timing)), usage
    options = request.fields.stream_options
    include_usage = options is not None and options.include_usage is True
    stream = as_event_stream(answer, include_usage=include_usage, operation=request.operation)
    if timing is None:
        return stream, usage
    events = TimingEvents()
    return events.feed(stream) + events.finish(timing), usage


Proceed = Callable[[UpstreamError | None], Awaitable[UpstreamResponse]]
"""Opener of the stream that goes on behind a failure, or behind an end without an end mark; raises GatewayError."""


async def relay_stream(
    ctx: RequestContext, response: UpstreamResponse, proceed: Proceed | None = None, *, needs_done: bool = False
) -> None:
    """Pass a stream on as it arrives.

    The first piece is awaited before the status line goes out. An upstream that dies before it can still be answered
    with a status, or replaced by another. A later failure ends the stream, or `proceed` continues it. With
    `needs_done`, a stream without an end mark goes on even where every choice seen so far has ended.

    Raises:
        UpstreamFailed: The stream ended without a mark that it is whole.
    """
    relay = _StreamRelay(ctx, response)
    schema_headers = [header for header in response.headers if header[0] == SCHEMA_IGNORED]
    await ctx.begin(response.status, [*_STREAM_HEADERS, *schema_headers, *ctx.answer_headers()])
    ctx.place = RequestPhase.DECODE
    while True:
        failure: UpstreamError | None = None
        try:
            if ctx.channel is not None:
                await relay.through(ctx.channel)
            else:
                await relay.through_asgi()
        except UpstreamError as error:
            if not relay.has_done:  # behind the end mark only the framing's own end can be missing
                if proceed is None:
                    raise
                failure = error
        if proceed is None or relay.has_done or (failure is None and relay.has_ended and not needs_done):
            break
        relay.follow(await proceed(failure))
    end = relay.end()
    ctx.record.usage = end.usage
    if ctx.flight is not None:
        ctx.flight.ended(ctx.clock(), end.usage if end.is_complete else None)
    if not end.is_complete:
        ctx.record.is_incomplete = True
        if end.error is not None:
            ctx.record.detail = "the upstream stated an error inside its stream"
        if end.error is None or not end.error.is_standard:  # clients would take what they got for all there is
            what = "sent an event that is no JSON" if end.is_unreadable else "ended its answer without finishing it"
            raise UpstreamFailed(f"Deployment '{ctx.record.deployment}' {what}. Try again.")
        ctx.close_after()
    await ctx.end(relay.rest(is_complete=end.is_complete))
    ctx.mark(Stage.RELAY)


def _without_done(events: bytes) -> bytes:
    """Return the events without the end marks among them."""
    return _DONE_EVENT.sub(b"", events)


class _StreamRelay:
    """The relay of one stream, piece by piece."""

    __slots__ = ("_capture", "_events", "_outcome", "_response", "_resume", "_turn", "_whole", "has_done")

    def __init__(self, ctx: RequestContext, response: UpstreamResponse) -> None:
        self._outcome = StreamOutcome()
        self.has_done = False
        """True if `[DONE]` was passed on."""
        self._turn = ctx
        self._capture = ctx.capture
        self._response = response
        self._whole = WholeEvents()
        self._events = TimingEvents() if ctx.wants_timing else None
        self._resume: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        """True if the answer or an error that its upstream states is whole, perhaps without an end mark."""
        end = self._outcome.end(is_over=False)
        return end.is_complete or end.error is not None

    def follow(self, response: UpstreamResponse) -> None:
        """Go on with another response, behind the last whole event."""
        self._response = response

    async def through(self, channel: EdgeChannel) -> None:
        """Relay from the upstream's socket callback into the client's transport, without a coroutine per piece."""

        def sink(piece: bytes) -> None:
            ready = self._observe(piece)
            if ready and not channel.write(ready) and self._resume is None:
                self._response.pause()
                if self._turn.flight is not None:
                    self._turn.flight.is_held_up = True
                self._resume = asyncio.get_running_loop().create_task(self._resume_after_drain(channel))

        try:
            await self._response.relay(sink)
            if self._resume is not None:
                await self._resume
        finally:
            if self._resume is not None:
                self._resume.cancel()
                self._resume = None

    async def through_asgi(self) -> None:
        """Relay the stream through a server without our channel: one `send` per piece, which waits on a slow client."""
        async for piece in self._response.chunks():
            if ready := self._observe(piece):
                await self._turn.write(ready)

    def end(self) -> AnswerEnd:
        """Return how the stream ended."""
        self._outcome.feed(self._whole.rest)
        return self._outcome.end()

    def rest(self, *, is_complete: bool) -> bytes:
        """Return the end of a stream: the held part and, for a complete one, the end that its upstream left out."""
        left, self._whole.rest = self._whole.rest, b""
        if DONE in left:
            left = _without_done(left)
        if left and not left.endswith(EVENT_ENDS):
            left += b"\n\n"
        if is_complete and not self.has_done:
            left += DONE_EVENT
        if self._turn.hides_odds:
            left = events_without_odds(left)
        if left and (self._capture is not None or self._turn.record.drafted):
            left = self._copied(left)
        if self._events is None:
            return left
        self._turn.mark(Stage.RELAY)
        return self._events.feed(left) + self._events.finish(self._turn.record.timeline.stages_ms())

    def _copied(self, events: bytes) -> bytes:
        """Copy whole events for those that share the answer, and return those that the client gets.

        A prediction's counts belong to the request that brought it; a near miss has none to show.
        """
        shared = edited_events(events, MARK, without_prediction_counts)
        if self._capture is not None:
            self._capture.feed(shared)
        return shared if self._turn.record.drafted else events

    def _observe(self, piece: bytes) -> bytes:
        record = self._turn.record
        record.num_chunks += 1
        record.bytes_out += len(piece)
        piece = self._whole.feed(piece)
        self._outcome.feed(piece)
        if DONE in piece:
            piece = self._check_done(piece)
        if self._turn.hides_odds:
            piece = events_without_odds(piece)
        if self._capture is not None or record.drafted:
            piece = self._copied(piece)
        if record.timeline.first_token_at is None and has_first_token(piece):
            record.timeline.first_token_at = now = self._turn.clock()
            if self._turn.flight is not None:
                self._turn.flight.first_token(now)
            if self._turn.watch is not None:
                self._turn.watch.first_token(now)
        return piece if self._events is None else self._events.feed(piece)

    def _check_done(self, piece: bytes) -> bytes:
        """Pass the end mark on only where it is true, because clients stop reading there."""
        end = self._outcome.end(is_over=False)
        if not end.has_done:
            return piece  # part of a text
        if end.is_complete:
            self.has_done = True
            return piece
        return _without_done(piece)

    async def _resume_after_drain(self, channel: EdgeChannel) -> None:
        await channel.drain()
        self._resume = None
        self._response.resume()
