"""Durations of one answer: its first token in a header, and its stages on request (`x-penstock-timing: full`)."""

from __future__ import annotations

from typing import Any, Final

from engine.frontend.core_client.generation import Generation
from engine.frontend.text.choice import Choice

TTFT_HEADER: Final = "x-penstock-ttft-ms"
"""Header of a plain answer: milliseconds from receipt to its first token."""


def timing_report(generation: Generation, now: float) -> dict[str, Any]:
    """Return member `penstock` of the last event or the body: milliseconds, the engine's under `engine`."""
    prompt = generation.prompt
    first_at = generation.first_token_at
    engine = {
        "tokenize_ms": _ms(prompt.tokenize_s),
        "ttft_ms": None if first_at is None else _ms(first_at - prompt.received_at),
        "total_ms": _ms(now - prompt.received_at),
        "detokenize_ms": _ms(generation.detokenize_s),
        "lane": prompt.lane,
        "prompt_tokens": prompt.num_tokens,
        "cached_tokens": generation.num_cached_tokens,
        "choices": [_choice(choice) for choice in generation.choices],
    }
    return {"penstock": {"timing": {"engine": engine}}}


def first_token_header(generation: Generation) -> dict[str, str]:
    """Return the header with the time to first token, known when a plain answer is sent; empty before."""
    first_at = generation.first_token_at
    return {} if first_at is None else {TTFT_HEADER: f"{_ms(first_at - generation.prompt.received_at):.3f}"}


def _choice(choice: Choice) -> dict[str, Any]:
    report: dict[str, Any] = {"index": choice.index, "completion_tokens": choice.num_tokens}
    stages = choice.stages
    if stages is None:  # a stop string ended it before the core reported
        return report
    return report | {
        "queue_ms": _ms(stages.queue_s),
        "prefill_ms": _ms(stages.prefill_s),
        "decode_ms": _ms(stages.decode_s),
        "prefill_chunks": stages.num_prefill_chunks,
        "cached_tokens": stages.num_cached_tokens,
        "preemptions": stages.num_preemptions,
        "drafted_tokens": stages.num_drafted_tokens,
        "accepted_tokens": stages.num_accepted_tokens,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
