"""Draft tokens of a step's sequences, the steps that follow it in the same call, and the blocks that both take."""

from __future__ import annotations

from engine.kv_cache.block_manager import BlockManager
from engine.scheduler.plan import StepDraft
from engine.step.drafting import Drafter, DraftRequest
from engine.step.scheduler_output import ScheduledChunk


def add_drafts(drafter: Drafter, plan: StepDraft, blocks: BlockManager, *, is_more_to_come: bool = False) -> None:
    """Add draft tokens and further steps to a step, within the budget and blocks that no other sequence needs.

    There are no draft tokens beside a prompt's chunk: it fills the step, and their time could not be separated from
    its.

    Args:
        drafter: Proposer of draft tokens and further steps.
        plan: The step so far.
        blocks: Block manager that supplies their room.
        is_more_to_come: True if prompts wait that are not in this step; they wait for no answer's second token.
    """
    chunks = list(plan.chunks.values())
    sampling = [chunk for chunk in chunks if chunk.samples]
    if not sampling:
        return
    are_all = len(sampling) == len(chunks)
    is_decode = are_all and all(chunk.num_tokens == 1 for chunk in chunks) and plan.budget > 0
    may_follow = are_all and not is_more_to_come
    reach = drafter.reach([chunk.seq for chunk in sampling], is_decode=is_decode, may_follow=may_follow)
    requests = [_request(chunk, reach, drafter.num_speculative_tokens, blocks) for chunk in sampling]
    proposal = drafter.propose(requests, plan.budget if is_decode else 0)
    plan.predicts, plan.multi_step = proposal.predicts, proposal.multi_step
    for chunk, draft_token_ids in zip(sampling, proposal.draft_token_ids, strict=True):
        if draft_token_ids:
            plan.extend(chunk, draft_token_ids)
    assert plan.budget >= 0, "more draft tokens than the budget allows"


def _request(chunk: ScheduledChunk, reach: int, num_speculative_tokens: int, blocks: BlockManager) -> DraftRequest:
    """Take blocks as far as some are free; as many as could be of use and fit."""
    # The token behind the drafts is sampled too.
    room = min(reach, chunk.seq.max_total_tokens - chunk.seq.num_tokens - 1)
    while room > 0 and not blocks.can_append(chunk.seq, chunk.end + room):
        room -= 1
    if room > 0:
        blocks.append(chunk.seq, chunk.end + room)
    room = max(0, room)
    return DraftRequest(chunk.seq, min(num_speculative_tokens, room), chunk.end + room + 1)
