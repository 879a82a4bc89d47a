"""The block manager: sharing, eviction, and counts that always balance."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.kv_cache.block_manager import BlockManager
from engine.step.sequence import INT64, Sequence
from tests.engine.core.fakes import make_add


def make_sequence(seq_id: int, tokens: list[int], salt: bytes = b"") -> Sequence:
    """A sequence that the block manager has not seen."""
    return Sequence.from_add(make_add(seq_id, tokens, salt=salt), arrival_index=seq_id, received_at=0.0)


def start(manager: BlockManager, seq: Sequence) -> int:
    """Allocate and compute all of it; the number of tokens found in the cache."""
    manager.allocate(seq, manager.find_prefix(seq))
    num_cached = seq.num_computed_tokens
    seq.num_computed_tokens = seq.num_tokens
    manager.register(seq)
    return num_cached


def test_two_running_sequences_share_their_full_prefix_blocks() -> None:
    manager = BlockManager(16, 4)
    first, second = make_sequence(1, list(range(10))), make_sequence(2, [*range(8), 90, 91])
    start(manager, first)
    assert start(manager, second) == 8
    assert first.block_table[:2] == second.block_table[:2]
    assert manager.num_free == 16 - 4
    manager.free(first)
    manager.check_integrity([second])


def test_a_sequence_that_is_found_whole_has_one_token_to_compute_and_a_block_of_its_own_for_it() -> None:
    manager = BlockManager(4, 4)
    first, second = make_sequence(1, list(range(8))), make_sequence(2, list(range(8)))
    start(manager, first)
    prefix = manager.find_prefix(second)
    assert prefix == list(first.block_table)
    assert manager.num_new_blocks(second, prefix, second.num_tokens) == 1

    assert start(manager, second) == 7

    assert list(second.block_table[:2]) == prefix
    assert second.block_table[2] not in prefix
    third = make_sequence(3, list(range(8)))
    assert manager.can_allocate(third, manager.find_prefix(third))
    manager.allocate(third, manager.find_prefix(third))
    assert not manager.can_allocate(first, prefix)
    manager.check_integrity([first, second, third])


def test_only_computed_tokens_are_shared() -> None:
    manager = BlockManager(16, 4)
    first = make_sequence(1, list(range(12)))
    manager.allocate(first, [])
    first.num_computed_tokens = 6
    manager.register(first)
    assert len(manager.find_prefix(make_sequence(2, list(range(12))))) == 1


def test_a_prefix_that_differs_early_shares_nothing_after() -> None:
    manager = BlockManager(16, 4)
    start(manager, make_sequence(1, [0, 0, 0, 0, 1, 1, 1, 1, 2]))
    assert manager.find_prefix(make_sequence(2, [9, 0, 0, 0, 1, 1, 1, 1, 2])) == []


def test_salts_separate() -> None:
    manager = BlockManager(16, 4)
    start(manager, make_sequence(1, list(range(9)), salt=b"a"))
    assert manager.find_prefix(make_sequence(2, list(range(9)), salt=b"b")) == []
    assert len(manager.find_prefix(make_sequence(3, list(range(9)), salt=b"a"))) == 2


def test_a_digest_collision_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    class Colliding:
        def __init__(self, *_: object, **__: object) -> None: ...

        def digest(self) -> bytes:
            return b"same"

    monkeypatch.setattr("engine.kv_cache.prefix_index.blake2b", Colliding)
    manager = BlockManager(16, 4)
    start(manager, make_sequence(1, [1, 1, 1, 1, 1]))
    assert manager.find_prefix(make_sequence(2, [2, 2, 2, 2, 2])) == []
    assert len(manager.find_prefix(make_sequence(3, [1, 1, 1, 1, 1]))) == 1


def test_the_tail_is_evicted_before_the_head() -> None:
    manager = BlockManager(4, 4)
    first = make_sequence(1, list(range(16)))
    start(manager, first)
    manager.free(first)
    start(manager, make_sequence(2, [50] * 8))
    assert len(manager.find_prefix(make_sequence(3, [*range(16), 1]))) == 2


def test_a_duplicate_block_becomes_blank_when_it_is_freed() -> None:
    manager = BlockManager(8, 4)
    twins = [make_sequence(seq_id, [1, 2, 3, 4, 5]) for seq_id in (1, 2)]
    for twin in twins:
        manager.allocate(twin, [])
        twin.num_computed_tokens = 5
    for twin in twins:
        manager.register(twin)
        manager.free(twin)
    assert manager.num_cached == 1
    manager.check_integrity([])


def test_a_leak_is_counted() -> None:
    manager = BlockManager(8, 4)
    start(manager, make_sequence(1, [1] * 9))
    assert manager.num_leaked([]) == 3
    with pytest.raises(AssertionError):
        manager.check_integrity([])


def test_without_prefix_cache_nothing_is_remembered() -> None:
    manager = BlockManager(8, 4, enable_prefix_cache=False)
    first = make_sequence(1, [1] * 9)
    start(manager, first)
    manager.free(first)
    assert (manager.num_cached, manager.find_prefix(make_sequence(2, [1] * 9))) == (0, [])


class BlockMachine(RuleBasedStateMachine):
    """Sequences come, grow, lose their computed tail's place and go, in any order."""

    @initialize(num_blocks=st.integers(4, 24), block_size=st.integers(1, 4), enable_prefix_cache=st.booleans())
    def build(self, num_blocks: int, block_size: int, enable_prefix_cache: bool) -> None:
        self.manager = BlockManager(num_blocks, block_size, enable_prefix_cache=enable_prefix_cache)
        self.live: list[Sequence] = []
        self.content: dict[int, tuple[bytes, bytes]] = {}
        self.num_sequences = 0

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=16), salt=st.sampled_from([b"", b"x"]))
    def allocate(self, tokens: list[int], salt: bytes) -> None:
        self.num_sequences += 1
        seq = make_sequence(self.num_sequences, tokens, salt)
        prefix = self.manager.find_prefix(seq)
        if not self.manager.can_allocate(seq, prefix):
            return
        self.manager.allocate(seq, prefix)
        assert seq.num_computed_tokens < seq.num_tokens
        for index in range(len(prefix)):
            assert self.content[seq.block_table[index]] == self.expected(seq, index)
        self.live.append(seq)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.live))
        seq.num_computed_tokens = data.draw(st.integers(seq.num_computed_tokens, seq.num_tokens))
        for index in range(seq.num_computed_tokens // self.manager.block_size):
            self.content[seq.block_table[index]] = self.expected(seq, index)
        self.manager.register(seq)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=4))
    def grow(self, data: st.DataObject, tokens: list[int]) -> None:
        seq = data.draw(st.sampled_from(self.live))
        if not self.manager.can_append(seq, seq.num_tokens + len(tokens)):
            return
        seq.token_ids.extend(array(INT64, tokens))
        self.manager.append(seq, seq.num_tokens)
        assert len(seq.block_table) == self.manager.blocks_for(seq.num_tokens)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), num_drafts=st.integers(1, 8), num_accepted=st.integers(0, 8))
    def verify(self, data: st.DataObject, num_drafts: int, num_accepted: int) -> None:
        """Room for draft tokens, of which some are accepted and the rest is given back."""
        seq = data.draw(st.sampled_from(self.live))
        if not self.manager.can_append(seq, seq.num_tokens + num_drafts):
            return
        self.manager.append(seq, seq.num_tokens + num_drafts)
        seq.token_ids.extend(array(INT64, [1] * min(num_accepted, num_drafts)))
        self.manager.shrink(seq)
        assert len(seq.block_table) == self.manager.blocks_for(seq.num_tokens)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.live))
        self.live.remove(seq)
        self.manager.free(seq)

    def expected(self, seq: Sequence, index: int) -> tuple[bytes, bytes]:
        """What block `index` of the sequence must hold: its salt and all tokens up to the block's end."""
        return seq.cache_salt, seq.token_ids[: (index + 1) * self.manager.block_size].tobytes()

    @invariant()
    def blocks_balance(self) -> None:
        if hasattr(self, "manager"):
            self.manager.check_integrity(self.live)
            assert self.manager.num_leaked(self.live) == 0

    def teardown(self) -> None:
        if hasattr(self, "manager"):
            for seq in self.live:
                self.manager.free(seq)
            assert self.manager.num_free == self.manager.num_blocks
            self.manager.check_integrity([])


TestBlocks = BlockMachine.TestCase
TestBlocks.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
