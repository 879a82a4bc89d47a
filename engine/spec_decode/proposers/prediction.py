"""Count of the draft tokens that came from requests' predictions; lookup finds them (`engine.cpu.multi_step.ngram`)."""

from __future__ import annotations

from engine.spec_decode.proposers.acceptance_stats import is_by_prediction
from engine.spec_decode.proposers.ngram import NgramDrafts
from engine.step.scheduler_output import ScheduledChunk


def count_predicted(found: NgramDrafts, index: int, chunk: ScheduledChunk, num_forced: int, num_accepted: int) -> None:
    """Count a step's draft tokens of a sequence that came from its prediction.

    Args:
        found: Result of the lookup for the step.
        index: Place of the sequence in it.
        chunk: Chunk of the sequence, with the draft tokens that were verified.
        num_forced: Number of draft tokens that a grammar forced; lookup's follow them.
        num_accepted: Number of accepted draft tokens.
    """
    prediction = chunk.seq.prediction
    num_verified = len(chunk.draft_token_ids) - num_forced
    if prediction is None or num_verified <= 0:
        return
    are_predicted = [is_by_prediction(kind) for kind in found.arrays[1][index, :num_verified].tolist()]
    prediction.count(sum(are_predicted[: max(0, num_accepted - num_forced)]), sum(are_predicted))
