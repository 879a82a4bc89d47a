"""Needs: what a request wants from a response besides the text, so that an entry without it is not served."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.chat.request import ChatRequest

_NO_USAGE: Final = b'"usage":null'
"""Part of a completion that was assembled from a stream without usage."""
_WITH_USAGE: Final = b'"include_usage":true'
_ANY_TIER: Final = frozenset({None, "auto", "default"})


class _Answer(msgspec.Struct):
    usage: Any = None
    service_tier: str | None = None


_decode: Final = msgspec.json.Decoder(_Answer).decode


class Needs(msgspec.Struct, frozen=True, gc=False):
    """Wishes of one request beyond its fingerprint, which covers choices and log probabilities."""

    usage: bool = False
    """The response must have its usage: a stream whose client requires it."""
    is_plain: bool = False
    """The response must have its usage wherever its upstream sends it, as plain responses always do."""
    service_tier: str | None = None
    """The service tier that the response must have; None: any."""

    def are_met_by(self, answer: bytes) -> bool:
        """Return whether a whole completion meets the needs."""
        if self.is_plain and _NO_USAGE in answer:
            return False
        if not self.usage and self.service_tier is None:
            return True
        try:
            document = _decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        is_of_tier = self.service_tier is None or document.service_tier in (None, self.service_tier)
        return is_of_tier and (not self.usage or bool(document.usage))

    def may_follow(self, shape: bytes) -> bool:
        """Return whether an answer that is under way in this shape will meet the needs."""
        is_without_usage = shape != b"" and _WITH_USAGE not in shape
        return not (is_without_usage and (self.usage or self.is_plain))


NO_NEEDS: Final = Needs()


def needs_of(request: ChatRequest) -> Needs:
    """Return the needs of a request."""
    fields = request.fields
    options = fields.stream_options
    return Needs(
        usage=request.stream and options is not None and options.include_usage is True,
        is_plain=not request.stream,
        service_tier=None if fields.service_tier in _ANY_TIER else fields.service_tier,
    )
