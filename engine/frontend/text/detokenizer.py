"""Incremental conversion of token bytes to text; incomplete characters are held back."""

from __future__ import annotations

import codecs


class Detokenizer:
    """Text decoder of one sequence. It keeps only the bytes of an incomplete character, O(1) amortized per token."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def is_incomplete(self) -> bool:
        """True if the bytes so far end inside a character."""
        return bool(self._decoder.getstate()[0])

    def feed(self, data: bytes) -> str:
        """Return the characters that `data` completes; invalid bytes become U+FFFD."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """Return U+FFFD if the last character is incomplete, otherwise an empty text."""
        return self._decoder.decode(b"", final=True)
