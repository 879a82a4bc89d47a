"""Pricer: a request's price in tokens from its bytes, its tenant and its route; it learns from what engines count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from gateway.chat_fields import AudioPart, ImagePart, Message
from gateway.request import ChatRequest
from gateway.telemetry.record import Usage
from routing_policies.estimators import BytesPerToken, OutputForecast
from routing_policies.price import Price

E = TypeVar("E", BytesPerToken, OutputForecast)

MAX_KEYS: Final = 4096
"""Pairs of tenant and model, or of tenant and route, that are remembered; beyond that the oldest is forgotten."""
_IMAGE_BYTES: Final = 1024
"""What an image counts, in bytes of text: its encoded size says nothing about its tokens."""


class Pricer:
    """Prices requests; `settle` with the usage that came back makes the next price better."""

    __slots__ = ("_outputs", "_ratios")

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], BytesPerToken] = {}
        self._outputs: dict[tuple[str, str], OutputForecast] = {}

    def price(self, request: ChatRequest, *, tenant: str, route: str) -> Price:
        """What the request is expected to cost; nothing of it is taken for cached."""
        prompt_tokens = _kept(self._ratios, (tenant, request.model), BytesPerToken).tokens(text_bytes(request))
        limit = request.max_output_tokens
        output_tokens = _kept(self._outputs, (tenant, route), OutputForecast).mean_tokens(limit) * request.num_choices
        return Price(prompt_tokens, prompt_tokens, output_tokens)

    def bytes_per_token(self, request: ChatRequest, *, tenant: str) -> float:
        """As learned from the tenant's own requests to this model."""
        num_bytes = text_bytes(request)
        tokens = _kept(self._ratios, (tenant, request.model), BytesPerToken).tokens(num_bytes)
        return max(1.0, num_bytes / max(1, tokens))

    def settle(self, request: ChatRequest, usage: Usage, *, tenant: str, route: str) -> None:
        """The engine counted."""
        _kept(self._ratios, (tenant, request.model), BytesPerToken).observe(text_bytes(request), usage.prompt_tokens)
        _kept(self._outputs, (tenant, route), OutputForecast).observe(usage.completion_tokens / request.num_choices)


def text_bytes(request: ChatRequest) -> int:
    """Bytes of the body that are text for the model: all of it, but for images and audio."""
    size = len(request.raw)
    for message in request.messages:
        if type(message.content) is list:
            size -= _media_bytes(message)
    return max(size, 1)


def _media_bytes(message: Message) -> int:
    """What of this message's size is not text, less what stands for it."""
    assert isinstance(message.content, list)
    size = 0
    for part in message.content:
        if isinstance(part, ImagePart):
            size += len(part.image_url.url) - _IMAGE_BYTES
        elif isinstance(part, AudioPart):
            size += sum(len(value) for value in part.input_audio.values() if isinstance(value, str)) - _IMAGE_BYTES
    return size


def _kept(known: dict[tuple[str, str], E], key: tuple[str, str], make: Callable[[], E]) -> E:
    found = known.get(key)
    if found is None:
        if len(known) >= MAX_KEYS:
            del known[next(iter(known))]
        found = known[key] = make()
    return found
