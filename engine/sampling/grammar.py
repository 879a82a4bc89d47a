"""Grammars that an answer must follow: compiled once, then one place in the grammar for each sequence. No torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

MAX_GRAMMAR_BYTES = 512 * 1024
"""Longest source; a schema arrives wrapped, and a tool request has many of them."""

Bitmask = NDArray[np.int32]
"""[positions, ceil(vocab / 32)]: bit t of a row tells whether token t may stand there."""


class GrammarError(ValueError):
    """A grammar is invalid or too complex, or a token does not fit it; the message says so to the client."""


class GrammarState:
    """One sequence's place in its grammar: the start of an answer, then behind every accepted token. One thread."""

    __slots__ = ("_matcher", "vocab_size")

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self.vocab_size = vocab_size

    @property
    def is_finished(self) -> bool:
        """Whether the answer is complete and nothing can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def may_end(self) -> bool:
        """Whether the answer would be complete here."""
        return self._matcher.is_accepting()

    @property
    def failure(self) -> str | None:
        """Why this grammar cannot be followed any further; None: it can."""
        return _first_line(self._matcher.get_error()) if self._matcher.is_error() else None

    def fork(self) -> GrammarState:
        """An independent state at the same place."""
        return GrammarState(self._matcher.deep_copy(), self.vocab_size)

    def accept(self, token_ids: Sequence[int]) -> None:
        """Move behind tokens that are part of the answer now. Raises GrammarError, after which only `failure` works."""
        if not self._matcher.consume_tokens(list(token_ids)):
            raise GrammarError(self.failure or "a token does not fit the grammar")

    def rollback(self, num_tokens: int) -> None:
        """Take back the last accepted tokens. Raises GrammarError when there were not that many."""
        if num_tokens and not self._matcher.rollback(num_tokens):
            raise GrammarError(self.failure or "cannot go back that far")

    def validate(self, draft_token_ids: Sequence[int]) -> int:
        """How many of the drafts, from the first on, the grammar allows one after another; moves nothing."""
        return self._matcher.validate_tokens(list(draft_token_ids)) if draft_token_ids else 0

    def forced_tokens(self) -> list[int]:
        """Tokens that must come next, as the tokenizer would write their text: drafts that are nearly always right."""
        forced: list[int] = self._matcher.compute_ff_tokens()
        return forced

    def masks(self, draft_token_ids: Sequence[int] = ()) -> Bitmask:
        """What may stand behind the accepted tokens and behind each draft: [1 + drafts, ceil(vocab / 32)].

        Behind a draft that the grammar forbids, or that ends the answer, everything is allowed: that position is
        never reached. When the grammar fails, nothing is allowed.
        """
        bitmask = np.full((1 + len(draft_token_ids), -(-self.vocab_size // 32)), -1, dtype=np.int32)
        num_taken = 0
        for position in range(len(bitmask)):
            self._fill(bitmask[position])
            if position == len(draft_token_ids):
                break
            draft = [draft_token_ids[position]]
            if self.validate(draft) == 0 or not self._matcher.consume_tokens(draft):
                break
            num_taken += 1
            if self._matcher.is_stopped():
                break
        if num_taken:
            self._matcher.rollback(num_taken)
        return bitmask

    def _fill(self, row: Bitmask) -> None:
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if self._matcher.is_error():
            row.fill(0)


def load_grammar_tokenizer(model_dir: Path, vocab_size: int) -> LLTokenizer:
    """A model directory's tokenizer as grammars need it. Raises GrammarError when the directory has none that fits."""
    path = model_dir / "tokenizer.json"
    if not path.is_file():
        raise GrammarError("this model has no tokenizer.json, which grammars need")
    text = path.read_text(encoding="utf-8")
    added = {token["content"]: token["id"] for token in json.loads(text).get("added_tokens") or []}
    end_ids = _end_token_ids(model_dir, added)
    try:
        return LLTokenizer(text, n_vocab=vocab_size, eos_token=sorted(end_ids) or None)
    # The library raises plain exceptions of several kinds; whichever it is, this tokenizer cannot be used.
    except Exception as error:
        raise GrammarError(f"this model's tokenizer cannot be used with grammars: {_first_line(str(error))}") from error


def compile_grammar(tokenizer: LLTokenizer, source: str) -> GrammarState:
    """A state at the start of the grammar, its first mask computed once. Raises GrammarError.

    The source is llguidance's: a JSON object with `grammars`. Its limits bound memory and the time of a mask, not the
    time of compiling.
    """
    limits = LLParserLimits(
        max_items_in_row=2_000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=20_000,
        max_grammar_size=500_000,
        verbose_errors=False,
    )
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=limits)
    state = GrammarState(matcher, tokenizer.vocab_size)
    if state.failure is None:
        # Some that are too complex fail here only, where there is the first choice.
        probe = matcher.deep_copy()
        probe.consume_tokens(probe.compute_ff_tokens())
        probe.compute_bitmask()
        matcher.compute_bitmask()
        state = GrammarState(probe if probe.is_error() else matcher, tokenizer.vocab_size)
    # "No extension" is the library's word for a grammar that has no sentence at all.
    if state.failure is not None and not state.failure.startswith("NoExtension"):
        raise GrammarError(state.failure)
    if state.failure is not None or state.is_finished:
        raise GrammarError("no answer can satisfy it")
    return state


def _end_token_ids(model_dir: Path, added: dict[str, int]) -> set[int]:
    """Ids of the tokens that end an answer, from whichever file names them."""
    for name in ("generation_config.json", "config.json"):
        value = _read_object(model_dir / name).get("eos_token_id")
        found = {item for item in (value if isinstance(value, list) else [value]) if type(item) is int}
        if found:
            break
    named = _read_object(model_dir / "tokenizer_config.json").get("eos_token")
    text = named.get("content") if isinstance(named, dict) else named
    if text in added:
        found.add(added[text])
    return found


def _read_object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return value if isinstance(value, dict) else {}


def _first_line(message: str) -> str:
    """The part of the library's message that is for people."""
    lines = [line.strip() for line in message.splitlines() if line.strip() and "<non-verbose/>" not in line]
    reasons = [line.removeprefix("error: ") for line in lines[1:] if line.startswith("error: ")]
    return ": ".join([line.rstrip(":. ") for line in lines[:1]] + reasons)[:500]
