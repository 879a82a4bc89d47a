"""Thousands of aborts in every state leave nothing behind: no sequence and no block."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest

from engine.protocol import AbortState, Add, SamplingParams
from engine.sampling.grammar import compile_grammar, load_grammar_tokenizer
from engine.step.drafting import DraftRequest
from engine.step.sequence import SequenceState
from engine.step.step_output import StepOutput
from tests.engine.core.abort_storm import AbortStorm, SlowGrammars
from tests.engine.core.checkpoints import write_checkpoint
from tests.engine.core.drafters import RandomDrafter
from tests.engine.core.tiny_core import PROMPTS, TinyCore
from tests.engine.frontend.tiny_model import write_model

NUM_ABORTS = int(os.environ.get("PENSTOCK_TEST_ABORTS", "2000"))
"""10,000 before a release: `PENSTOCK_TEST_ABORTS=10000 pytest tests/engine/core/test_abort_storm.py`."""


STATES: set[AbortState] = {"queued", "prefill", "decode", "grammar", "preempted"}
_VOCAB_SIZE = 410
_SCHEMA = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}}


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> SlowGrammars:
    """A real grammar over a real tokenizer."""
    tokenizer = load_grammar_tokenizer(write_model(tmp_path_factory.mktemp("tokenizer")), _VOCAB_SIZE)
    return SlowGrammars(compile_grammar(tokenizer, json.dumps({"grammars": [{"json_schema": _SCHEMA}]})))


@pytest.fixture(scope="module")
def wide_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with that tokenizer's vocabulary."""
    folder = tmp_path_factory.mktemp("wide")
    write_checkpoint(folder, vocab_size=_VOCAB_SIZE)
    return folder


def forced(request: DraftRequest) -> list[int]:
    """Drafts that are right where the grammar leaves no choice."""
    grammar = request.seq.grammar
    return [] if grammar is None else grammar.forced_tokens()


def make_core(checkpoint: Path, grammars: SlowGrammars) -> TinyCore:
    def drafter(core: TinyCore) -> RandomDrafter:
        return RandomDrafter(forced, Random(5), vocab_size=_VOCAB_SIZE)

    return TinyCore(checkpoint, num_blocks=32, budget=48, num_seqs=8, drafter=drafter, grammars=grammars)


def check_nothing_is_left(core: TinyCore) -> None:
    core.scheduler.check_integrity()
    assert core.num_leaked == 0
    assert core.blocks.num_free == core.blocks.num_blocks
    assert (core.scheduler.num_running, core.scheduler.num_waiting) == (0, 0)


def test_random_aborts_leave_every_block_free(wide_checkpoint: Path, grammars: SlowGrammars) -> None:
    core = make_core(wide_checkpoint, grammars)
    storm = AbortStorm(core, Random(20), grammars)
    storm.run(NUM_ABORTS)
    assert {state for state, count in storm.aborted.items() if count > 10} == STATES
    assert core.tally.drafted_tokens > 100
    assert not core.scheduler.has_work
    check_nothing_is_left(core)


class OneAbort:
    """Aborts a sequence in a state that a test brought it to; the core had nothing else to keep."""

    def __init__(self, checkpoint: Path, grammars: SlowGrammars) -> None:
        self.core = make_core(checkpoint, grammars)
        self.grammars = grammars

    def add(self, seq_id: int, prompt: list[int], *, grammar: str | None = None, priority: int = 0) -> None:
        params = SamplingParams(max_tokens=100, temperature=0.0)
        add = Add(seq_id=seq_id, prompt_token_ids=prompt, params=params, grammar=grammar, priority=priority)
        self.core.scheduler.add(add, 0.0)

    def step(self) -> None:
        scheduler = self.core.scheduler
        batch = scheduler.schedule(0.0)
        output = self.core.runner.execute(batch) if batch.chunks else StepOutput([])
        scheduler.update_from_output(batch, output, 0.0)

    def abort(self, seq_id: int) -> AbortState:
        """The state it was in, by the counts and by its end."""
        scheduler = self.core.scheduler
        scheduler.take_outputs()
        scheduler.abort([seq_id, seq_id], 0.0, 0.5)
        ((freed_id, state, seconds),) = scheduler.take_freed()
        (end,) = scheduler.take_outputs()
        assert (freed_id, seconds) == (seq_id, 0.5)
        assert (end.finish_reason, end.abort_state) == ("abort", state)
        return state


@pytest.fixture
def one(wide_checkpoint: Path, grammars: SlowGrammars) -> OneAbort:
    return OneAbort(wide_checkpoint, grammars)


def test_an_abort_while_queued(one: OneAbort) -> None:
    one.add(0, PROMPTS[0])
    assert one.abort(0) == "queued"
    check_nothing_is_left(one.core)


def test_an_abort_while_its_prompt_is_computed(one: OneAbort) -> None:
    one.add(0, PROMPTS[3] * 3)
    one.step()
    assert one.core.scheduler.running()[0].num_computed_tokens > 0
    assert one.abort(0) == "prefill"
    check_nothing_is_left(one.core)


def test_an_abort_while_it_decodes_with_drafts(one: OneAbort) -> None:
    one.add(0, PROMPTS[0])
    for _ in range(6):
        one.step()
    assert one.core.tally.drafted_tokens > 0
    assert one.abort(0) == "decode"
    check_nothing_is_left(one.core)


def test_an_abort_while_its_grammar_is_compiled(one: OneAbort) -> None:
    one.add(0, PROMPTS[0], grammar="one")
    assert one.abort(0) == "grammar"
    check_nothing_is_left(one.core)
    done = one.grammars.finish_one()
    assert done is not None
    one.core.scheduler.grammar_done(done, 1.0)  # too late to bring it back
    check_nothing_is_left(one.core)


def test_an_abort_while_preempted(one: OneAbort) -> None:
    for seq_id in range(4):
        one.add(seq_id, PROMPTS[3], priority=seq_id)
    preempted: list[int] = []
    for _ in range(400):
        one.step()
        preempted = [seq.seq_id for seq in one.core.scheduler.waiting() if seq.state is SequenceState.PREEMPTED]
        if preempted:
            break
    assert one.abort(preempted[0]) == "preempted"
    one.core.scheduler.abort(range(4), 0.0, 0.0)
    check_nothing_is_left(one.core)
