"""AuditRecord: one entry compared with a deployment's answer to the same question."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gateway.cache.audit.comparison import Verdict
from gateway.cache.audit.evidence import Sample
from gateway.cache.exact.sealed import SealedCodec

By = Literal["words", "numbers", "encoder", "judge", "feedback", "admin"]
"""The source of a verdict."""

MAX_TEXT_CHARS: Final = 2000
"""Length of each text that is stored for review."""


class Texts(msgspec.Struct, frozen=True):
    """The texts of questions and responses; stored only where the policy allows it."""

    prompt: str
    cached_prompt: str
    cached_response: str
    fresh_answer: str


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one audit. Instants are seconds since 1970."""

    id: str
    """The request that was, or would have been, served from the entry."""
    at: float
    tenant: str
    route: str
    exact: bytes
    """The fingerprint of the entry."""
    entry_id: str
    similarity: float
    runner_up: float | None
    match_probability: float
    shipped_probability: float
    weight: float
    verdict: Verdict
    by: By
    was_served: bool
    answer_similarity: float | None = None
    differences: tuple[str, ...] = ()
    """Differences between the two questions, as words for people."""
    texts: Texts | None = None
    reviewed_by: str | None = None

    @property
    def sample(self) -> Sample | None:
        """The sample for the evidence; None for an unknown verdict."""
        if self.verdict == "unknown":
            return None
        return Sample(
            id=self.id,
            at=self.at,
            match_probability=self.match_probability,
            shipped_probability=self.shipped_probability,
            weight=self.weight,
            is_wrong=self.verdict == "wrong",
            was_served=self.was_served,
        )


_codec: Final = SealedCodec(AuditRecord)

encode_record: Final = _codec.encode
decode_record: Final = _codec.decode


def clipped(text: str) -> str:
    """Return the part of a text that is stored for review."""
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "…"
