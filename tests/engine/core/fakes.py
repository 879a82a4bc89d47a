"""A core without torch: a model whose answers are read back through the block tables, and a hand-turned clock."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from engine.forecast.output_forecast import OutputForecast
from engine.forecast.step_time import StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.protocol import Add, Lane, SamplingParams, SeqOutput
from engine.scheduler.admission import Limits
from engine.scheduler.scheduler import Scheduler
from engine.spec_decode.verifier import accept
from engine.step.drafting import Drafter, DraftRequest
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.step_output import SequenceResult, StepOutput
from engine.step.tally import CoreTotals

VOCAB_SIZE = 97


def next_token(token_ids: SequenceOf[int]) -> int:
    """What the fake model answers after these tokens."""
    return crc32(np.asarray(token_ids, dtype=np.int64).tobytes()) % VOCAB_SIZE


def greedy(prompt: SequenceOf[int], num_tokens: int) -> list[int]:
    """The fake model's whole answer, computed without any core."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def next_tokens(request: DraftRequest) -> list[int]:
    """What a sequence on the fake model will state next."""
    return greedy(request.seq.token_ids, request.num_speculative_tokens)


def make_add(
    seq_id: int,
    prompt: SequenceOf[int],
    max_tokens: int = 4,
    *,
    priority: int = 0,
    salt: bytes = b"",
    deadline_s: float | None = None,
    stop_token_ids: tuple[int, ...] = (),
    min_tokens: int = 0,
    lane: Lane = "interactive",
) -> Add:
    """A request of token ids."""
    return Add(
        seq_id=seq_id,
        prompt_token_ids=list(prompt),
        params=SamplingParams(
            max_tokens=max_tokens, temperature=0.0, stop_token_ids=stop_token_ids, min_tokens=min_tokens
        ),
        lane=lane,
        priority=priority,
        cache_salt=salt,
        deadline_s=deadline_s,
    )


class FakeClock:
    """Monotonic time that moves on request."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class FakeModel:
    """Keeps the token id of every slot; what it answers depends on what the sequence's block table leads to."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._slots = np.full(num_blocks * block_size, -1, dtype=np.int64)
        self._block_size = block_size
        self.num_computed_tokens = 0
        self.poisoned: set[int] = set()

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        """One result a sequence. Raises RuntimeError when a poisoned sequence is among them."""
        for chunk in scheduled.chunks:
            assert chunk.num_query_tokens > 0
            slots = self._chunk_slots(list(chunk.seq.block_table))
            end = chunk.start + chunk.num_query_tokens
            tokens = list(chunk.seq.token_ids[chunk.start : chunk.end]) + list(chunk.draft_token_ids)
            self._slots[slots[chunk.start : end]] = tokens
            self.num_computed_tokens += chunk.num_tokens
        if any(chunk.seq.seq_id in self.poisoned for chunk in scheduled.chunks):
            raise RuntimeError("poisoned")
        return StepOutput([self._result(chunk) if chunk.samples else SequenceResult([]) for chunk in scheduled.chunks])

    def _result(self, chunk: ScheduledChunk) -> SequenceResult:
        """The answer behind the sequence's tokens and behind each draft, as far as the drafts are right."""
        slots = self._chunk_slots(list(chunk.seq.block_table))
        chosen = [
            next_token(self._slots[slots[: chunk.end + count]].tolist())
            for count in range(len(chunk.draft_token_ids) + 1)
        ]
        return accept(chunk.draft_token_ids, chosen, [None] * len(chosen), [False] * len(chosen))

    def _chunk_slots(self, table: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        first = np.asarray(table, dtype=np.int64)[:, None] * self._block_size
        return (first + np.arange(self._block_size)).ravel()


@dataclass
class FakeCore:
    """A scheduler with the fake model behind it, driven by hand."""

    num_blocks: int = 32
    block_size: int = 4
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 32
    max_model_len: int = 64
    max_waiting: int = 100
    prefill_slack_ratio: float = 1.75
    enable_prefix_cache: bool = True
    drafter: Drafter | None = None
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.blocks = BlockManager(self.num_blocks, self.block_size, enable_prefix_cache=self.enable_prefix_cache)
        self.step_time = StepTimeModel()
        self.forecast = OutputForecast(prior_tokens=4.0)
        self.tally = CoreTotals()
        self.model = FakeModel(self.num_blocks, self.block_size)
        self.limits = Limits(
            max_model_len=min(self.max_model_len, self.num_blocks * self.block_size),
            vocab_size=VOCAB_SIZE,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_waiting=self.max_waiting,
            prefill_slack_ratio=self.prefill_slack_ratio,
        )
        self.scheduler = Scheduler(
            self.limits,
            self.blocks,
            forecast=self.forecast,
            step_time=self.step_time,
            tally=self.tally,
            drafter=self.drafter,
        )
        self.texts: dict[int, list[int]] = {}
        self.ends: dict[int, SeqOutput] = {}

    def add(self, add: Add) -> None:
        """Hand over a request now."""
        self.scheduler.add(add, self.clock())

    def abort(self, *seq_ids: int) -> None:
        """Abort now."""
        self.scheduler.abort(seq_ids, self.clock(), self.clock())

    def step(self) -> SchedulerOutput:
        """One step of 10 ms; checks the counts and collects the outputs."""
        batch = self.scheduler.schedule(self.clock())
        assert sum(chunk.num_query_tokens for chunk in batch.chunks) <= self.max_num_batched_tokens
        assert len(batch.chunks) <= self.max_num_seqs
        output = self.model.execute(batch)
        self.clock.advance(0.01)
        self.scheduler.update_from_output(batch, output, self.clock())
        self.collect()
        self.scheduler.check_integrity()
        return batch

    def collect(self) -> None:
        """Take the outputs over; a second end of one sequence is an error."""
        for output in self.scheduler.take_outputs():
            assert output.seq_id not in self.ends, "output after the end"
            self.texts.setdefault(output.seq_id, []).extend(output.token_ids)
            if output.finish_reason is not None:
                self.ends[output.seq_id] = output
            else:
                assert output.token_ids

    def run(self, max_steps: int = 1000) -> None:
        """Step until nothing is left."""
        for _ in range(max_steps):
            if not self.scheduler.has_work:
                break
            self.step()
        self.collect()
        assert not self.scheduler.has_work
        assert self.blocks.num_free == self.num_blocks
