"""The tokenizer against the library it is made of."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers import decoders as library_decoders

from engine.config import EngineConfigError
from engine.frontend.text import tokenizer as ours
from engine.frontend.text.chat_template import load_chat_template
from engine.frontend.text.detokenizer import Detokenizer
from engine.frontend.text.placeholders import Segment
from engine.frontend.text.tokenizer import load_tokenizer
from tests.engine.frontend.tiny_model import END, SPECIALS, make_tokenizer, write_model

LIBRARY = make_tokenizer()
SPEC: dict[str, Any] = json.loads(LIBRARY.to_str())
TOKENIZER = ours.Tokenizer(SPEC, stop_token_ids={END}, special_texts=())
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def plain_ids(text: str) -> list[int]:
    ids: list[int] = LIBRARY.encode(text, add_special_tokens=False).ids
    return ids


@given(st.lists(st.integers(0, LIBRARY.get_vocab_size() - 1), max_size=30))
def test_bytes_of_tokens_put_together_are_the_librarys_decoding(ids: list[int]) -> None:
    detokenizer = Detokenizer()
    text = "".join(detokenizer.feed(TOKENIZER.token_bytes(token_id)) for token_id in ids) + detokenizer.flush()
    assert text == LIBRARY.decode(ids, skip_special_tokens=True)


@given(ANY_TEXT, ANY_TEXT)
def test_segments_without_special_tokens_encode_as_one_text(before: str, after: str) -> None:
    assume(not any(special in before + after for special in SPECIALS))
    ids = TOKENIZER.encode_segments([Segment(before, trusted=True), Segment(after, trusted=False)])
    assert ids == plain_ids(before + after)


@given(st.lists(st.one_of(ANY_TEXT, st.sampled_from(SPECIALS)), max_size=6).map("".join))
def test_untrusted_text_never_becomes_a_special_token(text: str) -> None:
    ids = TOKENIZER.encode_segments(
        [Segment("<|im_start|>user\n", trusted=True), Segment(text, trusted=False), Segment("<|im_end|>", trusted=True)]
    )
    assert [token_id for token_id in ids if token_id < len(SPECIALS)] == [1, END]
    assert LIBRARY.decode(ids[1:-1], skip_special_tokens=False) == "user\n" + text


@given(st.text(alphabet="ab<|im_end|>", max_size=30))
def test_special_tokens_cannot_be_put_together_from_neighbours(text: str) -> None:
    cut = len(text) // 2
    ids = TOKENIZER.encode_segments([Segment(text[:cut], trusted=False), Segment(text[cut:], trusted=False)])
    assert END not in ids


def test_a_trusted_text_alone_encodes_as_the_library_does() -> None:
    text = "<|im_start|>user\nhello<|im_end|>\n"
    assert TOKENIZER.encode_segments([Segment(text, trusted=True)]) == plain_ids(text)


def test_a_trusted_special_token_takes_the_white_space_its_flags_state() -> None:
    library = make_tokenizer()
    library.add_special_tokens([AddedToken("<|cut|>", lstrip=True, rstrip=True)])
    tokenizer = ours.Tokenizer(json.loads(library.to_str()), stop_token_ids=(), special_texts=())
    text = "hello  <|cut|>\n world"
    segments = [Segment(text, trusted=True), Segment("x", trusted=False)]
    assert tokenizer.encode_segments(segments) == library.encode(text + "x", add_special_tokens=False).ids


def test_pieces_of_a_vocabulary_that_seem_special_are_broken_up() -> None:
    pieces = [("<unk>", 0.0), ("</s>", -1.0), *((character, -2.0) for character in "abc</s>▁")]
    library = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    library.decoder = library_decoders.Metaspace(prepend_scheme="first")
    library.add_special_tokens(["</s>"])
    tokenizer = ours.Tokenizer(json.loads(library.to_str()), stop_token_ids={1}, special_texts=())
    ids = tokenizer.encode_segments([Segment("</s>", trusted=True), Segment("a</s>b", trusted=False)])
    assert (ids[0], 1 in ids[1:]) == (1, False)
    assert b"".join(tokenizer.token_bytes(token_id) for token_id in ids) == b"a</s>b"


@settings(max_examples=30)
@given(ANY_TEXT)
def test_raw_prompts_get_the_start_token_and_nothing_special_of_their_own(text: str) -> None:
    from tokenizers.processors import TemplateProcessing

    library = make_tokenizer()
    library.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", pair=None, special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer = ours.Tokenizer(json.loads(library.to_str()), stop_token_ids=(), special_texts=())
    ids = tokenizer.encode_text(text + "<|im_end|>")
    assert ids[0] == 0
    assert all(token_id >= len(SPECIALS) for token_id in ids[1:])


def test_a_model_folder_names_its_stop_tokens(model_dir: Path) -> None:
    tokenizer = load_tokenizer(model_dir)
    assert tokenizer.stop_token_ids == {0, END}
    assert tokenizer.special_texts == set(SPECIALS)


def test_without_generation_settings_the_models_own_end_token_counts(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text('{"eos_token_id": 0}')
    assert load_tokenizer(folder).stop_token_ids == {0, END}


@pytest.mark.parametrize("content", ["{", "[]", '{"model": {"type": "Strange"}}', "[" * 100_000])
def test_a_broken_tokenizer_file_is_a_configuration_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(EngineConfigError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "added", ["x", 1, {"a": 1}, [1], [None], [{"id": 1}], [{"content": "x"}], [{"content": 5, "id": 1}],
              [{"content": "x", "id": "1"}], [{"content": "x", "id": True}]],
)  # fmt: skip
def test_added_tokens_without_text_or_id_are_a_configuration_error(tmp_path: Path, added: object) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({**SPEC, "added_tokens": added}))
    with pytest.raises(EngineConfigError, match=r"tokenizer\.json: added_tokens"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
def test_a_file_nested_too_deeply_is_a_configuration_error(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path)
    (folder / name).write_text("[" * 100_000)
    with pytest.raises(EngineConfigError, match="not valid JSON"):
        load_tokenizer(folder)


WRONG_VALUES: list[Any] = [
    True,
    0,
    2.5,
    "\ud800",
    [],
    [5],
    {},
    {"content": 5},
    {"content": "\ud800"},
    {"content": None},
    10**400,
]


@pytest.mark.parametrize("value", WRONG_VALUES)
@pytest.mark.parametrize(
    "member", ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
)
def test_a_special_token_that_is_no_text_is_a_configuration_error(tmp_path: Path, member: str, value: Any) -> None:
    folder = write_model(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, member: value}))
    for load in (load_tokenizer, lambda folder: load_chat_template(folder, SPECIALS, lambda: "0")):
        with pytest.raises(EngineConfigError, match=rf"tokenizer_config\.json: {member}: "):
            load(folder)


@pytest.mark.parametrize("value", [True, -1, 2.5, "2", "\ud800", ["2"], [None], {}, {"id": 2}, [True], [-1]])
@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
def test_an_end_token_that_is_no_id_is_a_configuration_error(tmp_path: Path, name: str, value: Any) -> None:
    folder = write_model(tmp_path)
    (folder / "generation_config.json").unlink()
    (folder / name).write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(EngineConfigError, match=rf"{name.replace('.', '[.]')}: eos_token_id: expected an id"):
        load_tokenizer(folder)


@pytest.mark.parametrize("value", [None, 2, [2], []])
def test_an_end_token_may_be_an_id_a_list_or_absent(tmp_path: Path, value: Any) -> None:
    folder = write_model(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": value}))
    assert load_tokenizer(folder).stop_token_ids == {END}


@pytest.mark.parametrize("value", [*WRONG_VALUES, None, "text"])
@pytest.mark.parametrize(
    "member", ["chat_template", "added_tokens_decoder", "model_max_length", "add_bos_token", "tokenizer_class", "extra"]
)
@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "special_tokens_map.json"])
def test_any_member_of_a_models_settings_is_read_or_refused(tmp_path: Path, name: str, member: str, value: Any) -> None:
    folder = write_model(tmp_path)
    settings = json.loads((folder / name).read_text()) if (folder / name).is_file() else {}
    for content in ({**settings, member: value}, {**settings, member: [{"name": value, "template": value}]}):
        (folder / name).write_text(json.dumps(content))
        assert load_tokenizer(folder).stop_token_ids >= {END}
        is_refused = (
            member == "chat_template" and name == "tokenizer_config.json" and content[member] not in (None, "text")
        )
        if is_refused:
            with pytest.raises(EngineConfigError, match=r"chat.template"):
                load_chat_template(folder, SPECIALS, lambda: "0")
        else:
            load_chat_template(folder, SPECIALS, lambda: "0")


def test_a_folder_without_a_tokenizer_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(EngineConfigError, match="no such file"):
        load_tokenizer(tmp_path)


def test_ids_outside_the_vocabulary_have_no_text() -> None:
    assert TOKENIZER.token_bytes(10_000) == b""
    assert TOKENIZER.token_bytes(END) == b""
    assert TOKENIZER.display_bytes(END) == b"<|im_end|>"


def test_no_text_is_shorter_in_tokens_than_the_bound_states() -> None:
    assert TOKENIZER.max_chars_per_token is not None
    for text in ("hello world", " tokenizer" * 3, "a" * 50):
        assert len(plain_ids(text)) * TOKENIZER.max_chars_per_token >= len(text)


def test_a_vocabulary_that_cannot_encode_every_text_is_refused_at_the_start(tmp_path: Path) -> None:
    model = {"type": "Unigram", "vocab": [["a", -1.0]], "byte_fallback": False}
    spec = {**SPEC, "model": model, "pre_tokenizer": None, "normalizer": None, "added_tokens": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))

    with pytest.raises(EngineConfigError, match="unk_id"):
        load_tokenizer(tmp_path)


def test_a_million_merges_are_refused_at_once(tmp_path: Path) -> None:
    merges = [["a", "b"]] * 1_000_000
    (tmp_path / "tokenizer.json").write_text(json.dumps({**SPEC, "model": {**SPEC["model"], "merges": merges}}))
    started_at = time.process_time()

    with pytest.raises(EngineConfigError, match="has 1000000 merges; at most 750000 are read"):
        load_tokenizer(tmp_path)

    assert time.process_time() - started_at < 1


def test_a_huge_tokenizer_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").touch()
    os.truncate(tmp_path / "tokenizer.json", 1 << 32)

    with pytest.raises(EngineConfigError, match="has 4294967296 bytes; at most 134217728 are read"):
        load_tokenizer(tmp_path)
