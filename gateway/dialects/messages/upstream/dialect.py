"""AnthropicDialect: deployments that speak Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.chat.json_members import without_members
from gateway.chat.operation import CHAT, Operation
from gateway.chat.request import ChatRequest
from gateway.dialects.messages.headers import MAX_BETA_BYTES
from gateway.dialects.messages.projection import BETAS
from gateway.dialects.messages.upstream.answer import chat_envelope, completion_of
from gateway.dialects.messages.upstream.events import MessageEvents
from gateway.dialects.messages.upstream.request import messages_body
from gateway.http.asgi import Header
from gateway.upstreams.http1.response import BodyTranslator

_PATH: Final = b"/messages"
_VERSION: Final = (b"anthropic-version", b"2023-06-01")
_ONLY_FOR_ANSWERS: Final = frozenset({"max_tokens", "stream", "metadata", "service_tier"})
_AUTHORIZATION: Final = b"authorization"
_BETA: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
"""Name of a beta: a client of chat completions can write the member that becomes this header, too."""
_BEARER: Final = b"bearer"


class AnthropicDialect:
    """Translation to Anthropic's Messages API, and of its answers into chat completions."""

    name = "anthropic"
    count_path = b"/messages/count_tokens"
    """Endpoint that counts tokens, below the base of the API."""

    def path(self, operation: Operation) -> bytes | None:
        """Return the endpoint below the base of the API; None for operations other than chat."""
        return _PATH if operation is CHAT else None

    def headers(self, own: Sequence[Header]) -> Sequence[Header]:
        """Return the version and the policy's headers, a bearer key among them as `x-api-key`."""
        sent = [_own_credential(header) for header in own]
        return sent if any(name == _VERSION[0] for name, _ in sent) else [_VERSION, *sent]

    def request_headers(self, request: ChatRequest) -> Sequence[Header]:
        """Return the `anthropic-beta` of the client."""
        betas = request.document.get(BETAS)
        named = (
            [beta for beta in betas if isinstance(beta, str) and _BETA.fullmatch(beta)]
            if isinstance(betas, list)
            else []
        )
        value = ",".join(named).encode("ascii")
        return ((b"anthropic-beta", value),) if 0 < len(value) <= MAX_BETA_BYTES else ()

    def body(self, request: ChatRequest, model: str) -> bytes:
        """Return the request for `model`; raises InvalidRequest for a field whose loss would change the answer."""
        return messages_body(request, model)

    def count_body(self, request: ChatRequest, model: str) -> bytes:
        """Return the request that counts the tokens of `model`'s prompt. Raises InvalidRequest."""
        return without_members(messages_body(request, model), _ONLY_FOR_ANSWERS)

    def stream(self) -> BodyTranslator:
        """Return the translator of one event stream."""
        return MessageEvents()

    def answer(self, body: bytes) -> bytes:
        """Return a message as a chat completion; raises UpstreamFailed if it is none."""
        return completion_of(body)

    def refusal(self, status: int, body: bytes) -> bytes:
        """Return an error in the envelope of chat completions."""
        return chat_envelope(body)


def _own_credential(header: Header) -> Header:
    scheme, _, key = header[1].partition(b" ")
    if header[0] == _AUTHORIZATION and scheme.lower() == _BEARER:
        return b"x-api-key", key.strip()
    return header
