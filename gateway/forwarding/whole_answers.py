"""WholeAnswers: plain answers, refusals, and errors in a 200, each taken whole or turned into what the client gets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.chat.operation import COMPLETIONS
from gateway.chat.strict_json import LONG_BYTES
from gateway.completion.answer_end import AnswerEnd
from gateway.completion.answers import end_of_answer
from gateway.completion.stated_errors import StatedError
from gateway.deployments.health.ejection import FailureKind
from gateway.dialects.upstream_dialect import UpstreamDialect
from gateway.errors import GatewayError, RequestTooLarge, UpstreamFailed
from gateway.forwarding.error_mapping import (
    NOT_FOUND,
    OK,
    OVERLOADED,
    RETRYABLE,
    TOO_MANY_REQUESTS,
    RetryElsewhere,
    enveloped,
    failure_of_status,
    from_status,
    no_answer,
    overloaded,
    refusal_in,
    without_secrets,
)
from gateway.forwarding.relay import MAX_PLAIN_BYTES
from gateway.forwarding.stream_head import StreamHead
from gateway.http.asgi import Header
from gateway.timeline import Clock
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.upstreams.retry_after import retry_after_s

if TYPE_CHECKING:
    from gateway.forwarding.attempt import ForwardRequest, UpstreamAttempt

_JSON: Final = b"application/json"
_STORED_OBJECT: Final = re.compile(rb'"(?:file_ids?|vector_store_ids|container(?:_id)?|item_reference)"')
"""Members and types by which a request names an object that its client stored at the upstream."""


class WholeAnswers:
    """What a deployment's answer means where its parts are not passed on as they come."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def read(self, work: ForwardRequest, attempt: UpstreamAttempt, *, is_leading: bool) -> None:
        """Read a plain answer, or the upstream's own refusal, and take it as a chat completion.

        Raises:
            RetryElsewhere: Another deployment may serve the request.
            GatewayError: The request fails.
            UpstreamError: The exchange failed.
        """
        response, dialect = attempt.response, attempt.live.dialect
        assert response is not None, "an answer is open once its request was sent"
        body = await read_whole(attempt, response)
        if dialect is not None:
            try:
                body = await _translated(dialect, response.status, body)
            except UpstreamFailed as error:
                raise self.unfit(attempt, error) from None
        is_long = len(body) > LONG_BYTES and response.status == OK
        operation = work.request.operation
        end = await asyncio.to_thread(end_of_answer, body, operation) if is_long else None
        self._take_whole(work, attempt, body, end, is_leading=is_leading)

    def check_status(self, work: ForwardRequest, attempt: UpstreamAttempt, *, is_leading: bool) -> None:
        """Raise the error that a status other than 200 stands for; return if the answer may pass.

        Raises:
            RetryElsewhere: Another deployment may serve the request.
            GatewayError: The request fails.
        """
        response = attempt.response
        assert response is not None, "an answer is open once its request was sent"
        status, headers = response.status, response.headers
        if status in NOT_FOUND and _names_own_object(work):
            return
        error = from_status(status, headers, attempt.live.id, work.admitted.lane.id)
        if status == TOO_MANY_REQUESTS:
            error = self._check_pushback(work, attempt, headers)
        if error is None:
            return
        kind = failure_of_status(status, headers)
        if status in NOT_FOUND and work.request.operation is COMPLETIONS:
            kind = None  # many servers of chat have no such endpoint, and their chat is healthy
        if kind is not None and not attempt.live.forecast.is_warming:  # one that is starting has not failed
            attempt.attempt_watch.failed(self._clock(), kind)
        if is_leading:
            work.ctx.record.detail = f"upstream status {status}"
        if status in RETRYABLE or status < 400:
            raise RetryElsewhere(error)
        raise error

    def _check_pushback(
        self, work: ForwardRequest, attempt: UpstreamAttempt, headers: Sequence[Header]
    ) -> GatewayError | None:
        """Handle a 429: the deployment gets no requests for the time that it names.

        Returns:
            None if no other deployment can answer, so that the client gets the 429 unchanged.
        """
        wait_s = retry_after_s(headers)
        if wait_s is not None:
            attempt.live.health.note_pushback(self._clock(), wait_s)
        if attempt.can_move is None or not attempt.can_move():
            return None
        return overloaded(headers, attempt.live.id, work.admitted.lane.id)

    def take_failed_head(
        self, work: ForwardRequest, attempt: UpstreamAttempt, head: StreamHead, *, is_leading: bool
    ) -> None:
        """Take the error with which a stream begins, as in a plain answer; fail a stream without an answer.

        Raises:
            RetryElsewhere: Another deployment may serve the request.
        """
        if head.error is not None:
            self._take_error(work, attempt, head.error, is_leading=is_leading)
            return
        raise self._no_answer(work, attempt)

    def _take_error(
        self, work: ForwardRequest, attempt: UpstreamAttempt, stated: StatedError, *, is_leading: bool
    ) -> None:
        """Treat an error in a 200 answer as the status that it names.

        Raises:
            RetryElsewhere: Unless the error states that the request is wrong; that goes to the client.
        """
        response, status = attempt.response, stated.status
        assert response is not None, "an answer is open once its request was sent"
        if is_leading:
            work.ctx.record.detail = f"upstream status 200 with an error{'' if status is None else f' of {status}'}"
        if status is None or (status not in OVERLOADED and status >= 500):
            attempt.attempt_watch.failed(self._clock(), FailureKind.BROKEN)
            raise RetryElsewhere(UpstreamFailed(f"Deployment '{attempt.live.id}' answered with an error. Try again."))
        response.status = status
        if status != OK:
            self.check_status(work, attempt, is_leading=is_leading)
        self._take_whole(work, attempt, stated.body, None, is_leading=is_leading)
        attempt.pass_as_json()

    def _take_whole(
        self, work: ForwardRequest, attempt: UpstreamAttempt, body: bytes, end: AnswerEnd | None, *, is_leading: bool
    ) -> None:
        """Take a plain answer, or the upstream's own refusal; `end` is the end of a long answer that was read already.

        Raises:
            RetryElsewhere: A 200 is neither the form requested nor such a refusal. A deployment that answers like that
                is as good as down.
        """
        response, live = attempt.response, attempt.live
        assert response is not None, "an answer is open once its request was sent"
        if response.status != OK:
            refusal = enveloped(body, response.status, live.id)
            attempt.body = without_secrets(refusal, live.headers.secrets)
            if is_leading:
                stated = refusal_in(attempt.body, response.status)
                work.ctx.record.code, work.ctx.record.detail = stated.code, stated.text
            if attempt.body is not body:
                attempt.pass_as_json()
            return
        end = end or end_of_answer(body, work.request.operation)
        if end.error is not None:
            self._take_error(work, attempt, end.error, is_leading=is_leading)
        elif (work.request.stream and not work.is_assembled) or not end.is_complete:
            raise self._no_answer(work, attempt)
        else:
            attempt.body = body if end.mended is None else end.mended
            if attempt.passed[0][1] != _JSON:  # clients read nothing else, and some mind its case
                attempt.pass_as_json()
            if work.request.operation.generates:
                now = self._clock()
                live.whole_answers.observe(now, now - attempt.sent_at)

    def unfit(self, attempt: UpstreamAttempt, error: GatewayError) -> RetryElsewhere:
        """Return the failure of a 200 that is no answer, and let nothing else come from its connection."""
        assert attempt.response is not None, "an answer is open once its request was sent"
        attempt.response.distrust()
        attempt.attempt_watch.failed(self._clock(), FailureKind.BROKEN)
        return RetryElsewhere(error)

    def _no_answer(self, work: ForwardRequest, attempt: UpstreamAttempt) -> RetryElsewhere:
        return self.unfit(attempt, no_answer(attempt.live.id, work.request.operation))


def _names_own_object(work: ForwardRequest) -> bool:
    """Return whether the request names an adapter or a stored object, which may be missing where all else is found."""
    return work.planned.adapter is not None or _STORED_OBJECT.search(work.request.raw) is not None


async def read_whole(attempt: UpstreamAttempt, response: UpstreamResponse) -> bytes:
    """Return the whole answer, as far as there is memory for it.

    Raises:
        UpstreamError: The exchange failed.
        Shed: There is no memory for the answer.
        UpstreamFailed: The answer is too large.
    """
    try:
        return await response.read(MAX_PLAIN_BYTES, attempt.held)
    except RequestTooLarge:
        explanation = (
            f"The answer of deployment '{attempt.live.id}' takes more memory than this gateway may use for one."
        )
        raise UpstreamFailed(f"{explanation} Request a shorter one, or a stream.") from None


async def _translated(dialect: UpstreamDialect, status: int, body: bytes) -> bytes:
    """Return a whole answer of a deployment as one of chat completions; a thread translates a long one.

    Raises:
        UpstreamFailed: The answer is none of its dialect.
    """
    translate = dialect.answer if status == OK else partial(dialect.refusal, status)
    return translate(body) if len(body) <= LONG_BYTES else await asyncio.to_thread(translate, body)
