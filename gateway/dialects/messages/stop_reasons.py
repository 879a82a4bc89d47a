"""Stop reasons of the Messages API and finish reasons of chat completions, each as the other."""

from __future__ import annotations

from typing import Any, Final

_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_FINISH_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "model_context_window_exceeded": "length",
}
_ONLY_HERE: Final = frozenset({"pause_turn", "model_context_window_exceeded"})
"""Stop reasons that chat completions do not have; they are passed on beside the nearest one."""
NATIVE_REASON: Final = "native_finish_reason"
"""Member of a choice with the stop reason in the deployment's own words."""


def stop_reason_of(
    finish_reason: Any, native: Any, matched: Any, *, has_call: bool, has_refusal: bool
) -> tuple[str, str | None]:
    """Return the stop reason and the stop sequence of an answer.

    Args:
        finish_reason: Finish reason of the choice.
        native: Member `native_finish_reason` of the choice.
        matched: Stop string that ended it, where the server names one.
        has_call: True if the answer has a tool call.
        has_refusal: True if the answer has a refusal.
    """
    if isinstance(native, str) and native in _ONLY_HERE:
        return native, None
    reason = _STOP_REASONS.get(finish_reason, "end_turn") if isinstance(finish_reason, str) else "end_turn"
    if reason != "end_turn":
        return reason, None
    if isinstance(matched, str) and matched:
        return "stop_sequence", matched
    if has_call:
        return "tool_use", None
    return ("refusal" if has_refusal else reason), None


def finish_reason_of(stop_reason: Any) -> str:
    """Return the finish reason for a stop reason, also for an unknown one."""
    return _FINISH_REASONS.get(stop_reason, "stop") if isinstance(stop_reason, str) else "stop"


def choice_end(stop_reason: Any, stop_sequence: Any) -> dict[str, Any]:
    """Return the members of a choice that tell how a message ended."""
    end: dict[str, Any] = {"finish_reason": finish_reason_of(stop_reason)}
    if stop_reason == "stop_sequence" and isinstance(stop_sequence, str):
        end["stop_reason"] = stop_sequence
    if isinstance(stop_reason, str) and stop_reason in _ONLY_HERE:
        end[NATIVE_REASON] = stop_reason
    return end
