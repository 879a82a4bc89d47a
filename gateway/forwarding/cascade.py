"""Cascade: a small model answers first, and its first tokens decide whether a large one takes over.

    small   ├─ first tokens ─┬─ sure enough ────────────────▶ the client's answer
                             └─ not ✕
    large                      └─ sent ──────▶ the client's answer

Reasoning before the answer is not evaluated.

The client receives nothing before the decision, so a hand-over costs only time and tokens, which are counted.
For a plain answer the gateway requests a stream from the small model, too, and assembles the answer from it.
Where no other deployment can take over, the small model's answer is passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import msgspec

from gateway.cache.exact.capture import MAX_READ_HERE_BYTES
from gateway.chat.request import ChatRequest
from gateway.chat.strict_json import LONG_BYTES
from gateway.completion.answer_end import usage_of
from gateway.completion.assembly import assembled
from gateway.completion.stream_outcome import end_of_stream
from gateway.deployments.health.ejection import FailureKind
from gateway.deployments.live import LiveDeployment
from gateway.errors import GatewayError, UpstreamFailed
from gateway.forwarding.attempt import AttemptRunner, ForwardRequest, UpstreamAttempt
from gateway.forwarding.error_mapping import OK, TOO_MANY_REQUESTS, RetryElsewhere
from gateway.forwarding.logprob_filter import LogprobReader, odds_of
from gateway.request_context import AnswerConfidence
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.records.record import HandedOver, Usage
from gateway.timeline import Stage
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.util.workers import Workers
from routing_policies.quality.cascade import Answer, Inquiry
from routing_policies.quality.confidence import TokenOdds

TOP_LOGPROBS: Final = 2
MAX_ASSEMBLED_HERE_BYTES: Final = MAX_READ_HERE_BYTES
"""Bytes above which a thread assembles the stream, because each of its events is decoded."""


class Cascader:
    """Opener of answers for routes that cascade."""

    __slots__ = ("_attempts", "_metrics", "_workers")

    def __init__(self, attempts: AttemptRunner, *, metrics: GatewayMetrics, workers: Workers) -> None:
        self._attempts = attempts
        self._metrics = metrics
        self._workers = workers

    async def open(
        self,
        work: ForwardRequest,
        live: LiveDeployment,
        inquiry: Inquiry,
        next_one: Callable[[], LiveDeployment | None],
        can_move: Callable[[], bool] | None = None,
    ) -> UpstreamAttempt:
        """Open an attempt like `Attempts.open`, at `live` first; the answer may come from `next_one`.

        Raises:
            GatewayError: The first deployment failed.
        """
        first_odds = _as_stream(work)
        attempt = await self._attempts.open(first_odds, live, can_move=can_move)
        if first_odds.is_assembled and attempt.response is not None and attempt.response.status != 200:
            attempt.close()  # the refusal may concern the stream, which the client did not request
            attempt = await self._attempts.open(_with_logprobs(work), live)
        if attempt.response is not None and attempt.response.status != 200 and not work.request.fields.logprobs:
            attempt.close()  # or the log-probabilities, which the client did not request, either
            return await self._past_refusal(work, live, next_one())
        try:
            answer = await self._decide(work, attempt, inquiry)
            successor = next_one() if answer == "hand_over" else None
            is_to_assemble = successor is None and first_odds.is_assembled and attempt.body is None
            if is_to_assemble and not await self._assemble(first_odds, attempt):
                attempt.close()  # nothing may be lost of it: the same once more, as the client wants it
                work.ctx.record.attempts += 1
                attempt = await self._attempts.open(_with_logprobs(work), live)
        except BaseException:  # cancellation too: no caller could close it
            attempt.close()
            raise
        work.ctx.mark(Stage.UPSTREAM_FIRST_BYTE)
        if successor is None:
            self._count(live, "kept" if answer == "hand_over" else "confident")
            work.ctx.hides_odds = not work.request.fields.logprobs
            return attempt
        self._leave(work, attempt)
        return await self._hand_over(work, live, successor)

    async def open_assembled(
        self, work: ForwardRequest, live: LiveDeployment, can_move: Callable[[], bool] | None
    ) -> UpstreamAttempt:
        """Open an attempt like `Attempts.open` for a plain answer assembled from a stream: it shows a stall early."""
        first_odds = msgspec.structs.replace(work, request=work.request.as_stream(), is_assembled=True)
        attempt = await self._attempts.open(first_odds, live, can_move=can_move)
        if attempt.body is not None:
            if attempt.response is not None and attempt.response.status in (OK, TOO_MANY_REQUESTS):
                return attempt  # a server without streams has answered as the client wants it
            attempt.close()  # the refusal may concern only the stream, which the client did not request
            attempt = await self._attempts.open(work, live, can_move=can_move)
            live.refuses_streams = attempt.response is not None and attempt.response.status == 200
            return attempt
        try:
            await self._assemble(first_odds, attempt)
            if attempt.body is None:  # nothing may be lost of it: the same once more, as the client wants it
                attempt.close()
                work.ctx.record.attempts += 1
                attempt = await self._attempts.open(work, live, can_move=can_move)
        except BaseException:  # cancellation too: no caller could close it
            attempt.close()
            raise
        work.ctx.mark(Stage.UPSTREAM_FIRST_BYTE)
        return attempt

    async def _past_refusal(
        self, work: ForwardRequest, live: LiveDeployment, successor: LiveDeployment | None
    ) -> UpstreamAttempt:
        """Send a request that the first deployment refused to the second, or to the first in its original form."""
        work.ctx.mark(Stage.UPSTREAM_FIRST_BYTE)
        if successor is not None:
            return await self._hand_over(work, live, successor)
        work.ctx.record.attempts += 1
        return await self._attempts.open(work, live)

    async def _decide(self, work: ForwardRequest, attempt: UpstreamAttempt, inquiry: Inquiry) -> Answer:
        if attempt.response is not None and attempt.response.status != 200:
            return "go_on"  # what is wrong with the request is wrong everywhere
        if attempt.body is not None:
            limit = inquiry.first_tokens + 1
            is_long = len(attempt.body) > LONG_BYTES
            read = await self._workers.run(odds_of, attempt.body, limit) if is_long else odds_of(attempt.body, limit)
            odds, _ = read
            first_odds = odds[: inquiry.first_tokens]
            return self._decided(work, attempt, inquiry, first_odds, is_whole=len(first_odds) == len(odds))
        assert attempt.response is not None, "an answer is open once its request was sent"
        return await self._listen(work, attempt, attempt.response, inquiry)

    def _decided(
        self,
        work: ForwardRequest,
        attempt: UpstreamAttempt,
        inquiry: Inquiry,
        odds: Sequence[TokenOdds],
        *,
        is_whole: bool,
    ) -> Answer:
        """Return the last decision, and note the confidence behind it."""
        probability = inquiry.probability(odds, is_whole=is_whole)
        if probability is not None:
            work.ctx.confidence = AnswerConfidence(attempt.live.id, probability)
        return inquiry.decide(odds, is_whole=is_whole) or "hand_over"

    async def _listen(
        self, work: ForwardRequest, attempt: UpstreamAttempt, response: UpstreamResponse, inquiry: Inquiry
    ) -> Answer:
        """Read the stream until its tokens suffice for a decision.

        Raises:
            RetryElsewhere: The stream broke.
        """
        reader, num_fed = LogprobReader(), 0
        while True:
            waiting = response.waiting()
            for piece in waiting[num_fed:]:
                reader.feed(piece)
            num_fed = len(waiting)
            odds, is_whole = reader.odds[: inquiry.first_tokens], reader.is_whole
            if inquiry.decide(odds, is_whole=is_whole) is not None:
                return self._decided(work, attempt, inquiry, odds, is_whole=is_whole)
            if not await self._attempts.more(work, attempt):
                if response.is_complete and not end_of_stream(b"".join(waiting)).is_complete:
                    self._break(work, attempt)
                return self._decided(work, attempt, inquiry, reader.odds, is_whole=True)

    async def _assemble(self, work: ForwardRequest, attempt: UpstreamAttempt) -> bool:
        """Assemble the plain answer that the client wants from the stream.

        Returns:
            False if the answer cannot be assembled without loss.

        Raises:
            RetryElsewhere: The stream broke, and another deployment may serve the request.
            GatewayError: The stream broke.
        """
        stream = await self._attempts.rest(work, attempt)
        is_long = len(stream) > MAX_ASSEMBLED_HERE_BYTES
        found = await self._workers.run(assembled, stream) if is_long else assembled(stream)
        if not found.end.is_complete:
            self._break(work, attempt)
        if found.completion is None:
            return False
        attempt.body = found.completion
        others = [header for header in attempt.passed if header[0] != b"content-type"]
        attempt.passed = [(b"content-type", b"application/json"), *others]
        return True

    def _break(self, work: ForwardRequest, attempt: UpstreamAttempt) -> NoReturn:
        """Handle a stream that ended before its answer did, when nothing of it was passed on."""
        attempt.attempt_watch.failed(work.ctx.clock(), FailureKind.BROKEN)
        raise RetryElsewhere(UpstreamFailed(f"The answer of deployment '{attempt.live.id}' broke off. Try again."))

    def _leave(self, work: ForwardRequest, attempt: UpstreamAttempt) -> None:
        """Close the first answer; what it took is remembered."""
        record, response = work.ctx.record, attempt.response
        usage = None if attempt.body is None else usage_of(attempt.body)
        if usage is None:
            num_read = 0 if response is None else _read(response.waiting()).num_tokens
            routing_request = work.ctx.routing_request
            usage = Usage(0 if routing_request is None else routing_request.price.prompt_tokens, num_read)
        record.handed_over = HandedOver(attempt.live.id, usage)
        attempt.close()

    async def _hand_over(
        self, work: ForwardRequest, live: LiveDeployment, successor: LiveDeployment
    ) -> UpstreamAttempt:
        record = work.ctx.record
        record.deployment = successor.id
        record.attempts += 1
        self._count(successor, "handed_over")
        try:
            return await self._attempts.open(work, successor)
        except (RetryElsewhere, GatewayError):
            # The dropped answer is better than none: it is requested once more, and passed on unchecked.
            record.deployment = live.id
            record.attempts += 1
            self._count(live, "taken_back")
            return await self._attempts.open(work, live)

    def _count(self, live: LiveDeployment, reason: str) -> None:
        self._metrics.decisions.labels("cascade", live.group, reason).inc()


def _read(pieces: list[bytes]) -> LogprobReader:
    reader = LogprobReader()
    for piece in pieces:
        reader.feed(piece)
    return reader


def _as_stream(work: ForwardRequest) -> ForwardRequest:
    """Return the request in the form that is sent first: a stream, even for a plain answer.

    So no time is lost on the end of an answer whose beginning is already rejected.
    """
    probed = _with_logprobs(work)
    if work.request.stream or work.ctx.wants_timing:  # only a plain answer has the engine's whole timing
        return probed
    return msgspec.structs.replace(probed, request=probed.request.as_stream(), is_assembled=True)


def _with_logprobs(work: ForwardRequest) -> ForwardRequest:
    """Return the same work with log-probabilities requested for each token."""
    return msgspec.structs.replace(work, request=telling(work.request))


def telling(request: ChatRequest) -> ChatRequest:
    """Return the request with log-probabilities; one that requests them itself is returned unchanged."""
    if request.fields.logprobs:
        return request
    return request.with_logprobs(TOP_LOGPROBS)
