"""Answers that the grammar of a schema allows, as the bundled model's tokens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from llguidance import LLTokenizer

from engine.frontend.request.response_format import NamedSchema, ResponseFormat, check_response_format
from engine.frontend.text.tokenizer import Tokenizer, load_tokenizer
from engine.frontend.tools.grammar import make_grammar
from engine.sampling.grammar import GrammarState, compile_grammar, load_grammar_tokenizer

FOLDER = Path(__file__).parents[4] / "engine" / "bundled" / "models" / "penstock-small"
VOCAB_SIZE = json.loads((FOLDER / "config.json").read_text())["vocab_size"]
MAX_TOKENS = 150


@cache
def tokenizer() -> Tokenizer:
    return load_tokenizer(FOLDER)


@cache
def compiler_tokenizer() -> LLTokenizer:
    return load_grammar_tokenizer(FOLDER, VOCAB_SIZE)


def compiled(schema: dict[str, Any], *, strict: bool = True) -> tuple[GrammarState, tuple[str, ...]]:
    """The start of the schema's grammar, and the keywords that it does not enforce."""
    response_format = ResponseFormat(
        type="json_schema", json_schema=NamedSchema(name="n", schema=schema, strict=strict)
    )
    check_response_format(response_format)
    grammar = make_grammar(response_format, None, None)
    assert grammar is not None
    return compile_grammar(compiler_tokenizer(), grammar.source), grammar.unenforced


def allows(state: GrammarState, text: str) -> bool:
    """Return whether a grammar accepts a text as a whole answer."""
    tokens = tokenizer().encode_bare(text)
    fork = state.fork()
    if fork.validate(tokens) < len(tokens):
        return False
    fork.accept(tokens)
    return fork.may_end or fork.is_finished


def allows_value(state: GrammarState, value: Any) -> bool:
    """Whether the value, written as JSON without needless escapes, is a whole answer."""
    return allows(state, json.dumps(value, ensure_ascii=False))


def random_answer(state: GrammarState, random: Random) -> str | None:
    """A random answer; None if it did not end in time, or fits no tokens."""
    state, tokens = state.fork(), list[int]()
    while len(tokens) < MAX_TOKENS:
        if state.is_finished or (state.may_end and random.random() < 0.5):
            return b"".join(map(tokenizer().token_bytes, tokens)).decode()
        bits = np.unpackbits(state.masks()[0].view(np.uint8), bitorder="little")[:VOCAB_SIZE]
        allowed = [int(token) for token in np.flatnonzero(bits) if token not in tokenizer().stop_token_ids]
        if len(tokens) > MAX_TOKENS // 2:  # close what is open
            closing = [
                token for token in allowed if tokenizer().token_bytes(token)[:1] in (b'"', b"}", b"]", b",", b":")
            ]
            allowed = closing or allowed
        if not allowed:
            return None
        tokens.append(random.choice(allowed))
        state.accept(tokens[-1:])
    return None
