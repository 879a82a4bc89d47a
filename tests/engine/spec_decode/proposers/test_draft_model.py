"""A draft model reads what it is called about, drafts as much as is requested, and may fail."""

from __future__ import annotations

from array import array

from engine.protocol import Add, SamplingParams
from engine.spec_decode.proposers.draft_model import Behind, DraftModelProposer
from engine.step.scheduler_output import SchedulerOutput
from engine.step.sequence import INT64, Sequence
from engine.step.step_output import SequenceResult, StepOutput

END = 99
BLOCK_SIZE = 4


class Runner:
    """States the number behind the newest token; remembers which tokens it read."""

    def __init__(self) -> None:
        self.read: list[list[tuple[int, int]]] = []
        self.error: str | None = None

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        self.read.append([(chunk.start, chunk.end) for chunk in scheduled.chunks])
        results = []
        for chunk in scheduled.chunks:
            assert chunk.seq.grammar is None
            chosen = [chunk.seq.token_ids[-1] + 1] if chunk.samples else []
            results.append(SequenceResult(chosen, error=self.error))
        return StepOutput(results)


def sequence(token_ids: list[int], blocks: list[int]) -> Sequence:
    params = SamplingParams(max_tokens=50, temperature=0.0, stop_token_ids=(END,))
    add = Add(seq_id=blocks[0], prompt_token_ids=token_ids, params=params)
    seq = Sequence.from_add(add, arrival_index=0, received_at=0.0)
    seq.block_table = array(INT64, blocks)
    return seq


def proposer(runner: Runner, *, max_tokens: int = 64, reach: int = 40) -> DraftModelProposer:
    return DraftModelProposer(runner, num_blocks=16, block_size=BLOCK_SIZE, max_tokens=max_tokens, reach=reach)


def test_each_sequence_gets_as_many_as_are_requested_and_none_behind_its_end() -> None:
    found = proposer(Runner())
    seqs = [sequence([1, 2, 3], [0, 1]), sequence([5, 6], [2, 3]), sequence([END - 2], [4, 5])]
    assert found.propose(seqs, [3, 0, 4]) == [(4, 5, 6), (), (END - 1,)]


def test_what_was_read_is_not_read_again_and_wrong_draft_tokens_are_replaced() -> None:
    runner = Runner()
    found, seq = proposer(runner), sequence([1, 2, 3], [0, 1, 2])
    found.propose([seq], [3])
    assert runner.read == [[(0, 3)], [(3, 4)], [(4, 5)]]
    assert found.num_missing_tokens(seq) == 1
    seq.token_ids.extend([4, 9])  # the first was right
    runner.read.clear()
    found.draft([Behind(seq, ())])
    assert runner.read == [[(4, 5)]]


def test_a_long_text_is_read_in_parts_and_a_shared_block_once() -> None:
    runner = Runner()
    found, seq = proposer(runner, max_tokens=4), sequence(list(range(10)), [0, 1, 2])
    seq.block_digests = [b"a", b"b"]
    found.draft([Behind(seq, ())])
    assert runner.read == [[(0, 4)], [(4, 6)], [(6, 10)]]
    other = sequence(list(range(10)), [0, 1, 3])
    other.block_digests = [b"a", b"b"]
    assert found.num_missing_tokens(other) == 2


def test_it_drafts_no_further_than_it_reaches() -> None:
    found = proposer(Runner(), reach=8)
    seq = sequence(list(range(5)), [0, 1])
    assert [found.has_room(seq, limit) for limit in (0, 3, 4)] == [False, True, False]


def test_a_model_that_fails_is_not_called_again() -> None:
    runner = Runner()
    runner.error = "no numbers"
    found, seq = proposer(runner), sequence([1, 2], [0, 1])
    assert found.propose([seq], [2]) == [()]
    assert found.is_broken
    assert not found.has_room(seq, 1)
