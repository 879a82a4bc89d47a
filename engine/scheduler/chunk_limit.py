"""Limit of the prompt tokens in a step beside decoding sequences, so that their next token is not late. Pure."""

from __future__ import annotations

from engine.forecast.step_time import StepShape, StepTimeModel

_MIN_CHUNK_TOKENS = 4
"""Least prompt tokens of a step, so that prompts progress however slow the machine is."""
_CROWDED_SLACKS = 2.0
"""Factor on the slack where several patient prompts wait, so that their queue gets shorter."""
_MIN_SLOWDOWN = 1.25
"""Maximum factor by which chunks lengthen plain steps that already exceed the target."""


_AMORTIZED = 2.0
"""Factor on the fixed cost of a chunk in steps that this cost alone makes longer than their limit."""


class ChunkLimit:
    """Limit on the duration of a mixed step, and the chunk that fills it by the step-time model.

    There are two limits. A short interactive prompt may lengthen a step up to the inter-token target: its own first
    token is as urgent as other sequences' next tokens. Long and batch prompts may lengthen a plain decode step by
    `slack_ratio` only, so that a stream is hardly slower beside a long prompt. With several of them, the slack doubles.

    Where a chunk of any size exceeds that limit, as beside captured decode steps of a GPU, small chunks would cost most
    and gain least. Such a step has as much time for tokens as a chunk costs without any, up to the target.
    """

    def __init__(self, step_time: StepTimeModel, *, itl_target_s: float, slack_ratio: float) -> None:
        assert slack_ratio > 1.0
        self._step_time = step_time
        self._itl_target_s = itl_target_s
        self._slack_ratio = slack_ratio

    def tokens(
        self,
        num_decode_seqs: int,
        num_context_tokens: int,
        num_prefill_context: int,
        *,
        is_urgent: bool,
        is_crowded: bool = False,
    ) -> int | None:
        """Return the maximum number of prompt tokens beside these decode sequences.

        Args:
            num_decode_seqs: Number of decoding sequences.
            num_context_tokens: Number of tokens to which they attend in all.
            num_prefill_context: Longest context at which a chunk ends.
            is_urgent: True if short interactive prompts wait.
            is_crowded: True if several other prompts wait.

        Returns:
            The number of tokens; None without a bound, if nothing decodes or the model has too few measurements.
        """
        if not num_decode_seqs:
            return None
        plain_s = self._step_time.predict(StepShape(num_decode_seqs, 0, num_context_tokens))
        slack = 1.0 + (self._slack_ratio - 1.0) * (_CROWDED_SLACKS if is_crowded else 1.0)
        slack_s = self._itl_target_s if is_urgent else min(self._itl_target_s, slack * plain_s)
        target_s = max(slack_s, _MIN_SLOWDOWN * plain_s)
        empty_s = self._step_time.predict(StepShape(num_decode_seqs, 0, num_context_tokens, num_chunks=1))
        if empty_s > target_s:
            target_s = max(target_s, min(self._itl_target_s, plain_s + _AMORTIZED * (empty_s - plain_s)))
        found = self._step_time.largest_chunk(
            target_s, num_decode_seqs, num_context_tokens + num_prefill_context, num_prefill_context
        )
        return None if found is None else max(_MIN_CHUNK_TOKENS, found)
