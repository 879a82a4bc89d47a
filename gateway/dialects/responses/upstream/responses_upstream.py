"""ResponsesUpstream: the dialect of deployments that speak the Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.chat.chunked_json import encoded_in_parts
from gateway.chat.json_members import encoded
from gateway.chat.operation import CHAT, Operation
from gateway.chat.request import ChatRequest
from gateway.chat.strict_json import LONG_BYTES
from gateway.dialects.responses.upstream.upstream_answer import completion_of_response
from gateway.dialects.responses.upstream.upstream_request import responses_body
from gateway.dialects.responses.upstream.upstream_stream import ResponsesTranslator
from gateway.http.asgi import Header

_PATH: Final = b"/responses"


class ResponsesUpstream:
    """Translation between chat completions and a deployment that speaks Responses; it keeps no state."""

    name = "responses"

    def path(self, operation: Operation) -> bytes | None:
        """Return the endpoint of chat requests; Responses has no other."""
        return _PATH if operation is CHAT else None

    def headers(self, own: Sequence[Header]) -> Sequence[Header]:
        """Return the headers that the policy adds; the dialect has none."""
        return own

    def request_headers(self, request: ChatRequest) -> Sequence[Header]:
        """Return no headers: a request has none beside those."""
        return ()

    def body(self, request: ChatRequest, model: str) -> bytes:
        """Return the request for `model`; raises InvalidRequest for a field that cannot be expressed."""
        body = responses_body(request, model)
        return encoded(body) if len(request.raw) <= LONG_BYTES else encoded_in_parts(body)

    def stream(self) -> ResponsesTranslator:
        """Return the translator of one stream."""
        return ResponsesTranslator()

    def answer(self, body: bytes) -> bytes:
        """Return a whole response as a chat completion; raises UpstreamFailed if it is none."""
        return encoded(completion_of_response(body))

    def refusal(self, status: int, body: bytes) -> bytes:
        """Return an error as it is: both APIs have one envelope."""
        return body
