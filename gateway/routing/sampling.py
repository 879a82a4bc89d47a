"""What a recorded request is remembered by, taken while it is being served."""

from __future__ import annotations

from typing import Any

from gateway.cache.fingerprint import fingerprint
from gateway.chat_head import ChatHead
from gateway.request import ChatRequest
from gateway.routing.facts import RequestFacts
from gateway.telemetry.tape import Tape

_FACTS = ("turns", "prompt_bytes", "has_tools", "has_images")


class Sampler:
    """Beside the pipeline, where the settings ask for a recording."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def sample(self, request: ChatRequest, head: ChatHead, header_names: tuple[str, ...]) -> dict[str, Any] | None:
        """Features and digests; None for a request that no digest can be made of."""
        found = fingerprint(request, scope=self._tape.salt, candidates=b"")
        if found is None:
            return None
        facts = RequestFacts(request)
        sample: dict[str, Any] = {name: facts.fact(name) for name in _FACTS}
        sample["question"] = found.exact.hex()
        sample["user"] = self._tape.digest(request.fields.user)
        if header_names:
            headers = head.all()
            sample["headers"] = {name: headers[name] for name in header_names if name in headers}
        if self._tape.keeps_text:
            sample["text"] = facts.fact("text")
        return sample
