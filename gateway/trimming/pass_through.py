"""Trimming seam: what a trimmer is, and the one that leaves every request as it came."""

from __future__ import annotations

from typing import Protocol

from gateway.request import ChatRequest
from routing_policies.document import Trim


class Trimmer(Protocol):
    """Shortens a request to a route's budget, or returns it as it is."""

    def trim(self, request: ChatRequest, rule: Trim) -> ChatRequest:
        """The request to go on with; the same object when nothing was cut."""
        ...


class PassThroughTrimmer:
    """Cuts nothing, so the raw bytes go upstream unchanged."""

    def trim(self, request: ChatRequest, rule: Trim) -> ChatRequest:
        """The request itself."""
        return request
