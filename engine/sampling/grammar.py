"""Grammars of structured output: compiled once, with a state for each sequence. Independent of torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

MAX_GRAMMAR_BYTES = 512 * 1024
"""Maximum length of a grammar's source; a schema arrives wrapped, and a tool request has many of them."""

Bitmask = NDArray[np.int32]
"""Bit masks [positions, ceil(vocab / 32)]: bit t of a row is set if token t is allowed."""


class GrammarError(ValueError):
    """A grammar is invalid or too complex, or a token violates it; the message is for the client."""


class UncheckedGrammarError(GrammarError):
    """A check that did not end: the limit passed, or its process failed; on a machine that is less busy it may."""


class GrammarState:
    """State of one sequence in its grammar, after its accepted tokens. Not thread-safe."""

    __slots__ = ("_matcher", "vocab_size")

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self.vocab_size = vocab_size

    @property
    def is_finished(self) -> bool:
        """True if the answer is complete and no token can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def may_end(self) -> bool:
        """True if the answer would be complete here."""
        return self._matcher.is_accepting()

    @property
    def failure(self) -> str | None:
        """Reason for which the grammar cannot continue; None if it can."""
        return _first_line(self._matcher.get_error()) if self._matcher.is_error() else None

    def fork(self) -> GrammarState:
        """Return an independent copy of the state."""
        return GrammarState(self._matcher.deep_copy(), self.vocab_size)

    def accept(self, token_ids: Sequence[int]) -> None:
        """Advance over accepted tokens. Raises GrammarError, after which only `failure` is valid."""
        if not self._matcher.consume_tokens(list(token_ids)):
            raise GrammarError(self.failure or "a token does not fit the grammar")

    def rollback(self, num_tokens: int) -> None:
        """Undo the last accepted tokens. Raises GrammarError if there were not that many."""
        if num_tokens and not self._matcher.rollback(num_tokens):
            raise GrammarError(self.failure or "cannot go back that far")

    def validate(self, draft_token_ids: Sequence[int]) -> int:
        """Return how many of the draft tokens, from the first on, the grammar allows; the state is unchanged."""
        return self._matcher.validate_tokens(list(draft_token_ids)) if draft_token_ids else 0

    def forced_tokens(self) -> list[int]:
        """Return the tokens that must come next, as the tokenizer writes their text; they serve as drafts."""
        forced: list[int] = self._matcher.compute_ff_tokens()
        return forced

    def masks(self, draft_token_ids: Sequence[int] = ()) -> Bitmask:
        """Return the masks after the accepted tokens and after each draft token: [1 + drafts, ceil(vocab / 32)].

        After a draft token that the grammar forbids, or that ends the answer, everything is allowed: that position is
        never reached. After a failure of the grammar, nothing is allowed.
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
    """Load the tokenizer of a model folder for grammars.

    Raises:
        GrammarError: The folder has no usable tokenizer.json.
    """
    path = model_dir / "tokenizer.json"
    if not path.is_file():
        raise GrammarError("this model has no tokenizer.json, which grammars need")
    text = path.read_text(encoding="utf-8")
    added = {token["content"]: token["id"] for token in json.loads(text).get("added_tokens") or []}
    end_ids = {token_id for token_id in _end_token_ids(model_dir, added) if 0 <= token_id < vocab_size}
    try:
        return LLTokenizer(text, n_vocab=vocab_size, eos_token=sorted(end_ids) or None)
    # The library raises plain exceptions of several kinds; after any of them the tokenizer is unusable.
    except Exception as error:
        raise GrammarError(f"this model's tokenizer cannot be used with grammars: {_first_line(str(error))}") from error


def compile_grammar(tokenizer: LLTokenizer, source: str) -> GrammarState:
    """Compile a grammar, and compute its first mask.

    The source is llguidance's JSON form, an object with `grammars`. The limits bound memory and the time of a mask, but
    not the time of the compilation.

    Returns:
        The state at the grammar's start.

    Raises:
        GrammarError: The grammar is invalid, too complex or unsatisfiable.
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
        # Some overly complex grammars fail only here, at the first choice.
        probe = matcher.deep_copy()
        probe.consume_tokens(probe.compute_ff_tokens())
        probe.compute_bitmask()
        matcher.compute_bitmask()
        state = GrammarState(probe if probe.is_error() else matcher, tokenizer.vocab_size)
    # The library reports a grammar without any sentence as "NoExtension".
    if state.failure is not None and not state.failure.startswith("NoExtension"):
        raise GrammarError(state.failure)
    if state.failure is not None or state.is_finished:
        raise GrammarError("no answer can satisfy it")
    return state


def _end_token_ids(model_dir: Path, added: dict[str, int]) -> set[int]:
    """Return the ids of the tokens that end an answer, from the first file that names them."""
    for name in ("generation_config.json", "config.json"):
        value = _read_object(model_dir / name).get("eos_token_id")
        found = {item for item in (value if isinstance(value, list) else [value]) if type(item) is int}
        if found:
            break
    named = _read_object(model_dir / "tokenizer_config.json").get("eos_token")
    text = named.get("content") if isinstance(named, dict) else named
    if isinstance(text, str) and text in added:
        found.add(added[text])
    return found


def _read_object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return value if isinstance(value, dict) else {}


def _first_line(message: str) -> str:
    """Return the human-readable part of the library's message."""
    lines = [line.strip() for line in message.splitlines() if line.strip() and "<non-verbose/>" not in line]
    reasons = [line.removeprefix("error: ") for line in lines[1:] if line.startswith("error: ")]
    return ": ".join([line.rstrip(":. ") for line in lines[:1]] + reasons)[:500]
