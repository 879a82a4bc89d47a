"""GGUF files that hold a made-up vocabulary and one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import numpy as np

from engine.models.gguf.parts import GgufModel
from tests.engine.models.gguf.files import close

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
ALPHABET = [chr(code) for code in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))]
ALPHABET += [chr(0x100 + index) for index in range(256 - len(ALPHABET))]
"""The characters that byte-level vocabularies write bytes with."""


def write_vocabulary(path: Path, write: Callable[[gguf.GGUFWriter], None]) -> GgufModel:
    """The model whose metadata `write` adds."""
    writer = gguf.GGUFWriter(path, "llama")
    write(writer)
    writer.add_tensor("x", np.ones(4, np.float32))
    return GgufModel([close(writer, path)])


def write_byte_level(
    path: Path,
    *,
    pre: str = "gpt-2",
    more: Sequence[tuple[str, int]] = (),
    merges: Sequence[str] = ("h e", "l l", "he ll", "hell o"),
    also: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
) -> GgufModel:
    """A byte-level vocabulary: all bytes, the merges' tokens and more (text, kind)."""
    made = [merge.replace(" ", "") for merge in merges if "?" not in merge]

    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list([*ALPHABET, *made, *(text for text, _ in more)])
        writer.add_token_types([NORMAL] * (256 + len(made)) + [kind for _, kind in more])
        writer.add_token_merges(list(merges))
        also(writer)

    return write_vocabulary(path, write)


def write_sentence_piece(
    path: Path,
    pieces: Sequence[tuple[str, int]],
    *,
    prefix: bool = True,
    also: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
) -> GgufModel:
    """A SentencePiece vocabulary: start, end and unknown token, all bytes, then pieces (text, kind), best first."""
    head = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens = head + [(f"<0x{byte:02X}>", BYTE) for byte in range(256)] + list(pieces)

    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list([text for text, _ in tokens])
        writer.add_token_types([kind for _, kind in tokens])
        writer.add_token_scores([-float(index) for index in range(len(tokens))])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_space_prefix(prefix)
        also(writer)

    return write_vocabulary(path, write)
