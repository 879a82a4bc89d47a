"""Of a step's draft tokens, those that came from the prediction are counted, accepted and rejected ones apart."""

from __future__ import annotations

import numpy as np
import pytest

from engine.cpu.multi_step.draft_records import DRAFT_END
from engine.protocol import Add, SamplingParams
from engine.spec_decode.proposers.acceptance_stats import by_prediction, by_text
from engine.spec_decode.proposers.ngram import NgramDrafts
from engine.spec_decode.proposers.prediction import count_predicted
from engine.step.scheduler_output import ScheduledChunk
from engine.step.sequence import Sequence

MINE, OTHER = by_prediction(3), by_text(2)


@pytest.mark.parametrize(
    ("num_forced", "num_drafts", "num_accepted", "expected"),
    [
        (0, 4, 4, (3, 0)),
        (0, 4, 2, (1, 2)),
        (0, 4, 0, (0, 3)),
        (0, 2, 2, (1, 0)),
        (2, 4, 3, (1, 0)),
        (2, 4, 1, (0, 1)),
        (0, 0, 0, (0, 0)),
    ],
)
def test_counts(num_forced: int, num_drafts: int, num_accepted: int, expected: tuple[int, int]) -> None:
    params = SamplingParams(max_tokens=9)
    add = Add(seq_id=1, prompt_token_ids=[1], params=params, prediction_token_ids=[5, 6])
    seq = Sequence.from_add(add, arrival_index=0, received_at=0.0)
    kinds = np.array([[MINE, OTHER, MINE, MINE]])
    found = NgramDrafts(
        (kinds.copy(), kinds, np.zeros(1, DRAFT_END)), [4], 1.5, (np.zeros(0, DRAFT_END), np.zeros(0, np.int64))
    )
    chunk = ScheduledChunk(seq, 0, 1, samples=True, draft_token_ids=tuple(range(num_drafts)))
    count_predicted(found, 0, chunk, num_forced, num_accepted)
    assert seq.prediction is not None
    assert (seq.prediction.num_accepted, seq.prediction.num_rejected) == expected
