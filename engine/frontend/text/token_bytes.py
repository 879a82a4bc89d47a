"""Bytes of each token, from which text is assembled token by token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.config import EngineConfigError

_SPACE_MARK = "\u2581"

ToBytes = Callable[[str], bytes]


def vocabulary_codec(decoder: Mapping[str, Any] | None) -> ToBytes:
    """Return the function that the `decoder` section of tokenizer.json defines for vocabulary entry to bytes.

    Supported are byte-level BPE, and SentencePiece vocabularies with or without byte fallback. A leading space that
    those decoders would strip stays, because an answer continues a prompt.

    Raises:
        EngineConfigError: The decoder is of another kind.
    """
    kinds = _kinds(decoder)
    if "ByteLevel" in kinds:
        return _byte_level_codec()
    if kinds & {"ByteFallback", "Metaspace", "Replace"}:
        return _sentence_piece_bytes
    raise EngineConfigError(
        f"tokenizer.json: decoder {sorted(kinds) or None} is not served; expected ByteLevel, ByteFallback or Metaspace"
    )


def _kinds(decoder: Mapping[str, Any] | None) -> set[str]:
    if decoder is None:
        return set()
    kinds = {str(decoder.get("type"))}
    for part in decoder.get("decoders", ()):
        kinds |= _kinds(part)
    return kinds


def _byte_level_codec() -> ToBytes:
    to_byte = {character: byte for byte, character in enumerate(_byte_level_alphabet())}

    def convert(token: str) -> bytes:
        try:
            return bytes([to_byte[character] for character in token])
        except KeyError:  # the text of an added token, which is not written in the alphabet
            return token.encode()

    return convert


def _byte_level_alphabet() -> list[str]:
    """Return the character for each byte: itself when printable in Latin-1, otherwise the next from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet, next_free = [], 0x100
    for byte in range(256):
        if byte in printable:
            alphabet.append(chr(byte))
        else:
            alphabet.append(chr(next_free))
            next_free += 1
    return alphabet


def _sentence_piece_bytes(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:  # similar to a byte token, but not one
            return token.encode()
    return token.replace(_SPACE_MARK, " ").encode()
