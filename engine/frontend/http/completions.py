"""The two completions endpoints: read, validate, generate, send on."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from engine.frontend.core_client.generation import Generation
from engine.frontend.core_client.mailbox import RequestAbandoned
from engine.frontend.core_client.service import EngineService
from engine.frontend.http import orca
from engine.frontend.http.streaming import Relay
from engine.frontend.http.timing import first_token_header, timing_report
from engine.frontend.http.tracing import Tracer
from engine.frontend.http.wire import AnswerIdentity, ChatWire, CompletionWire, Wire
from engine.frontend.request.asgi import Client, Headers, Receive, Send, read_json_body, watched_client
from engine.frontend.request.headers import MODEL_STATE, RequestOptions, read_options
from engine.frontend.request.requests import ChatBody, CompletionRequest, parse_chat, parse_completion
from engine.frontend.resume.resume_request import HEADER as RESUME_HEADER
from engine.frontend.resume.resume_request import ResumeRequest, read_resume

SCHEMA_IGNORED = "x-penstock-schema-ignored"
"""Header that names the keywords of a schema, not strict, that the answer need not follow."""
WRITE_STALL_S = 30.0
"""A client that takes nothing for this long is treated as gone."""


class Completions:
    """Handlers of `POST /v1/chat/completions` and `POST /v1/completions`."""

    def __init__(
        self,
        service: EngineService,
        unix_time: Callable[[], float],
        write_stall_s: float,
        tracer: Tracer | None = None,
        resume_key: bytes | None = None,
    ) -> None:
        self._service = service
        self._unix_time = unix_time
        self._write_stall_s = write_stall_s
        self._tracer = tracer
        self._resume_key = resume_key

    async def chat(self, headers: Headers, receive: Receive, send: Send) -> None:
        """Answer a conversation. Raises ApiError before the first byte, RequestAbandoned."""
        received_at = self._service.clock()
        body = await self._body(headers, receive)
        request = parse_chat(body, self._service.config)
        options = read_options(headers, request)
        resume = self._resume(headers, body, request)
        async with watched_client(receive) as client:
            generation = await self._service.chat(request, options, received_at, resume)
            wire = ChatWire(self._identity("chatcmpl-", request, options, resume))
            await self._answer(client, generation, wire, request, options, send, resume)

    async def complete(self, headers: Headers, receive: Receive, send: Send) -> None:
        """Continue a raw prompt. Raises ApiError before the first byte, RequestAbandoned."""
        received_at = self._service.clock()
        body = await self._body(headers, receive)
        request = parse_completion(body, self._service.config)
        options = read_options(headers, request)
        resume = self._resume(headers, body, request)
        async with watched_client(receive) as client:
            generation = await self._service.complete(request, options, received_at, resume)
            wire = CompletionWire(self._identity("cmpl-", request, options, resume))
            await self._answer(client, generation, wire, request, options, send, resume)

    def _resume(self, headers: Headers, body: bytes, request: ChatBody | CompletionRequest) -> ResumeRequest | None:
        """Return the gateway's order for a stream of the base model; None without one."""
        can_resume = bool(request.stream) and request.model == self._service.config.model_name
        return read_resume(headers, body, self._resume_key) if can_resume else None

    def _body(self, headers: Headers, receive: Receive) -> Awaitable[bytes]:
        return read_json_body(headers, receive, self._service.config.max_body_bytes)

    async def _answer(
        self,
        client: Client,
        generation: Generation,
        wire: Wire,
        request: ChatBody | CompletionRequest,
        options: RequestOptions,
        send: Send,
        resume: ResumeRequest | None,
    ) -> None:
        if client.is_gone:
            raise RequestAbandoned

        def report() -> dict[str, Any] | None:
            return timing_report(generation, self._service.clock()) if options.wants_timing else None

        grammar = generation.prompt.grammar
        own = {SCHEMA_IGNORED: ",".join(grammar.unenforced)} if grammar is not None and grammar.unenforced else {}
        if resume is not None:
            own[RESUME_HEADER] = self._service.answer_digest(generation)
        if options.wants_state:
            own[MODEL_STATE] = self._service.model_state(generation.prompt.adapter)
        with self._traced(options, generation), generation, self._moving(generation, resume):
            client.when_gone(generation.cancel)
            relay = Relay(
                generation,
                wire,
                send,
                headers=lambda: {
                    **own,
                    **first_token_header(generation),
                    orca.HEADER: orca.load_header(self._service.link.load),
                },
                report=report,
                write_stall_s=self._write_stall_s,
            )
            if resume is not None:
                relay.resume(resume.choices)
            if request.stream:
                await relay.stream(include_usage=request.include_usage, is_continuous=request.shows_usage)
            else:
                await relay.plain()

    @contextmanager
    def _moving(self, generation: Generation, resume: ResumeRequest | None) -> Iterator[None]:
        """Let a drain hand the generation over, where the gateway can continue it."""
        movable = self._service.movable
        if resume is not None and resume.can_move:
            movable.add(generation)
        try:
            yield
        finally:
            movable.discard(generation)

    def _traced(self, options: RequestOptions, generation: Generation) -> AbstractContextManager[None]:
        if self._tracer is None or options.traceparent is None:
            return nullcontext()
        return self._tracer.watch(options.traceparent, generation)

    def _identity(
        self,
        prefix: str,
        request: ChatBody | CompletionRequest,
        options: RequestOptions,
        resume: ResumeRequest | None,
    ) -> AnswerIdentity:
        given_id, given_time = (None, None) if resume is None else (resume.id, resume.created)
        return AnswerIdentity(
            id=given_id or prefix + secrets.token_hex(16),
            created=int(self._unix_time()) if given_time is None else given_time,
            model=request.model,
            include_usage=request.include_usage,
            token_bytes=self._service.tokenizer.display_bytes,
            shows_stop=options.wants_stop_reason,
        )
