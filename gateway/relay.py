"""Relay: an upstream's answer to the client, byte for byte, with a bounded copy for the record."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.cache.fingerprint import stream_shape
from gateway.cache.replay import as_event_stream
from gateway.cache.shared_answer import SharedAnswer
from gateway.errors import UpstreamFailed
from gateway.http.asgi import EdgeChannel, Header
from gateway.request import ChatRequest
from gateway.stream_tail import StreamTail, has_first_token, merge_timing, usage_of
from gateway.telemetry.record import Place
from gateway.timeline import Stage
from gateway.timing_events import TimingEvents
from gateway.token_odds import events_without_odds, without_odds
from gateway.turn import Turn
from gateway.upstream_errors import SCHEMA_IGNORED
from gateway.upstreams.response import UpstreamResponse
from gateway.whole_events import EVENT_ENDS, WholeEvents

MAX_PLAIN_BYTES: Final = 32 * 1024 * 1024
"""Largest plain answer that is held to see whether it is whole."""

EVENT_STREAM: Final = b"text/event-stream"

DONE_EVENT: Final = b"data: [DONE]\n\n"

FROM_CACHE: Final = "cache"
"""Who answered, when nobody had to."""

_STREAM_HEADERS: Final[list[Header]] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


async def relay_plain(turn: Turn, status: int, headers: list[Header], body: bytes) -> None:
    """Send a whole answer as it came."""
    record = turn.record
    if 200 <= status < 300:
        record.timeline.first_token_at = now = turn.clock()
        record.usage = usage_of(body)
        if turn.hides_odds:
            body = without_odds(body)
        if turn.flight is not None:
            turn.flight.ended(now, record.usage)
        if turn.capture is not None:
            turn.capture.take(body)
        if turn.wants_timing:
            turn.mark(Stage.RELAY)
            body = merge_timing(body, record.timeline.stages_ms())
    await turn.answer(status, [*headers, *turn.answer_headers()], body)
    turn.mark(Stage.RELAY)


async def relay_kept(turn: Turn, request: ChatRequest, answer: bytes, age_s: float) -> None:
    """Send an answer that was given before, a whole JSON completion, in the form this request asked for."""
    record = turn.record
    record.deployment = FROM_CACHE
    record.usage = usage_of(answer)
    record.timeline.first_token_at = turn.clock()
    headers = [(b"content-type", b"application/json")]
    if request.stream:
        options = request.fields.stream_options
        answer = as_event_stream(answer, include_usage=options is not None and options.include_usage is True)
        headers = _STREAM_HEADERS
    if turn.wants_timing:
        turn.mark(Stage.RELAY)
        answer = _with_timing(answer, record.timeline.stages_ms(), is_stream=request.stream)
    headers = [*headers, *turn.answer_headers(), (b"age", b"%d" % max(age_s, 0.0))]
    await turn.answer(200, headers, answer)
    turn.mark(Stage.RELAY)


async def relay_followed(turn: Turn, request: ChatRequest, shared: SharedAnswer) -> bool:
    """Share the answer of an identical request that is under way, live where it travels in the same form.

    False when the leader failed before anything was said here: the request is then on its own again. Raises
    UpstreamFailed when it fails later.
    """
    record, channel = turn.record, turn.channel
    turn.place = Place.QUEUED
    if not request.stream or channel is None or turn.wants_timing or shared.shape != stream_shape(request):
        answer = await shared.follow().whole()
        if answer is None:
            return False
        await relay_kept(turn, request, answer, 0.0)
        return True
    follower = shared.follow()
    try:
        await asyncio.shield(shared.begun)
        if not shared.pieces:
            return False
        record.deployment = FROM_CACHE
        await turn.begin(200, [*_STREAM_HEADERS, *turn.answer_headers(), (b"age", b"0")])
        record.timeline.first_token_at = turn.clock()
        turn.place = Place.DECODE
        channel.write(b"".join(shared.pieces))
        # A slow follower holds up nobody: what it has not read waits here, and a shared answer is bounded in bytes.
        follower.sink = channel.write
        answer = await follower.whole()
    finally:
        shared.unfollow(follower)
    if answer is None:
        record.is_incomplete = True
        raise UpstreamFailed("The answer that this request shared broke off. Try again.")
    record.usage = usage_of(answer)
    await turn.end()
    turn.mark(Stage.RELAY)
    return True


def _with_timing(answer: bytes, timing: dict[str, float], *, is_stream: bool) -> bytes:
    if not is_stream:
        return merge_timing(answer, timing)
    events = TimingEvents()
    return events.feed(answer) + events.finish(timing)


async def relay_stream(turn: Turn, response: UpstreamResponse) -> None:
    """Pass a stream on as it comes; raises UpstreamFailed when it ends without saying that it is whole.

    The first piece is awaited before the status line goes out, so that an upstream that dies before it can still be
    answered with a status, or replaced by another.
    """
    relay = _StreamRelay(turn, response)
    told = [header for header in response.headers if header[0] == SCHEMA_IGNORED]
    await turn.begin(response.status, [*_STREAM_HEADERS, *told, *turn.answer_headers()])
    turn.place = Place.DECODE
    if turn.channel is not None:
        await relay.through(turn.channel)
    else:
        await relay.through_asgi()
    summary = relay.tail.summary()
    turn.record.usage = summary.usage
    if turn.flight is not None:
        turn.flight.ended(turn.clock(), summary.usage if summary.is_complete else None)
    if not summary.is_complete:
        turn.record.is_incomplete = True
        if not summary.has_error:
            raise UpstreamFailed(
                f"Deployment '{turn.record.deployment}' ended its answer without finishing it. Try again."
            )
        turn.close_after()
    await turn.end(_ended(relay.rest(), has_done=summary.has_done or summary.has_error))
    turn.mark(Stage.RELAY)


def _ended(rest: bytes, *, has_done: bool) -> bytes:
    """The last bytes of a stream, with the blank line and the `[DONE]` that its upstream left out."""
    if rest and not rest.endswith(EVENT_ENDS):
        rest += b"\n\n"
    return rest if has_done else rest + DONE_EVENT


class _StreamRelay:
    """What happens to each piece of one stream."""

    __slots__ = ("_capture", "_events", "_response", "_resume", "_turn", "_whole", "tail")

    def __init__(self, turn: Turn, response: UpstreamResponse) -> None:
        self.tail = StreamTail()
        self._turn = turn
        self._capture = turn.capture
        self._response = response
        self._whole = WholeEvents()
        self._events = TimingEvents() if turn.wants_timing else None
        self._resume: asyncio.Task[None] | None = None

    async def through(self, channel: EdgeChannel) -> None:
        """Straight from the upstream's socket callback into the client's transport, no coroutine per piece."""

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
        """The same for a server without our channel: one `send` per piece, which waits while the client is slow."""
        async for piece in self._response.chunks():
            if ready := self._observe(piece):
                await self._turn.send({"type": "http.response.body", "body": ready, "more_body": True})

    def rest(self) -> bytes:
        """What was held back of a stream that has ended as it should."""
        left, self._whole.rest = self._whole.rest, b""
        if self._turn.hides_odds:
            left = events_without_odds(left)
        if self._capture is not None:
            self._capture.feed(left)
        if self._events is None:
            return left
        self._turn.mark(Stage.RELAY)
        return self._events.feed(left) + self._events.finish(self._turn.record.timeline.stages_ms())

    def _observe(self, piece: bytes) -> bytes:
        record = self._turn.record
        record.num_chunks += 1
        record.bytes_out += len(piece)
        self.tail.feed(piece)
        piece = self._whole.feed(piece)
        if self._turn.hides_odds:
            piece = events_without_odds(piece)
        if self._capture is not None:
            self._capture.feed(piece)
        if record.timeline.first_token_at is None and has_first_token(piece):
            record.timeline.first_token_at = now = self._turn.clock()
            if self._turn.flight is not None:
                self._turn.flight.first_token(now)
        return piece if self._events is None else self._events.feed(piece)

    async def _resume_after_drain(self, channel: EdgeChannel) -> None:
        await channel.drain()
        self._resume = None
        self._response.resume()
