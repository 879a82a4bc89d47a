"""Grammars: masks against an oracle that lists every sentence, and states that move, fork and go back."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
import torch
from llguidance import LLTokenizer

from engine.sampling.grammar import GrammarError, GrammarState, compile_grammar, load_grammar_tokenizer
from engine.sampling.grammar_mask import unpack_mask
from tests.engine.frontend.tiny_model import END, write_model

VOCAB_SIZE = 410
"""Ten more than the tokenizer has, as padded models have it."""
CPU = torch.device("cpu")
EOS = {0, END}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> LLTokenizer:
    return load_grammar_tokenizer(write_model(tmp_path_factory.mktemp("tiny")), VOCAB_SIZE)


def compiled(tokenizer: LLTokenizer, schema: dict[str, Any], **options: Any) -> GrammarState:
    options = {"whitespace_flexible": False, **options}
    return compile_grammar(tokenizer, json.dumps({"grammars": [{"json_schema": {**schema, "x-guidance": options}}]}))


def allowed(state: GrammarState, drafts: list[int] | None = None) -> list[set[int]]:
    """Allowed tokens at each position."""
    masks = unpack_mask(state.masks(drafts or []), state.vocab_size, CPU)
    return [set(row.nonzero().flatten().tolist()) for row in masks]


def random_answer(tokenizer: LLTokenizer, state: GrammarState, rng: random.Random, limit: int = 300) -> str | None:
    """Text of a model that knows nothing; None when it is not complete within the limit."""
    tokens: list[int] = []
    while len(tokens) < limit and not state.is_finished:
        (choices,) = allowed(state)
        token = rng.choice(sorted(choices))
        if token in EOS:
            return tokenizer.decode_str(tokens)
        state.accept([token])
        tokens.append(token)
    return tokenizer.decode_str(tokens) if state.is_finished else None


FINITE = {
    "type": "object",
    "properties": {"to": {"enum": ["one", "the test", "tö"]}, "ok": {"type": "boolean"}, "n": {"const": None}},
    "required": ["to", "ok"],
    "additionalProperties": False,
}
SENTENCES = [
    json.dumps({"to": to, "ok": ok, **rest}, ensure_ascii=False, separators=(",", ":")).encode()
    for to, ok, rest in itertools.product(["one", "the test", "tö"], [True, False], [{}, {"n": None}])
]


def test_a_token_is_allowed_just_where_some_sentence_goes_on_with_it(tokenizer: LLTokenizer) -> None:
    texts = {i: tokenizer.decode_bytes([i]) for i in range(400) if not tokenizer.is_special_token(i)}
    start = compiled(tokenizer, FINITE)
    rng = random.Random(5)
    for _ in range(12):
        state, done = start.fork(), b""
        while not state.is_finished:
            going_on = {i for i, text in texts.items() if text and any(s.startswith(done + text) for s in SENTENCES)}
            (found,) = allowed(state)
            # Of text that must come only the tokenizer's own division is allowed.
            is_forced = len({s[len(done)] for s in SENTENCES if s.startswith(done) and s != done}) == 1
            assert found - EOS <= going_on
            assert found - EOS == going_on or (is_forced and found)
            assert bool(found & EOS) == (done in SENTENCES) == state.may_end
            token = rng.choice(sorted(found - EOS))
            state.accept([token])
            done += texts[token]
        assert done in SENTENCES
        assert allowed(state) == [EOS]


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a", "b"]},
    {"type": "array", "items": {"enum": ["one", "two", 3, None]}, "minItems": 2, "maxItems": 5},
    {"type": "string", "maxLength": 12},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "uuid"},
    {"type": "integer", "minimum": -7, "exclusiveMaximum": 120},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 1000},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"k": {"const": "v"}}, "required": ["k"]}]},
    {"type": ["string", "null"], "maxLength": 4},
    {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer", "minimum": 0, "maximum": 9},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value", "next"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/node",
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
@pytest.mark.parametrize("options", [{}, {"whitespace_flexible": True, "whitespace_pattern": r"( |\n[ \t]{0,40})?"}])
def test_whatever_a_model_chooses_parses_and_is_valid(
    tokenizer: LLTokenizer, schema: dict[str, Any], options: dict[str, Any]
) -> None:
    start = compiled(tokenizer, schema, **options)
    answers = [random_answer(tokenizer, start.fork(), random.Random(seed)) for seed in range(12)]
    complete = [answer for answer in answers if answer is not None]
    assert len(complete) >= 3
    for answer in complete:
        assert jsonschema_rs.is_valid(schema, json.loads(answer)), answer


def test_masks_behind_drafts_are_those_that_come_without_them(tokenizer: LLTokenizer) -> None:
    state = compiled(tokenizer, FINITE)
    drafts = tokenizer.tokenize_str('{"to":"the test"')
    together = allowed(state, drafts)
    for position, draft in enumerate(drafts):
        assert together[position] == allowed(state)[0]
        state.accept([draft])
    assert together[-1] == allowed(state)[0]


def test_drafts_leave_the_state_where_it_was(tokenizer: LLTokenizer) -> None:
    state = compiled(tokenizer, FINITE)
    before = allowed(state)
    whole = tokenizer.tokenize_str(SENTENCES[0].decode())
    state.masks([*whole, 5])
    state.masks([*whole[:2], 399, 399])
    assert state.validate([*whole[:2], 399, 399]) == 2
    assert state.validate([]) == 0
    assert allowed(state) == before


def test_behind_a_forbidden_draft_or_the_end_everything_is_allowed(tokenizer: LLTokenizer) -> None:
    state = compiled(tokenizer, FINITE)
    whole = tokenizer.tokenize_str(SENTENCES[0].decode())
    positions = allowed(state, [*whole, 5])
    assert positions[len(whole) + 1] == set(range(VOCAB_SIZE))
    assert allowed(state, [399, 5])[1] == set(range(VOCAB_SIZE))


def test_a_state_goes_back_and_forks_go_their_own_ways(tokenizer: LLTokenizer) -> None:
    start = compiled(tokenizer, FINITE)
    whole = tokenizer.tokenize_str(SENTENCES[0].decode())
    fork = start.fork()
    fork.accept(whole)
    assert fork.is_finished
    assert not start.is_finished
    fork.rollback(2)
    assert not fork.is_finished
    fork.accept(whole[-2:])
    assert fork.is_finished
    fork.rollback(0)


def test_what_must_come_next_is_known(tokenizer: LLTokenizer) -> None:
    state = compiled(tokenizer, FINITE)
    assert '{"to":"'.startswith(tokenizer.decode_str(state.forced_tokens()))


def test_a_token_that_does_not_fit_is_an_error_and_then_nothing_is_allowed(tokenizer: LLTokenizer) -> None:
    state = compiled(tokenizer, FINITE)
    with pytest.raises(GrammarError):
        state.accept([399])
    assert state.failure is not None
    assert not state.is_finished
    assert allowed(state) == [set()]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "strng"}, "strng"),
        ({"type": "string", "pattern": "(("}, "regex"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"$ref": "http://127.0.0.1:1/schema.json"}, "does not fetch"),
        ({"$ref": "#"}, "no answer"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"enum": []}, "Unsatisfiable"),
        ({"if": {"type": "string"}}, "if"),
        ({"type": "object", "properties": {f"p{i}": {} for i in range(1000)}}, "row"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_with_the_reason(
    tokenizer: LLTokenizer, schema: dict[str, Any], reason: str
) -> None:
    with pytest.raises(GrammarError, match=reason):
        compiled(tokenizer, schema)


def test_a_folder_without_a_tokenizer_reports_it(tmp_path: Path) -> None:
    with pytest.raises(GrammarError, match=r"tokenizer\.json"):
        load_grammar_tokenizer(tmp_path, VOCAB_SIZE)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(GrammarError, match="cannot be used"):
        load_grammar_tokenizer(tmp_path, VOCAB_SIZE)


def test_masks_unpack_bit_by_bit() -> None:
    bitmask = np.array([[1, 0, 1 << 5], [-1, -1, -1]], dtype=np.int32)
    unpacked = unpack_mask(bitmask, 70, CPU)
    assert unpacked.shape == (2, 70)
    assert unpacked[0].nonzero().flatten().tolist() == [0, 69]
    assert bool(unpacked[1].all())


@pytest.mark.parametrize(
    ("ids", "named"), [([0, END, VOCAB_SIZE, 10**9, -1], None), ([0, END], []), ([0, END], {"content": []})]
)
def test_end_tokens_that_no_vocabulary_has_are_not_used(tmp_path: Path, ids: list[int], named: Any) -> None:
    folder = write_model(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    if named is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": named}))
    state = compiled(load_grammar_tokenizer(folder, VOCAB_SIZE), {"type": "boolean"})
    assert not state.may_end
