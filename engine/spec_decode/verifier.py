"""Acceptance of draft tokens, given what the ordinary sampler chose at each of their positions."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import TokenLogprobs
from engine.step.step_output import SequenceResult

_NO_CHOICE = "no token can be chosen: the model's logits are not numbers"


def accept(
    draft_token_ids: Sequence[int],
    token_ids: Sequence[int],
    logprobs: Sequence[TokenLogprobs | None],
    is_invalid: Sequence[bool],
) -> SequenceResult:
    """Return the sequence's next tokens: those chosen up to and including the first that is not its draft token.

    Each choice is conditional on the draft tokens before it. So it is the token that would have been chosen without
    drafts, and choices behind the first difference are invalid. A position without a choice ends the run; it is an
    error only where no token came before it.
    """
    num_tokens = 0
    for position, token_id in enumerate(token_ids):
        if is_invalid[position]:
            break
        num_tokens += 1
        if position == len(draft_token_ids) or token_id != draft_token_ids[position]:
            break
    if not num_tokens:
        return SequenceResult([], error=_NO_CHOICE)
    found = [logprob for logprob in logprobs[:num_tokens] if logprob is not None]
    return SequenceResult(list(token_ids[:num_tokens]), found or None)


def accept_batch(
    draft_token_ids: Sequence[Sequence[int]],
    token_ids: Sequence[int],
    logprobs: Sequence[TokenLogprobs | None],
    is_invalid: Sequence[bool],
) -> list[SequenceResult]:
    """Accept several sequences' draft tokens.

    Args:
        draft_token_ids: Of each sequence.
        token_ids: The choices at each sequence's draft positions and the one before them, sequence after sequence.
        logprobs: Of each choice.
        is_invalid: Whether a position has no choice.
    """
    results, start = [], 0
    for drafts in draft_token_ids:
        part = slice(start, start + 1 + len(drafts))
        results.append(accept(drafts, token_ids[part], logprobs[part], is_invalid[part]))
        start = part.stop
    return results
