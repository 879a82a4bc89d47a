"""Limit of the prompt tokens in a step beside decoding rows, so that their next token is not late. Pure."""

from __future__ import annotations

from engine.forecast.step_time import StepShape, StepTimeModel

_MIN_CHUNK_TOKENS = 4
"""Least prompt tokens of a step, so that prompts progress however slow the machine is."""
_CROWDED_SLACKS = 2.0
"""Factor on the slack where several patient prompts wait, so that their queue gets shorter."""
_MIN_SLOWDOWN = 1.25
"""Maximum factor by which chunks lengthen plain steps that already exceed the target."""


class ChunkLimit:
    """Chooses the length that a mixed step may have, and the chunk that fills it by the step-time model.

    Two lengths: a short interactive prompt may take a step up to the inter-token target, because its own first token
    is as urgent as the next one of the others. Long and batch prompts only take what lengthens a plain decode step
    by `slack_ratio`, so that a stream hardly shows that somebody sent a long prompt; several of them add twice as much.
    """

    def __init__(self, step_time: StepTimeModel, *, itl_target_s: float, slack_ratio: float) -> None:
        assert slack_ratio > 1.0
        self._step_time = step_time
        self._itl_target_s = itl_target_s
        self._slack_ratio = slack_ratio

    def tokens(
        self,
        num_decode_rows: int,
        num_context_tokens: int,
        num_prefill_context: int,
        *,
        is_urgent: bool,
        is_crowded: bool = False,
    ) -> int | None:
        """Most prompt tokens beside these decode rows, which attend to `num_context_tokens` in all.

        `num_prefill_context`: the longest context a chunk ends at. `is_urgent`: short interactive prompts wait,
        `is_crowded`: several others.
        None: no bound, nothing decodes or the model has seen too little.
        """
        if not num_decode_rows:
            return None
        plain_s = self._step_time.predict(StepShape(num_decode_rows, 0, num_context_tokens))
        slack = 1.0 + (self._slack_ratio - 1.0) * (_CROWDED_SLACKS if is_crowded else 1.0)
        slack_s = self._itl_target_s if is_urgent else min(self._itl_target_s, slack * plain_s)
        target_s = max(slack_s, _MIN_SLOWDOWN * plain_s)
        found = self._step_time.largest_chunk(
            target_s, num_decode_rows, num_context_tokens + num_prefill_context, num_prefill_context
        )
        return None if found is None else max(_MIN_CHUNK_TOKENS, found)
