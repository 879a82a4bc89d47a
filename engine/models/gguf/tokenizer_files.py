"""`tokenizer.json` and `tokenizer_config.json` of the model in a GGUF file."""

from __future__ import annotations

import logging
from typing import Any

from engine.config import MAX_TOKENIZER_MERGES
from engine.models.gguf.parts import GgufModel
from engine.models.gguf.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from engine.models.gguf.text_tokens import split_pattern
from engine.models.gguf.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

_SPACE_MARK = "\u2581"
_PREFIX = "tokenizer.ggml"
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def make_tokenizer(model: GgufModel, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of tokenizer.json.

    Raises:
        GgufError: The pre-tokenizer is not supported, or merges or scores are missing or wrong.
    """
    parts = _byte_level(model, vocabulary) if vocabulary.model == "gpt2" else _sentence_piece(model, vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        **parts,
        "post_processor": _post_processor(model, vocabulary),
    }


def make_tokenizer_config(model: GgufModel, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the content of tokenizer_config.json. Raises GgufError."""
    found: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **vocabulary.special,
        "add_bos_token": _adds(model, vocabulary, "bos"),
        "add_eos_token": _adds(model, vocabulary, "eos"),
    }
    templates = _chat_templates(model)
    if templates:
        # One alone has no name.
        found["chat_template"] = templates[0]["template"] if len(templates) == 1 else templates
    return found


def _chat_templates(model: GgufModel) -> list[dict[str, str]]:
    """Return the default template, if there is one, and the templates of other names."""
    key = "tokenizer.chat_template"
    names = model.strings(f"{key}s") if model.has(key) and model.has(f"{key}s") else []
    others = [{"name": name, "template": model.string(f"{key}.{name}")} for name in names if model.has(f"{key}.{name}")]
    return [{"name": "default", "template": model.string(key)}, *others] if model.has(key) else []


def _byte_level(model: GgufModel, vocabulary: Vocabulary) -> dict[str, Any]:
    pre_tokenizer = _pre_tokenizer(model)
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in pre_tokenizer.patterns
    ]
    return {
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, _BYTE_LEVEL]},
        "decoder": _BYTE_LEVEL,
        "model": _bpe(vocabulary, _stored_merges(model, vocabulary), ignores_merges=pre_tokenizer.ignores_merges),
    }


def _pre_tokenizer(model: GgufModel) -> PreTokenizer:
    name = model.string(f"{_PREFIX}.pre", "default")
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        raise model.error(f"{_PREFIX}.pre", f"{name!r} is not supported; expected one of {', '.join(PRE_TOKENIZERS)}")
    return found


def _stored_merges(model: GgufModel, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    key = f"{_PREFIX}.merges"
    stored = model.strings(key)
    if len(stored) > MAX_TOKENIZER_MERGES:
        raise model.error(key, f"has {len(stored)} merges; at most {MAX_TOKENIZER_MERGES} are read")
    merges = []
    for text in stored:
        # A token may start with a space, but the one between both parts comes later.
        at = text.find(" ", 1)
        merges.append((text[:at], text[at + 1 :]) if at > 0 else (text, ""))
    ids = vocabulary.ids
    usable = [(left, right) for left, right in merges if left in ids and right in ids and left + right in ids]
    if len(usable) < len(merges):
        logger.warning("%s: %s: left out %d of other tokens", model.path, key, len(merges) - len(usable))
    return usable


def _sentence_piece(model: GgufModel, vocabulary: Vocabulary) -> dict[str, Any]:
    has_prefix = model.boolean(f"{_PREFIX}.add_space_prefix", True)
    mark_spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE_MARK}
    prefix = [{"type": "Prepend", "prepend": _SPACE_MARK}] if has_prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if has_prefix else []
    vocabulary = vocabulary if has_prefix else vocabulary.with_text_tokens(_SPACE_MARK)
    pattern = split_pattern(vocabulary.text_tokens)
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {
        "added_tokens": vocabulary.added_tokens(),
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, mark_spaces]},
        "pre_tokenizer": split if pattern else None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE_MARK}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *strip,
            ],
        },
        "model": {
            # What the split isolates is a token whatever the merges are.
            **_bpe(vocabulary, _scored_merges(model, vocabulary), ignores_merges=bool(pattern)),
            "unk_token": vocabulary.special.get("unk_token"),
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


def _scored_merges(model: GgufModel, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Return the merges of all pairs whose text is a token, the token with the highest score first.

    Of two ways to the same token the one with the longer left part comes first: where the ways overlap, the leftmost
    pair then wins, as in SentencePiece.
    """
    key = f"{_PREFIX}.scores"
    scores = model.numbers(key)
    ids = vocabulary.ids
    if len(scores) != len(ids):
        raise model.error(key, f"has {len(scores)} entries for {len(ids)} tokens")
    merges: list[tuple[str, str]] = []
    for text, token_id in sorted(ids.items(), key=lambda item: -scores[item[1]]):
        if vocabulary.is_control(token_id):
            continue
        pairs = ((text[:at], text[at:]) for at in range(len(text) - 1, 0, -1))
        merges += [pair for pair in pairs if pair[0] in ids and pair[1] in ids]
        if len(merges) > MAX_TOKENIZER_MERGES:
            raise model.error(key, f"gives more than {MAX_TOKENIZER_MERGES} merges")
    return merges


def _bpe(vocabulary: Vocabulary, merges: list[tuple[str, str]], *, ignores_merges: bool = False) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": ignores_merges,
        "vocab": dict(vocabulary.ids),
        "merges": merges,
    }


def _adds(model: GgufModel, vocabulary: Vocabulary, end: str) -> bool:
    """Return whether raw text gets the start (`bos`) or end (`eos`) token."""
    default = False
    if end == "bos":
        default = vocabulary.model == "llama" or _pre_tokenizer(model).adds_bos
    return model.boolean(f"{_PREFIX}.add_{end}_token", default) and f"{end}_token" in vocabulary.special


def _post_processor(model: GgufModel, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the template that adds the start and end tokens to raw text."""
    text: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    other: list[dict[str, Any]] = [{"Sequence": {"id": "B", "type_id": 1}}]
    tokens: dict[str, Any] = {}
    for end in ("bos", "eos"):
        if not _adds(model, vocabulary, end):
            continue
        token = vocabulary.special[f"{end}_token"]
        tokens[token] = {"id": token, "ids": [vocabulary.ids[token]], "tokens": [token]}
        for pieces, type_id in ((text, 0), (other, 1)):
            piece = {"SpecialToken": {"id": token, "type_id": type_id}}
            pieces.insert(0 if end == "bos" else len(pieces), piece)
    return {"type": "TemplateProcessing", "single": text, "pair": text + other, "special_tokens": tokens}
