"""AuditRecord: one similar answer held against what a deployment says to the same question."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gateway.cache.audit.comparison import Verdict
from gateway.cache.audit.evidence import Sample
from gateway.cache.exact.sealed import seal, unseal

By = Literal["words", "numbers", "encoder", "judge", "feedback", "admin"]
"""What the verdict rests on."""

MAX_TEXT_CHARS: Final = 2000
"""Of each text that is kept for review."""


class Texts(msgspec.Struct, frozen=True):
    """What was asked and answered; kept only where the policy says so."""

    asked: str
    kept_question: str
    kept_answer: str
    fresh_answer: str


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Instants are seconds since 1970."""

    id: str
    """The request that was, or would have been, given the similar answer."""
    at: float
    tenant: str
    route: str
    exact: bytes
    """The fingerprint of the question that the answer was made for."""
    entry_id: str
    similarity: float
    runner_up: float | None
    chance: float
    shipped_chance: float
    weight: float
    verdict: Verdict
    by: By
    was_served: bool
    answer_similarity: float | None = None
    differences: tuple[str, ...] = ()
    """Between the two questions, as words for people."""
    texts: Texts | None = None
    reviewed_by: str | None = None

    @property
    def sample(self) -> Sample | None:
        """What it proves; None when it could not be told."""
        if self.verdict == "unknown":
            return None
        return Sample(
            id=self.id,
            at=self.at,
            chance=self.chance,
            shipped_chance=self.shipped_chance,
            weight=self.weight,
            is_wrong=self.verdict == "wrong",
            was_served=self.was_served,
        )


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(AuditRecord)


def encode_record(record: AuditRecord) -> bytes:
    """The stored form."""
    return seal(_encode(record))


def decode_record(data: bytes) -> AuditRecord | None:
    """The record, or None for bytes that are damaged or of another version."""
    opened = unseal(data)
    if opened is None:
        return None
    try:
        return _decoder.decode(opened)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def clipped(text: str) -> str:
    """What is kept of it for review."""
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "…"
