"""Vocabularies of GGUF files: kinds of tokens, special tokens, the ends of answers, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from engine.models.gguf.container import GgufError
from engine.models.gguf.vocabulary import read_vocabulary
from tests.engine.models.gguf.vocabularies import (
    CONTROL,
    NORMAL,
    USER_DEFINED,
    write_byte_level,
    write_sentence_piece,
    write_vocabulary,
)


@pytest.mark.parametrize(("kind", "name"), [("bert", "WordPiece"), ("t5", "Unigram"), ("rwkv", "RWKV")])
def test_other_kinds_are_refused_by_name(kind: str, name: str, tmp_path: Path) -> None:
    model = write_vocabulary(tmp_path / "m.gguf", lambda writer: writer.add_tokenizer_model(kind))

    with pytest.raises(GgufError, match=rf"tokenizer\.ggml\.model: '{kind}' \({name}\) is not supported"):
        read_vocabulary(model)


@pytest.mark.parametrize("write", [lambda writer: None, lambda writer: writer.add_tokenizer_model("no_vocab")])
def test_a_file_without_a_tokenizer_is_refused(write: Callable[[gguf.GGUFWriter], None], tmp_path: Path) -> None:
    with pytest.raises(GgufError, match=r"tokenizer\.ggml\.model: the file has no tokenizer; take one"):
        read_vocabulary(write_vocabulary(tmp_path / "m.gguf", write))


def test_control_and_user_defined_tokens_are_added_tokens(tmp_path: Path) -> None:
    more = [("<|im_end|>", CONTROL), ("<tool>", USER_DEFINED), ("plain", NORMAL), ("", NORMAL)]
    vocabulary = read_vocabulary(write_byte_level(tmp_path / "m.gguf", more=more))

    added = {token["content"]: token["special"] for token in vocabulary.added_tokens()}
    assert added == {"<|im_end|>": True, "<tool>": False}
    assert list(vocabulary.ids)[-1] == "[EMPTY_263]"


def test_named_and_known_tokens_end_an_answer(tmp_path: Path) -> None:
    def also(writer: gguf.GGUFWriter) -> None:
        writer.add_eos_token_id(261)
        writer.add_eot_token_id(262)

    more = [("done", CONTROL), ("<|eot_id|>", CONTROL), ("<|im_end|>", CONTROL)]
    vocabulary = read_vocabulary(write_byte_level(tmp_path / "m.gguf", more=more, also=also))

    assert vocabulary.end_ids == [261, 262]
    assert vocabulary.special["eos_token"] == "<|eot_id|>"


def test_the_end_of_a_message_does_not_end_an_answer_in_channels(tmp_path: Path) -> None:
    more = [("<|end|>", CONTROL), ("<|return|>", CONTROL), ("<|call|>", CONTROL)]

    assert read_vocabulary(write_byte_level(tmp_path / "m.gguf", more=more)).end_ids == [261, 262]


def test_a_token_twice_is_refused(tmp_path: Path) -> None:
    model = write_byte_level(tmp_path / "m.gguf", more=[("x1", NORMAL), ("x1", NORMAL)])

    with pytest.raises(GgufError, match="tokens 260 and 261 are both 'x1'"):
        read_vocabulary(model)


def test_wrong_lengths_and_ids_are_refused(tmp_path: Path) -> None:
    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b"])
        writer.add_token_types([1])

    with pytest.raises(GgufError, match=r"token_type: has 1 entries for 2 tokens"):
        read_vocabulary(write_vocabulary(tmp_path / "m.gguf", write))
    model = write_byte_level(tmp_path / "n.gguf", also=lambda writer: writer.add_eos_token_id(70_000))
    with pytest.raises(GgufError, match="eos_token_id: 70000 is not one of the 260 tokens"):
        read_vocabulary(model)


def test_plain_text_of_a_sentence_piece_vocabulary_is_no_markup(tmp_path: Path) -> None:
    pieces = [("  ", USER_DEFINED), ("<b>", USER_DEFINED), ("<start_of_image>", USER_DEFINED), ("▁a", NORMAL)]
    vocabulary = read_vocabulary(write_sentence_piece(tmp_path / "m.gguf", pieces)).with_text_tokens("▁")

    assert vocabulary.text_tokens == ("▁▁", "<b>")
    assert vocabulary.ids["▁▁"] == 259
    assert [token["content"] for token in vocabulary.added_tokens()] == ["<unk>", "<s>", "</s>", "<start_of_image>"]


def test_a_large_vocabulary_is_read_in_good_time(tmp_path: Path) -> None:
    pieces = [(f"▁word{index}", NORMAL) for index in range(250_000)]
    model = write_sentence_piece(tmp_path / "m.gguf", pieces)
    started_at = time.process_time()

    assert len(read_vocabulary(model).ids) == 250_259
    assert time.process_time() - started_at < 2
