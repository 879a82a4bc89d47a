"""Resumption: a client's stream that goes on at another deployment, token for token, after its own broke."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from gateway.deployments.health.ejection import FailureKind
from gateway.deployments.live import LiveDeployment
from gateway.errors import GatewayError, UpstreamFailed
from gateway.forwarding.attempt import AttemptRunner, ForwardRequest, UpstreamAttempt
from gateway.forwarding.error_mapping import RetryElsewhere
from gateway.forwarding.resume.text_channel import TextChannel
from gateway.forwarding.resume.token_channel import TokenChannel
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import Clock
from gateway.upstreams.http1.errors import Displaced, UpstreamError
from gateway.upstreams.http1.response import UpstreamResponse

MAX_RESUMPTIONS: Final = 4
"""Times that one stream is continued: beyond it, the request itself is likely to be what breaks its deployments."""
_MAX_TRIED: Final = 4
"""Deployments that are tried for one continuation."""


class Successors(Protocol):
    """Deployments that can continue one stream."""

    def exist(self, without: str) -> bool:
        """Return whether one is ready beside the deployment with this id."""
        ...

    def pick(self, work: ForwardRequest, tried: frozenset[str]) -> LiveDeployment | None:
        """Return the best one of which none has these ids; None where there is none."""
        ...


class ResumeEnd(StrEnum):
    """End of one continuation; a metric label."""

    RESUMED = "resumed"
    NO_DEPLOYMENT = "no_deployment"
    REFUSED = "refused"
    TOO_OFTEN = "too_often"
    UNKNOWN_TOKENS = "unknown_tokens"


class Resumption:
    """A stream with a channel, and the attempt that serves it now; `close` ends that."""

    __slots__ = (
        *("_attempts", "_channel", "_clock", "_metrics", "_num_resumed", "_successors", "_work"),
        *("attempt", "needs_done"),
    )

    def __init__(
        self,
        work: ForwardRequest,
        attempt: UpstreamAttempt,
        channel: TokenChannel | TextChannel,
        *,
        attempts: AttemptRunner,
        successors: Successors,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self.attempt = attempt
        self.needs_done = isinstance(channel, TokenChannel)
        self._channel = channel
        self._work = work
        self._attempts = attempts
        self._successors = successors
        self._metrics = metrics
        self._clock = clock
        self._num_resumed = 0
        attempt.live.moves.add(self._move)

    async def proceed(self, error: UpstreamError | None) -> UpstreamResponse:
        """Return the stream that goes on behind what the client has received.

        Args:
            error: Failure of the exchange; None where the stream ended properly, but not the answer.

        Raises:
            GatewayError: No deployment continues the stream.
        """
        broke_at, broken = self._clock(), self.attempt
        broken.live.moves.discard(self._move)
        if isinstance(error, Displaced):
            return await self._moved(broken, broke_at)
        if error is None:
            if self._channel.is_handed_over:
                broken.attempt_watch.succeeded(broke_at)
            else:
                broken.attempt_watch.failed(broke_at, FailureKind.BROKEN)
            failure: GatewayError = UpstreamFailed(
                f"Deployment '{broken.live.id}' ended its answer without finishing it. Try again."
            )
        else:
            failure = self._attempts.lost(self._work, broken, error)
        broken.close()
        end = ResumeEnd.NO_DEPLOYMENT
        if not self._channel.is_resumable:
            end = ResumeEnd.UNKNOWN_TOKENS
        elif self._num_resumed >= MAX_RESUMPTIONS:
            end = ResumeEnd.TOO_OFTEN
        else:
            found, end = await self._continue(broken.live, broke_at)
            if found is not None:
                self._num_resumed += 1
                return found
        self._metrics.resumed_streams.labels(broken.live.group, end).inc()
        raise failure from None

    async def _continue(self, broken: LiveDeployment, broke_at: float) -> tuple[UpstreamResponse | None, ResumeEnd]:
        """Return the stream at the first deployment that takes it, and how that went."""
        work, tried, end = self._continued(broke_at), frozenset((broken.id,)), ResumeEnd.NO_DEPLOYMENT
        while len(tried) <= _MAX_TRIED:
            live = self._successors.pick(work, tried)
            if live is None:
                break
            try:
                return await self._open(work, live, broken, broke_at), ResumeEnd.RESUMED
            except (RetryElsewhere, GatewayError):
                tried |= {live.id}
                end = ResumeEnd.REFUSED
        return None, end

    def _move(self) -> None:
        """Leave a deployment that is taken out of service, where another can continue the stream."""
        live, channel = self.attempt.live, self._channel
        if channel.is_resumable and channel.has_begun and self._successors.exist(without=live.id):
            self.attempt.give_up(Displaced, f"deployment '{live.id}' is taken out of service")

    async def _moved(self, broken: UpstreamAttempt, left_at: float) -> UpstreamResponse:
        """Return the stream at another deployment, or again at its own, which still serves what it began.

        Raises:
            GatewayError: Neither continues it.
        """
        broken.attempt_watch.succeeded(left_at)
        try:  # its permit keeps the deployment's connections open meanwhile
            found, end = await self._continue(broken.live, left_at)
        finally:
            broken.close()
        if found is not None:
            return found
        try:
            return await self._open(self._continued(left_at), broken.live, broken.live, left_at)
        except RetryElsewhere as failure:
            self._metrics.resumed_streams.labels(broken.live.group, end).inc()
            raise failure.error from None
        except GatewayError:
            self._metrics.resumed_streams.labels(broken.live.group, end).inc()
            raise

    async def _open(
        self, work: ForwardRequest, live: LiveDeployment, broken: LiveDeployment, broke_at: float
    ) -> UpstreamResponse:
        """Open the stream at one deployment; raises RetryElsewhere or GatewayError."""
        attempt = await self._attempts.open(work, live, is_leading=False)
        if attempt.channel is None or attempt.response is None:  # a refusal, or an answer from its beginning
            attempt.close()
            raise RetryElsewhere(UpstreamFailed(f"Deployment '{live.id}' does not continue streams."))
        now = self._clock()
        if attempt.flight is not None:  # its prompt and its tokens are not those that the forecast knows
            attempt.flight.ended(now, None)
        num_tokens, self.attempt, self._channel = self._channel.num_tokens, attempt, attempt.channel
        live.moves.add(self._move)
        ctx = work.ctx
        ctx.flight = None
        ctx.record.drafted = ctx.record.drafted or attempt.takes_draft
        ctx.record.detail = f"resumed at {live.id} behind {num_tokens} tokens after {now - broke_at:.3f} s"
        self._metrics.resumed_streams.labels(broken.group, ResumeEnd.RESUMED).inc()
        self._metrics.resume_pause.labels(live.group).observe(now - broke_at)
        return attempt.response

    def close(self) -> None:
        """End the attempt that serves the stream now. Idempotent."""
        self.attempt.live.moves.discard(self._move)
        self.attempt.close()

    def _continued(self, now: float) -> ForwardRequest:
        """Return the request as it goes to the next deployment; the client's targets for a first byte are met."""
        work = self._work
        assert work.resume is not None, "a stream with a channel has an order"
        first_byte_s = work.planned.stream_timeouts.first_byte_s
        assert first_byte_s is not None, "every route has a limit to the first byte"
        admission_request = msgspec.structs.replace(
            work.admitted.admission_request, deadline_at=now + first_byte_s, ttft_by=None
        )
        return msgspec.structs.replace(
            work,
            admitted=msgspec.structs.replace(
                work.admitted, admission_request=admission_request, avoid=frozenset(), seen=()
            ),
            resume=msgspec.structs.replace(
                work.resume, begun=self._channel if self._channel.has_begun else None, can_move=False
            ),
        )
