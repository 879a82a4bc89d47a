"""Tokenizers made from GGUF vocabularies: pieces, merges, start and end tokens, byte fallback, templates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import Tokenizer

from engine.config import MAX_TOKENIZER_MERGES
from engine.models.gguf.container import GgufError
from engine.models.gguf.parts import GgufModel
from engine.models.gguf.tokenizer_files import make_tokenizer, make_tokenizer_config
from engine.models.gguf.vocabulary import read_vocabulary
from tests.engine.models.gguf.vocabularies import (
    ALPHABET,
    CONTROL,
    NORMAL,
    USER_DEFINED,
    write_byte_level,
    write_sentence_piece,
)

SPACE = "▁"
PIECES = [(text, NORMAL) for text in ("h", "i", SPACE, "hi", f"{SPACE}hi", "x", "xx", "xxx")]


def tokenizer(model: GgufModel) -> Tokenizer:
    found: Tokenizer = Tokenizer.from_str(json.dumps(make_tokenizer(model, read_vocabulary(model))))
    return found


def pieces(model: GgufModel, text: str, *, special: bool = False) -> Sequence[str]:
    tokens: Sequence[str] = tokenizer(model).encode(text, add_special_tokens=special).tokens
    return tokens


def config(model: GgufModel) -> dict[str, Any]:
    return make_tokenizer_config(model, read_vocabulary(model))


def test_byte_level_merges_apply_in_order(tmp_path: Path) -> None:
    model = write_byte_level(tmp_path / "m.gguf")

    assert pieces(model, "hello hell ä") == ["hello", "Ġ", "hell", "Ġ", "Ã", "¤"]
    assert tokenizer(model).decode(tokenizer(model).encode("hello ä").ids) == "hello ä"


def test_control_tokens_are_split_off(tmp_path: Path) -> None:
    model = write_byte_level(tmp_path / "m.gguf", more=[("<|im_start|>", CONTROL)])

    assert pieces(model, "hello<|im_start|>hello") == ["hello", "<|im_start|>", "hello"]


def test_merges_of_unknown_tokens_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = write_byte_level(tmp_path / "m.gguf", merges=["h e", "? z"])

    assert pieces(model, "he?z") == ["he", "?", "z"]
    assert "merges: left out 1 of other tokens" in caplog.text


def test_the_default_of_the_start_token_depends_on_the_pre_tokenizer(tmp_path: Path) -> None:
    def also(writer: gguf.GGUFWriter) -> None:
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)

    plain = write_byte_level(tmp_path / "a.gguf", also=also)
    llama3 = write_byte_level(tmp_path / "b.gguf", pre="llama-bpe", also=also)

    assert pieces(plain, "hello", special=True) == ["hello"]
    assert pieces(llama3, "hello", special=True) == [ALPHABET[0], "hello"]


def test_start_and_end_tokens_are_added_where_the_file_sets_them(tmp_path: Path) -> None:
    def also(writer: gguf.GGUFWriter) -> None:
        writer.add_add_bos_token(False)
        writer.add_add_eos_token(True)

    model = write_sentence_piece(tmp_path / "m.gguf", PIECES, also=also)

    assert pieces(model, "hi", special=True) == [f"{SPACE}hi", "</s>"]
    assert (config(model)["add_bos_token"], config(model)["add_eos_token"]) == (False, True)


def test_sentence_piece_merges_follow_the_scores(tmp_path: Path) -> None:
    model = write_sentence_piece(tmp_path / "m.gguf", PIECES)

    assert pieces(model, "hi hi", special=True) == ["<s>", f"{SPACE}hi", f"{SPACE}hi"]
    # The better token comes first: x x x x x → xx xx x → xx xxx.
    assert pieces(model, "xxxxx") == [SPACE, "xx", "xxx"]


def test_unknown_characters_become_bytes(tmp_path: Path) -> None:
    model = write_sentence_piece(tmp_path / "m.gguf", PIECES, prefix=False)

    assert pieces(model, "hié") == ["hi", "<0xC3>", "<0xA9>"]
    assert tokenizer(model).decode(tokenizer(model).encode("hi é").ids) == "hi é"


def test_white_space_and_tags_are_tokens_without_merges(tmp_path: Path) -> None:
    more = [("  ", USER_DEFINED), ("   ", USER_DEFINED), ("\n\n", USER_DEFINED), ("<b>", USER_DEFINED)]
    model = write_sentence_piece(tmp_path / "m.gguf", [*PIECES, *more], prefix=False)

    assert pieces(model, "     hi\n\n<b>x") == [3 * SPACE, 2 * SPACE, "hi", "\n\n", "<b>", "x"]


def test_an_unknown_pre_tokenizer_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"tokenizer\.ggml\.pre: 'newest' is not supported; expected one of default"):
        tokenizer(write_byte_level(tmp_path / "m.gguf", pre="newest"))


def test_a_million_merges_are_refused(tmp_path: Path) -> None:
    merges = [f"? {index}" for index in range(MAX_TOKENIZER_MERGES + 1)]

    with pytest.raises(GgufError, match=r"merges: has 750001 merges; at most 750000 are read"):
        tokenizer(write_byte_level(tmp_path / "m.gguf", merges=merges))


def test_scores_of_another_number_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_sentence_piece(path, PIECES)
    path.write_bytes(path.read_bytes().replace(b"tokenizer.ggml.scores", b"tokenizer.ggml.scoreS"))

    with pytest.raises(GgufError, match="scores: is missing"):
        tokenizer(GgufModel([path]))


def test_the_chat_template_and_special_tokens_are_in_the_config(tmp_path: Path) -> None:
    model = write_sentence_piece(
        tmp_path / "m.gguf", PIECES, also=lambda writer: writer.add_chat_template("{{ messages }}")
    )

    assert config(model)["chat_template"] == "{{ messages }}"
    assert (config(model)["bos_token"], config(model)["eos_token"], config(model)["unk_token"]) == (
        *("<s>", "</s>"),
        "<unk>",
    )


def test_templates_of_other_names_are_stored_beside_the_default_one(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools }}"}]

    model = write_sentence_piece(tmp_path / "m.gguf", PIECES, also=lambda writer: writer.add_chat_template(named))

    assert config(model)["chat_template"] == named
