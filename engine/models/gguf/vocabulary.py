"""Vocabulary of a GGUF file: tokens, their kinds, special tokens and the tokens that end an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.models.gguf.parts import GgufModel
from engine.models.gguf.text_tokens import is_plain_text

_PREFIX = "tokenizer.ggml"
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_NORMAL = 1
_SPECIAL_IDS: Mapping[str, str] = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
}
"""Keys of the special tokens, as tokenizer_config.json and GGUF call them; GGUF misspells one."""
_END_IDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_END_TEXTS = frozenset(
    {
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>"),
        *("<|observation|>", "<|eom_id|>", "<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>"),
        "<｜end▁of▁sentence｜>",
    }
)
"""Texts of tokens that end an answer; many files name only one of their end tokens.

`</s>` is missing: where it ends an answer it is named, and in Gemma's vocabulary it is a piece of HTML.
"""
_HARMONY = frozenset({"<|return|>", "<|call|>"})
"""Tokens of the harmony format, in which `<|end|>` ends a message and not the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Tokens of a model."""

    model: str
    """Kind of the tokenizer: `gpt2` (byte-level BPE) or `llama` (SentencePiece with scores)."""
    ids: Mapping[str, int]
    """Token ids by text, in order of the ids."""
    kinds: list[int]
    """Kind of each token as in the file."""
    special: Mapping[str, str]
    """Texts of the special tokens by their name in tokenizer_config.json."""
    end_ids: list[int]
    """Tokens that end an answer."""
    text_tokens: tuple[str, ...] = ()
    """User-defined tokens that are plain text."""

    def with_text_tokens(self, space_mark: str) -> Vocabulary:
        """Return the vocabulary with user-defined tokens that are plain text as ordinary ones, spaces marked."""
        ids = dict(self.ids)
        found = []
        for text, token_id in self.ids.items():
            if self.kinds[token_id] == _USER_DEFINED and is_plain_text(text):
                marked = text.replace(" ", space_mark)
                del ids[text]
                # A vocabulary that has the marked text too keeps that one, which merges make.
                if ids.setdefault(marked, token_id) == token_id:
                    found.append(marked)
        return replace(self, ids=ids, text_tokens=tuple(found))

    def added_tokens(self) -> list[dict[str, Any]]:
        """Return the entries of tokenizer.json for tokens that are split off before the text is tokenized."""
        return [
            {
                "id": token_id,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": self.kinds[token_id] != _USER_DEFINED,
            }
            for text, token_id in self.ids.items()
            if self.kinds[token_id] in (_UNKNOWN, _CONTROL, _USER_DEFINED) and text not in self.text_tokens
        ]

    def is_control(self, token_id: int) -> bool:
        """Return whether a token never comes from plain text."""
        return self.kinds[token_id] in (_UNKNOWN, _CONTROL)


def read_vocabulary(model: GgufModel) -> Vocabulary:
    """Read the vocabulary.

    Raises:
        GgufError: The tokenizer is of an unsupported kind, or the vocabulary is missing, ambiguous or too large.
    """
    kind = model.string(f"{_PREFIX}.model", "no_vocab")
    if kind == "no_vocab":
        problem = "the file has no tokenizer; take one that was converted with its vocabulary"
        raise model.error(f"{_PREFIX}.model", problem)
    if kind not in ("gpt2", "llama"):
        known = {"bert": " (WordPiece)", "t5": " (Unigram)", "rwkv": " (RWKV)"}.get(kind, "")
        raise model.error(f"{_PREFIX}.model", f"{kind!r}{known} is not supported; expected gpt2 or llama")
    ids: dict[str, int] = {}
    for token_id, text in enumerate(model.strings(f"{_PREFIX}.tokens")):
        text = text or f"[EMPTY_{token_id}]"
        if ids.setdefault(text, token_id) != token_id:
            raise model.error(f"{_PREFIX}.tokens", f"tokens {ids[text]} and {token_id} are both {text[:80]!r}")
    return Vocabulary(
        model=kind,
        ids=ids,
        kinds=_kinds(model, len(ids)),
        special=_special(model, list(ids)),
        end_ids=_end_ids(model, ids),
    )


def _kinds(model: GgufModel, num_tokens: int) -> list[int]:
    key = f"{_PREFIX}.token_type"
    if not model.has(key):
        return [_NORMAL] * num_tokens
    kinds = [int(kind) for kind in model.numbers(key)]
    if len(kinds) != num_tokens:
        raise model.error(key, f"has {len(kinds)} entries for {num_tokens} tokens")
    return kinds


def _special(model: GgufModel, texts: list[str]) -> dict[str, str]:
    found = {}
    for name, key in _SPECIAL_IDS.items():
        if model.has(f"{_PREFIX}.{key}"):
            found[name] = texts[_token_id(model, key, len(texts))]
    return found


def _end_ids(model: GgufModel, ids: Mapping[str, int]) -> list[int]:
    named = [_token_id(model, key, len(ids)) for key in _END_IDS if model.has(f"{_PREFIX}.{key}")]
    texts = _END_TEXTS - ({"<|end|>"} if ids.keys() >= _HARMONY else set())
    return list(dict.fromkeys([*named, *sorted(ids[text] for text in texts & ids.keys())]))


def _token_id(model: GgufModel, key: str, num_tokens: int) -> int:
    token_id = model.integer(f"{_PREFIX}.{key}")
    if not 0 <= token_id < num_tokens:
        raise model.error(f"{_PREFIX}.{key}", f"{token_id} is not one of the {num_tokens} tokens")
    return token_id
