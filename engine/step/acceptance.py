"""Acceptance of the tokens that a step chose into a sequence's output, up to the one that ends it."""

from __future__ import annotations

from engine.protocol import FinishReason
from engine.sampling.grammar import GrammarError, GrammarState
from engine.step.sequence import Sequence


def take_tokens(seq: Sequence, token_ids: list[int]) -> tuple[list[int], FinishReason | None]:
    """Append chosen tokens until one ends the sequence; return the appended tokens and the finish reason.

    The grammar advances with them. It alone decides where a structured answer may end, so `min_tokens` does not apply.
    An answer that nothing can follow ends at once, without a token for it. The reason `error` means that the grammar
    failed.
    """
    params, grammar = seq.params, seq.grammar
    for count, token_id in enumerate(token_ids, start=1):
        seq.token_ids.append(token_id)
        if token_id in params.stop_token_ids and (grammar is not None or seq.num_output_tokens >= params.min_tokens):
            return token_ids[:count], "stop"
        if grammar is not None and (reason := _follow(grammar, token_id)) is not None:
            return token_ids[:count], reason
        if seq.num_output_tokens >= params.max_tokens:
            return token_ids[:count], "length"
    return token_ids, None


def _follow(grammar: GrammarState, token_id: int) -> FinishReason | None:
    try:
        grammar.accept((token_id,))
    except GrammarError:
        return "error"
    return "stop" if grammar.is_finished else None
