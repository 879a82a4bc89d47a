"""UpstreamDialect: the API that a deployment speaks where it is not chat completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.chat.operation import Operation
from gateway.chat.request import ChatRequest
from gateway.http.asgi import Header
from gateway.upstreams.http1.response import BodyTranslator


class UpstreamDialect(Protocol):
    """Translation of requests to one deployment, and of its answers into chat completions."""

    name: str
    """Name in the policy."""

    def path(self, operation: Operation) -> bytes | None:
        """Return the endpoint below the base of the deployment's API; None for an operation that it does not have."""

    def headers(self, own: Sequence[Header]) -> Sequence[Header]:
        """Return the headers that every request carries.

        Args:
            own: Headers that the policy adds, credentials included; they count more than the dialect's.
        """

    def request_headers(self, request: ChatRequest) -> Sequence[Header]:
        """Return the headers of one request beside those."""

    def body(self, request: ChatRequest, model: str) -> bytes:
        """Return the request for `model`; its document has members of no other dialect than this one.

        Raises:
            InvalidRequest: The loss of a field would change the answer.
        """

    def stream(self) -> BodyTranslator:
        """Return the translator of one event stream into the events of a chat completion, `[DONE]` included."""

    def answer(self, body: bytes) -> bytes:
        """Return a plain answer as a chat completion; raises UpstreamFailed if it is none."""

    def refusal(self, status: int, body: bytes) -> bytes:
        """Return the answer of a status other than 200 in the error envelope of chat completions."""
