"""Label: result of one comparison of a pair of models with the prompt's features, but no text."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.features import Features
from routing_policies.quality.guard import END_WORDS
from routing_policies.quality.hashing import HASH_BYTES
from routing_policies.quality.model import FORMAT
from routing_policies.quality.training.outcome import PairOutcome

Source = Literal["shadow", "audit", "feedback"]
"""Origin of a comparison."""

Pair = tuple[str, str]
"""Names of the weak and the strong model."""

_LEVELS: Final = 127


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one comparison: figures, hashes of words and, if there was one, an embedding."""

    format: int = FORMAT
    """Version of the figures' format; figures of another version are not comparable."""
    weak: str
    strong: str
    at: float
    """Seconds since 1970."""
    source: Source
    lost: float
    """Quality lost by the weaker model's answer, in [0, 1]."""
    numbers: tuple[float, ...]
    end: bytes
    """Hashes of the text's last words, unordered."""
    shapes: bytes
    """Hashes of the text's other words."""
    words: bytes
    """Hashes of the text's pairs of words, and of words of the previous message."""
    vector: bytes = b""
    """Embedding of the text, one byte for each dimension; empty without one."""
    encoder: str = ""
    """Id of the encoder of `vector`."""
    kind: str = ""
    """Kind of work that the route names."""
    tenant: str = ""
    """Tenant whose request was compared; a label buffer is shared fairly by tenants."""
    confidence: float | None = None
    """Probability by which a cascade decided about the weaker model's answer; None where none did."""

    @property
    def pair(self) -> Pair:
        """Return the pair of models that was compared."""
        return self.weak, self.strong

    @property
    def features(self) -> Features:
        """Return the features with hashes for words."""
        end, shapes = _unpacked(self.end), _unpacked(self.shapes)
        return Features(list(self.numbers), {*end, *shapes, *_unpacked(self.words)}, shapes + end)

    @property
    def outcome(self) -> PairOutcome:
        """Return the outcome for training."""
        return PairOutcome(features=self.features, lost=self.lost, category=self.kind)

    @property
    def embedding(self) -> NDArray[np.float32] | None:
        """Return the embedding, normalized to length 1; None without one."""
        if not self.vector:
            return None
        found = np.frombuffer(self.vector, dtype=np.int8).astype(np.float32)
        return found / max(float(np.linalg.norm(found)), 1.0)


def label_of(
    features: Features,
    pair: Pair,
    *,
    lost: float,
    source: Source,
    at: float,
    vector: NDArray[np.float32] | None = None,
    encoder: str = "",
    kind: str = "",
    tenant: str = "",
    confidence: float | None = None,
) -> Label:
    """Return a label from features whose words are already hashes."""
    end = sorted(features.shapes[-END_WORDS:])
    others = sorted(set(features.shapes).difference(end))
    return Label(
        weak=pair[0],
        strong=pair[1],
        at=at,
        source=source,
        lost=lost,
        numbers=tuple(round(number, 5) for number in features.numbers),
        end=_packed(end),
        shapes=_packed(others),
        words=_packed(sorted(features.words.difference(features.shapes))),
        vector=b"" if vector is None else _quantized(vector),
        encoder="" if vector is None else encoder,
        kind=kind,
        tenant=tenant,
        confidence=confidence,
    )


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Label)


def encode_label(label: Label) -> bytes:
    """Return the stored form."""
    return _encode(label)


def decode_label(data: bytes) -> Label | None:
    """Return the label; None for damaged bytes or figures in another format."""
    try:
        label = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return label if label.format == FORMAT else None


def _packed(hashes: list[str]) -> bytes:
    return bytes.fromhex("".join(hashes))


def _unpacked(data: bytes) -> list[str]:
    return [data[start : start + HASH_BYTES].hex() for start in range(0, len(data), HASH_BYTES)]


def _quantized(vector: NDArray[np.float32]) -> bytes:
    largest = max(float(np.abs(vector).max()), 1e-9)
    return np.round(vector * (_LEVELS / largest)).astype(np.int8).tobytes()
