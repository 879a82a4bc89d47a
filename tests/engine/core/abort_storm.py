"""Random requests aborted in whatever state they happen to be, over a real scheduler and runner."""

from __future__ import annotations

from collections import Counter
from random import Random

from engine.protocol import AbortState, Add, SamplingParams
from engine.sampling.grammar import GrammarState
from engine.sampling.grammar_compiler import GrammarDone
from engine.scheduler.lanes import LANES
from engine.step.sequence import SequenceState
from engine.step.step_output import StepOutput
from tests.engine.core.checkpoints import VOCAB_SIZE
from tests.engine.core.tiny_core import SHARED, TinyCore

_NUM_LIVE = 14


class SlowGrammars:
    """Grammars that are compiled when the storm reports it; each sequence gets a state of its own of one grammar."""

    def __init__(self, grammar: GrammarState) -> None:
        self._grammar = grammar
        self._compiling: list[int] = []

    def request(self, seq_id: int, source: str) -> None:
        """What the scheduler requests."""
        self._compiling.append(seq_id)

    def finish_one(self) -> GrammarDone | None:
        """The oldest that is being compiled, though it may be aborted."""
        return GrammarDone(self._compiling.pop(0), self._grammar.fork()) if self._compiling else None


class AbortStorm:
    """Keep a small pool of blocks busy, and abort at random, also between a step's launch and its end."""

    def __init__(self, core: TinyCore, rng: Random, grammars: SlowGrammars | None = None) -> None:
        self._core = core
        self._grammars = grammars
        self._rng = rng
        self._live: set[int] = set()
        self._next_id = 0
        self.aborted: Counter[AbortState] = Counter()

    def run(self, num_aborts: int) -> None:
        """Until so many sequences were aborted while they lived; the rest is aborted at the end."""
        scheduler = self._core.scheduler
        while self.aborted.total() < num_aborts:
            while len(self._live) < _NUM_LIVE:
                self._add()
            if self._rng.random() < 0.3:
                self._abort(self._rng.randrange(4))
            if self._grammars is not None and self._rng.random() < 0.5 and (done := self._grammars.finish_one()):
                scheduler.grammar_done(done, 0.0)
            batch = scheduler.schedule(0.0)
            preempted = [seq.seq_id for seq in scheduler.waiting() if seq.state is SequenceState.PREEMPTED]
            if preempted and self._rng.random() < 0.3:
                self._abort_these(preempted[:1])
            output = self._core.runner.execute(batch) if batch.chunks else StepOutput([])
            if self._rng.random() < 0.3:
                self._abort(self._rng.randrange(4))
            scheduler.update_from_output(batch, output, 0.0)
            self._collect()
            assert self._core.num_leaked == 0
            if self._rng.random() < 0.05:
                scheduler.check_integrity()
        self._abort(len(self._live))
        scheduler.check_integrity()

    def _add(self) -> None:
        prompt = list(self._rng.choice(SHARED)) if self._rng.random() < 0.3 else self._random_prompt()
        # Mostly short, so that the forecast is often wrong and sequences are preempted.
        max_tokens = self._rng.choice((1, 2, 3, 120))
        params = SamplingParams(max_tokens=max_tokens, temperature=self._rng.choice((0.0, 1.0)))
        add = Add(
            seq_id=self._next_id,
            prompt_token_ids=prompt,
            params=params,
            lane=self._rng.choice(LANES),
            priority=self._rng.randrange(2),
            grammar="one" if self._grammars is not None and self._rng.random() < 0.3 else None,
        )
        self._core.scheduler.add(add, 0.0)
        self._live.add(self._next_id)
        self._next_id += 1

    def _random_prompt(self) -> list[int]:
        return [self._rng.randrange(VOCAB_SIZE) for _ in range(self._rng.randint(1, 80))]

    def _abort(self, count: int) -> None:
        self._abort_these(self._rng.sample(sorted(self._live), min(count, len(self._live))))

    def _abort_these(self, seq_ids: list[int]) -> None:
        self._core.scheduler.abort(seq_ids, 0.0, 0.0)
        self._collect()

    def _collect(self) -> None:
        for output in self._core.scheduler.take_outputs():
            assert output.error is None
            if output.finish_reason is not None:
                self._live.remove(output.seq_id)
        self.aborted.update(state for _, state, _ in self._core.scheduler.take_freed())
