"""Random histories of requests, steps, aborts and expiries: counts balance, answers are right, all end exactly once."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.protocol import Lane
from engine.scheduler.lanes import LANES
from tests.engine.core.drafters import RandomDrafter
from tests.engine.core.fakes import FakeCore, greedy, make_add, next_tokens

# Few distinct blocks, so that prompts share prefixes often.
_BLOCKS = st.sampled_from([[1, 1, 1, 1], [2, 2, 2, 2], [1, 2, 3, 4]])
_PROMPTS = st.builds(
    lambda blocks, tail: [token for block in blocks for token in block] + tail,
    st.lists(_BLOCKS, max_size=5),
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
)


class SchedulerMachine(RuleBasedStateMachine):
    """A small pool under pressure."""

    @initialize(
        num_blocks=st.integers(8, 24),
        max_num_seqs=st.integers(1, 6),
        budget=st.integers(1, 24),
        enable_prefix_cache=st.booleans(),
        drafts_seed=st.none() | st.integers(0, 1000),
    )
    def build(
        self, num_blocks: int, max_num_seqs: int, budget: int, enable_prefix_cache: bool, drafts_seed: int | None
    ) -> None:
        self.core = FakeCore(
            num_blocks=num_blocks,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            max_model_len=48,
            max_waiting=12,
            enable_prefix_cache=enable_prefix_cache,
            drafter=None if drafts_seed is None else RandomDrafter(next_tokens, random.Random(drafts_seed)),
        )
        self.prompts: dict[int, list[int]] = {}
        self.max_tokens: dict[int, int] = {}
        self.aborted: set[int] = set()

    @rule(
        prompt=_PROMPTS,
        max_tokens=st.integers(1, 20),
        priority=st.integers(0, 2),
        salt=st.sampled_from([b"", b"tenant"]),
        deadline_s=st.sampled_from([None, None, None, 0.05, 0.3]),
        lane=st.sampled_from(LANES),
    )
    def add(
        self, prompt: list[int], max_tokens: int, priority: int, salt: bytes, deadline_s: float | None, lane: Lane
    ) -> None:
        seq_id = len(self.prompts)
        self.prompts[seq_id] = prompt
        self.max_tokens[seq_id] = max_tokens
        self.core.add(
            make_add(seq_id, prompt, max_tokens, priority=priority, salt=salt, deadline_s=deadline_s, lane=lane)
        )

    @rule(count=st.integers(1, 8))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.core.step()

    @precondition(lambda self: self.prompts)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        seq_id = data.draw(st.integers(0, len(self.prompts) - 1))
        self.core.abort(seq_id)
        self.core.collect()
        assert seq_id in self.core.ends

    @rule()
    def abort_in_flight(self) -> None:
        """An abort and a new request between the launch of a step and its completion."""
        core = self.core
        batch = core.scheduler.schedule(core.clock())
        output = core.model.execute(batch)
        for chunk in batch.chunks[::2]:
            core.abort(chunk.seq.seq_id)
        core.scheduler.update_from_output(batch, output, core.clock())
        core.collect()

    @invariant()
    def blocks_balance(self) -> None:
        self.core.scheduler.check_integrity()
        assert self.core.blocks.num_leaked(self.core.scheduler.running()) == 0

    @invariant()
    def nobody_keeps_room_for_drafts(self) -> None:
        for seq in self.core.scheduler.running():
            assert len(seq.block_table) <= self.core.blocks.blocks_for(seq.num_tokens)

    @invariant()
    def every_answer_is_a_prefix_of_the_right_one(self) -> None:
        for seq_id, text in self.core.texts.items():
            assert text == greedy(self.prompts[seq_id], len(text))

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        self.core.run()
        assert set(self.core.ends) == set(self.prompts)
        for seq_id, end in self.core.ends.items():
            if end.finish_reason == "length":
                assert len(self.core.texts[seq_id]) == self.max_tokens[seq_id]
            assert end.stages is not None


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
