"""Monotonic totals of the core's life."""

from __future__ import annotations

from dataclasses import dataclass

from engine.protocol import Counters


@dataclass(slots=True)
class CoreTotals:
    """Counts as things happen; `snapshot` is what the front sees."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    steps: int = 0

    def snapshot(self) -> Counters:
        """The totals so far, frozen."""
        return Counters(
            prompt_tokens=self.prompt_tokens,
            generation_tokens=self.generation_tokens,
            prefix_query_tokens=self.prefix_query_tokens,
            prefix_hit_tokens=self.prefix_hit_tokens,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            preemptions=self.preemptions,
            steps=self.steps,
        )
