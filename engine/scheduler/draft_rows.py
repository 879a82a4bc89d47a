"""Which rows of a step verify drafts, and the blocks they take for it."""

from __future__ import annotations

from engine.kv_cache.block_manager import BlockManager
from engine.scheduler.plan import StepDraft
from engine.step.batch import ScheduledRow
from engine.step.drafting import Drafter, DraftRequest


def add_drafts(drafter: Drafter, plan: StepDraft, blocks: BlockManager, *, is_more_to_come: bool = False) -> None:
    """Let the rows of a pure decode step verify drafts, in the budget and the blocks that nobody else wants.

    `is_more_to_come`: prompts wait that are not in this step.

    Beside a prompt's chunk there are none: it fills the step, and the time of drafts could not be told from its.
    """
    rows = list(plan.rows.values())
    if any(row.num_tokens != 1 or not row.samples for row in rows):
        sampling = [row for row in rows if row.samples]
        may_follow = drafter.foresee([row.seq for row in sampling])
        # Prompts that are not computed yet wait for no answer's second token.
        if may_follow and not is_more_to_come and len(sampling) == len(rows):
            drafter.follow([_request(row, drafter, blocks) for row in sampling])
        return
    if not rows or plan.budget <= 0:
        return
    seqs = [row.seq for row in rows]
    if not drafter.wants(seqs):
        if not is_more_to_come and drafter.goes_on(seqs):
            drafter.follow([_request(row, drafter, blocks) for row in rows])
        return
    requests = [_request(row, drafter, blocks) for row in rows]
    for row, draft_token_ids in zip(rows, drafter.draft(requests, plan.budget), strict=True):
        if draft_token_ids:
            plan.extend(row, tuple(draft_token_ids))
    assert plan.budget >= 0, "more drafts than the budget allows"


def _request(row: ScheduledRow, drafter: Drafter, blocks: BlockManager) -> DraftRequest:
    """Take blocks for drafts as far as some are free; as many as could be of use and fit."""
    # The token behind the drafts is sampled too.
    most = row.seq.max_total_tokens - row.seq.num_tokens - 1
    room = min(max(drafter.num_speculative_tokens, drafter.num_reached), most)
    while room > 0 and not blocks.can_append(row.seq, row.end + room):
        room -= 1
    if room > 0:
        blocks.append(row.seq, row.end + room)
    room = max(0, room)
    return DraftRequest(row.seq, min(drafter.num_speculative_tokens, room), row.end + room + 1)
