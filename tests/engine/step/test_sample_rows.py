"""The sampler's sequences of a sequence: one for each position behind its draft tokens."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from engine.sampling.grammar import compile_grammar, load_grammar_tokenizer
from engine.step.sample_rows import SampleRows
from tests.engine.frontend.tiny_model import write_model
from tests.engine.step.sequences import sequence

CPU = torch.device("cpu")


def test_each_row_stands_behind_one_draft_token_more() -> None:
    chunks = SampleRows(CPU).of(sequence([1, 2, 3], [4]), (7, 8))
    assert [chunk.position for chunk in chunks] == [4, 5, 6]
    assert [list(chunk.draft_token_ids) for chunk in chunks] == [[], [7], [7, 8]]
    assert {tuple(chunk.output_token_ids) for chunk in chunks} == {(4,)}
    assert [chunk.num_output for chunk in chunks] == [1, 2, 3]


def test_rows_of_the_first_positions_may_be_left_out() -> None:
    chunks = SampleRows(CPU).of(sequence([1, 2, 3]), (7, 8), first=2)
    assert [(chunk.position, list(chunk.draft_token_ids)) for chunk in chunks] == [(5, [7, 8])]


def test_only_a_penalised_sequence_has_counts_of_its_own_and_keeps_them() -> None:
    chunks, plain, seq = SampleRows(CPU), sequence([1]), sequence([1], presence_penalty=1.0)
    assert chunks.of(plain, ())[0].penalties is None
    (first,), (second,) = chunks.of(seq, ()), chunks.of(seq, ())
    assert first.penalties is second.penalties is not None
    other = sequence([1], presence_penalty=1.0)
    assert chunks.of(other, ())[0].penalties is not first.penalties


def test_a_grammar_allows_different_tokens_behind_each_draft(tmp_path: Path) -> None:
    tokenizer = load_grammar_tokenizer(write_model(tmp_path), 400)
    source = json.dumps({"grammars": [{"json_schema": {"enum": [10, 12]}}]})
    seq = sequence([1])
    seq.grammar = compile_grammar(tokenizer, source)
    (one,) = tokenizer.tokenize_str("1")
    before, behind = SampleRows(CPU).of(seq, (one,))
    assert before.allowed is not None
    assert behind.allowed is not None
    assert bool(before.allowed[one])
    assert not bool(behind.allowed[one])
    assert before.allowed.shape == behind.allowed.shape == (400,)
