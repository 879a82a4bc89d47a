"""Bytes of tokens to text, a token at a time; half a character is never shown."""

from __future__ import annotations

import codecs


class Detokenizer:
    """Text of one sequence. O(1) amortised per token: only the bytes of an unfinished character are kept."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, data: bytes) -> str:
        """The characters that are complete with `data`; bytes that can never be text become U+FFFD."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left at the end: U+FFFD when the last character stayed unfinished, else nothing."""
        return self._decoder.decode(b"", final=True)
