"""Quarantines: responses that were called wrong, remembered longer than the entries that held them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from gateway.util.bounded_dict import Recent
from gateway.util.ordered_json import encode_ordered

QUARANTINE_S: Final = 30 * 24 * 3600.0
"""Time in which the same response to the same request is not stored again."""
MAX_QUESTIONS: Final = 100_000
MAX_ANSWERS: Final = 16
"""Wrong responses to one question; the oldest is forgotten first."""

DIGEST_BYTES: Final = 20


def digest_of(answer: bytes) -> bytes:
    """Return a digest that is equal for completions of equal content, whatever their ids and times."""
    try:
        content: Any = [
            {name: choice.get(name) for name in ("index", "message", "finish_reason")}
            for choice in msgspec.json.decode(answer)["choices"]
        ]
        document = encode_ordered(content)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, RecursionError):
        document = answer  # no completion: then its bytes are all there is to it
    return blake2b(document, digest_size=DIGEST_BYTES, person=b"penstock-wrong").digest()


class Quarantines:
    """Wrong responses by the exact fingerprint of their request. Bounded; time is passed in."""

    __slots__ = ("_wrong",)

    def __init__(self) -> None:
        self._wrong: Recent[bytes, Recent[bytes, float]] = Recent(MAX_QUESTIONS)

    def __len__(self) -> int:
        return len(self._wrong)

    def add(self, exact: bytes, digest: bytes, until: float) -> None:
        """Note that this response to that request is wrong."""
        answers = self._wrong[exact] = self._wrong.get(exact) or Recent(MAX_ANSWERS)
        answers[digest] = until

    def covers(self, exact: bytes, answer: bytes, now: float) -> bool:
        """Return whether the response was called wrong; costs nothing for requests without complaints."""
        answers = self._wrong.get(exact)
        return answers is not None and now < answers.get(digest_of(answer), 0.0)
