"""Bytes of the tokens of each kind of vocabulary."""

from __future__ import annotations

import pytest
from tokenizers import pre_tokenizers

from engine.config import EngineConfigError
from engine.frontend.text import tokenizer as ours
from engine.frontend.text.token_bytes import vocabulary_codec
from tests.engine.frontend.text.test_tokenizer import SPEC


def test_a_decoder_that_is_not_served_is_a_configuration_error() -> None:
    with pytest.raises(EngineConfigError, match="WordPiece"):
        ours.Tokenizer(
            {**SPEC, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}},
            stop_token_ids=(),
            special_texts=(),
        )


def test_byte_fallback_tokens_are_bytes() -> None:
    decoder = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    }
    spec = {**SPEC, "decoder": decoder, "added_tokens": []}
    spec["model"] = {**SPEC["model"], "vocab": {"▁hi": 0, "<0xC3>": 1, "<0xA9>": 2, "<0xZZ>": 3}, "merges": []}
    tokenizer = ours.Tokenizer(spec, stop_token_ids=(), special_texts=())
    assert [tokenizer.token_bytes(i) for i in range(4)] == [b" hi", b"\xc3", b"\xa9", b"<0xZZ>"]


def test_every_byte_has_a_character_of_the_byte_level_alphabet() -> None:
    codec = vocabulary_codec({"type": "ByteLevel"})
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert sorted(codec(character) for character in alphabet) == [bytes([byte]) for byte in range(256)]
    assert codec("Ġhello") == b" hello"


def test_the_text_of_an_added_token_is_itself() -> None:
    assert vocabulary_codec({"type": "ByteLevel"})("<|x y|>") == b"<|x y|>"


def test_a_space_mark_is_a_space_also_at_the_start() -> None:
    codec = vocabulary_codec({"type": "Metaspace", "replacement": "\u2581"})
    assert (codec("\u2581a\u2581b"), codec("<0x0A>"), codec("<0x0A")) == (b" a b", b"\n", b"<0x0A")


def test_without_a_decoder_no_vocabulary_is_served() -> None:
    with pytest.raises(EngineConfigError, match="decoder None is not served"):
        vocabulary_codec(None)
