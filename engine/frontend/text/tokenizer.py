"""Tokenizer of the model, based on the `tokenizers` library: segments of a prompt to ids, ids to bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from engine.config import MAX_TOKENIZER_MERGES, EngineConfigError
from engine.frontend.text.chat_template import read_json, special_tokens
from engine.frontend.text.placeholders import Segment
from engine.frontend.text.token_bytes import vocabulary_codec

_MAX_FILE_BYTES = 128 << 20
"""Largest tokenizer.json that is read; the largest published ones have 35 MB."""


_ODD_TEXT = "a \u0378\U000e0fff"
"""Characters that no vocabulary has: code points that Unicode assigns to nothing."""


class _Merges(msgspec.Struct):
    merges: list[msgspec.Raw] = []


class _MergesFile(msgspec.Struct):
    model: _Merges | None = None


class Tokenizer:
    """Tokenizer of one model. Thread-safe."""

    def __init__(self, spec: dict[str, Any], *, stop_token_ids: Iterable[int], special_texts: Iterable[str]) -> None:
        """Build the tokenizer with and without its added tokens.

        Args:
            spec: Parsed tokenizer.json.
            stop_token_ids: Tokens that end an answer.
            special_texts: Texts that only a template may turn into special tokens.

        Raises:
            EngineConfigError: The library cannot read the specification.
        """
        try:
            self._full = tokenizers.Tokenizer.from_str(json.dumps(spec))
            self._plain = tokenizers.Tokenizer.from_str(json.dumps({**spec, "added_tokens": []}))
            inner = _without_first_prefix({**spec, "added_tokens": []})
            self._plain_inner = tokenizers.Tokenizer.from_str(json.dumps(inner))
            for each in (self._full, self._plain, self._plain_inner):
                each.encode(
                    _ODD_TEXT
                )  # a vocabulary without a token for unknown characters fails here, not in requests
        except Exception as error:  # the library raises plain Exception
            raise EngineConfigError(f"tokenizer.json: {error}") from error
        added = spec.get("added_tokens") or []
        self._added = {token["content"]: token["id"] for token in added}
        self.added_tokens: Mapping[str, int] = self._added
        """Ids of the added tokens, special or not, by their text."""
        self._split_added = _added_token_pattern(added)
        special = {token["content"] for token in added if token.get("special")} | set(special_texts)
        self.special_texts = frozenset(text for text in special if text)
        self._special_ids = frozenset(
            found for text in self.special_texts if (found := self._full.token_to_id(text)) is not None
        )
        self.stop_token_ids = frozenset(stop_token_ids)
        self._to_bytes = vocabulary_codec(spec.get("decoder"))
        self.max_chars_per_token = _max_chars_per_token(spec)
        """Upper bound of the characters of a token; None if there is no such bound."""
        self._bytes: dict[int, bytes] = {}

    def encode_segments(self, segments: Sequence[Segment]) -> list[int]:
        """Return the ids of a prompt.

        Special tokens come from trusted segments only. Text of adjacent segments is tokenized as one text.
        """
        if len(segments) == 1 and segments[0].trusted:
            return _ids(self._full, segments[0].text, add_special_tokens=False)
        ids: list[int] = []
        pending: list[str] = []
        for segment in segments:
            if not segment.trusted:
                pending.append(segment.text)
                continue
            for i, piece in enumerate(self._split_added.split(segment.text)):
                if i % 2 == 0:
                    pending.append(piece)
                    continue
                ids += self._encode_plain("".join(pending), is_first=not ids)
                ids.append(self._added[piece.strip() if piece not in self._added else piece])
                pending.clear()
        return ids + self._encode_plain("".join(pending), is_first=not ids)

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of a raw prompt: the model's start tokens, then the text without special tokens."""
        ids = _ids(self._plain, text, add_special_tokens=True)
        bare = _ids(self._plain, text, add_special_tokens=False)
        if self._special_ids.isdisjoint(bare):
            return ids
        return ids[: len(ids) - len(bare)] + self._encode_plain(text, is_first=True)

    def encode_bare(self, text: str) -> list[int]:
        """Return the ids of raw text, without the model's start tokens and without special tokens."""
        return self._encode_plain(text, is_first=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones included."""
        text: str = self._full.decode_batch([list(token_ids)], skip_special_tokens=False)[0]
        return text

    def entry(self, token_id: int) -> str:
        """Return the vocabulary's own spelling of a token; empty for ids without one."""
        return self._full.id_to_token(token_id) or ""

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a generated token adds to the text; none for special tokens and unknown ids."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = b"" if token_id in self._special_ids else self.display_bytes(token_id)
        return found

    def display_bytes(self, token_id: int) -> bytes:
        """Return the bytes of any token, special ones included, for log probabilities."""
        token = self._full.id_to_token(token_id)
        if token is None:
            return b""
        return token.encode() if token in self._added else self._to_bytes(token)

    def _encode_plain(self, text: str, *, is_first: bool) -> list[int]:
        """Return the ids of untrusted text, never the id of a special token."""
        if not text:
            return []
        tokenizer = self._plain if is_first else self._plain_inner
        ids = _ids(tokenizer, text, add_special_tokens=False)
        if self._special_ids.isdisjoint(ids):
            return ids
        # In some vocabularies (SentencePiece) special tokens are ordinary pieces: split their texts in two.
        pattern = "|".join(re.escape(found) for found in sorted(self.special_texts, key=len, reverse=True))
        for i, piece in enumerate(_break_inside(text, pattern)):
            ids = ([] if i == 0 else ids) + _ids(self._plain_inner if i else tokenizer, piece, add_special_tokens=False)
        return [token_id for token_id in ids if token_id not in self._special_ids]


def load_tokenizer(model_dir: Path) -> Tokenizer:
    """Load the tokenizer of a model folder in Hugging Face layout.

    Raises:
        EngineConfigError: The folder has no usable tokenizer.json.
    """
    path = model_dir / "tokenizer.json"
    if not path.is_file():
        raise EngineConfigError(f"{path}: no such file; the engine needs a fast tokenizer in this format")
    _check_size(path)
    spec = read_json(path)
    _check_added_tokens(path, spec.get("added_tokens"))
    named_path = model_dir / "tokenizer_config.json"
    named = special_tokens(read_json(named_path), named_path)
    vocabulary = {token["content"]: token["id"] for token in spec.get("added_tokens") or []}
    stop_ids = _eos_ids(model_dir / "generation_config.json") or _eos_ids(model_dir / "config.json")
    eos = vocabulary.get(named.get("eos_token", ""))
    if eos is not None:
        stop_ids.add(eos)
    return Tokenizer(spec, stop_token_ids=stop_ids, special_texts=named.values())


def _check_size(path: Path) -> None:
    """Raise EngineConfigError for a file that would take minutes and gigabytes; nothing is parsed but its outline."""
    size = path.stat().st_size
    if size > _MAX_FILE_BYTES:
        raise EngineConfigError(f"{path}: has {size} bytes; at most {_MAX_FILE_BYTES} are read")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_MergesFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # the full reader says what is wrong
    num_merges = 0 if found.model is None else len(found.model.merges)
    if num_merges > MAX_TOKENIZER_MERGES:
        raise EngineConfigError(f"{path}: has {num_merges} merges; at most {MAX_TOKENIZER_MERGES} are read")


def _check_added_tokens(path: Path, added: Any) -> None:
    """Raise EngineConfigError for entries that have no text or no id."""
    if not isinstance(added, list | None):
        raise EngineConfigError(f"{path}: added_tokens: expected a list")
    for i, token in enumerate(added or ()):
        if not (isinstance(token, dict) and isinstance(token.get("content"), str) and type(token.get("id")) is int):
            raise EngineConfigError(f"{path}: added_tokens[{i}]: expected an object with content and id")


def _max_chars_per_token(spec: dict[str, Any]) -> int | None:
    """Return the length of the longest entry of a byte-level vocabulary; None for other vocabularies."""
    if "ByteLevel" not in json.dumps(spec.get("decoder")) or spec.get("normalizer") is not None:
        return None
    return max(map(len, spec["model"]["vocab"]), default=None)


def _eos_ids(path: Path) -> set[int]:
    """Return the ids of the tokens that end an answer, as a file states them. Raises EngineConfigError."""
    value = read_json(path).get("eos_token_id")
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(found) is int and found >= 0 for found in values):
        raise EngineConfigError(f"{path}: eos_token_id: expected an id or a list of ids, got {ascii(value)[:128]}")
    return set(values)


def _ids(tokenizer: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    # The batch form releases the interpreter's lock; the plain one holds it.
    ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
    return ids


def _added_token_pattern(added: list[dict[str, Any]]) -> re.Pattern[str]:
    """Return a pattern that splits text at added tokens, longest first, with the white space that a token strips."""
    alternatives = []
    for token in sorted(added, key=lambda token: len(token["content"]), reverse=True):
        before = r"\s*" if token.get("lstrip") else ""
        after = r"\s*" if token.get("rstrip") else ""
        alternatives.append(before + re.escape(token["content"]) + after)
    return re.compile(f"({'|'.join(alternatives)})" if alternatives else r"((?!))")


def _break_inside(text: str, pattern: str) -> list[str]:
    """Cut the text after the first character of every match."""
    pieces, start = [], 0
    for match in re.finditer(pattern, text):
        pieces.append(text[start : match.start() + 1])
        start = match.start() + 1
    return [*pieces, text[start:]]


def _without_first_prefix(spec: Any) -> Any:
    """Return the spec without `prepend_scheme: first`, for text that does not start a prompt."""
    if isinstance(spec, list):
        return [_without_first_prefix(item) for item in spec]
    if not isinstance(spec, dict):
        return spec
    if spec.get("type") == "Metaspace" and spec.get("prepend_scheme") == "first":
        return {**spec, "prepend_scheme": "never"}
    return {key: _without_first_prefix(value) if key != "model" else value for key, value in spec.items()}
