"""ResponseFrame: the response object around the output, which repeats what was requested."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from gateway.completion.answer_end import token_count
from gateway.dialects.responses.request import ResponsesRequest

ResponseState = Literal["in_progress", "completed", "incomplete", "failed"]

_INCOMPLETE: Final = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "model_length": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Reasons of an incomplete response, by finish reason."""
_PREFIX: Final = "resp_"
_ITEM_ID: Final = re.compile(r"[a-z]+_([0-9a-f]{48})[0-9a-f]{4}")


class ResponseFrame:
    """Frame of one response: its id, the ids of its items, and its members beside the output."""

    __slots__ = ("_token", "created_at", "is_stored", "model", "request")

    def __init__(self, request: ResponsesRequest, token: str, created_at: int, *, is_stored: bool) -> None:
        """Create the frame.

        Args:
            request: What the client requested.
            token: 48 hexadecimal digits that no other response has.
            created_at: Seconds since 1970.
            is_stored: Whether the response is kept for later requests.
        """
        self.request = request
        self._token = token
        self.created_at = created_at
        self.is_stored = is_stored
        self.model = request.chat.model
        """Model that answers; the name in the request until the answer names another."""

    @property
    def id(self) -> str:
        """Return the response's id."""
        return _PREFIX + self._token

    def item_id(self, prefix: str, number: int) -> str:
        """Return the id of an item, from which `response_of_item` finds the response."""
        return f"{prefix}_{self._token}{number:04x}"

    def document(
        self,
        state: ResponseState,
        output: list[Any],
        *,
        usage: dict[str, Any] | None = None,
        reason: str | None = None,
        error: dict[str, Any] | None = None,
        service_tier: str | None = None,
    ) -> dict[str, Any]:
        """Return the response object; `reason` is why it is incomplete."""
        sent = self.request.document
        reasoning, text = sent.get("reasoning") or {}, sent.get("text") or {}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": state,
            "background": False,
            "error": error,
            "incomplete_details": None if reason is None else {"reason": reason},
            "instructions": sent.get("instructions"),
            "max_output_tokens": sent.get("max_output_tokens"),
            "max_tool_calls": sent.get("max_tool_calls"),
            "model": self.model,
            "output": output,
            "parallel_tool_calls": sent.get("parallel_tool_calls", True),
            "previous_response_id": sent.get("previous_response_id"),
            "prompt_cache_key": sent.get("prompt_cache_key"),
            "reasoning": {"effort": None, "summary": None, **reasoning},
            "safety_identifier": sent.get("safety_identifier"),
            "service_tier": service_tier or sent.get("service_tier", "auto"),
            "temperature": sent.get("temperature"),
            "text": {**text, "format": text.get("format") or {"type": "text"}},
            "tool_choice": sent.get("tool_choice", "auto"),
            "tools": sent.get("tools", []),
            "top_logprobs": sent.get("top_logprobs", 0),
            "top_p": sent.get("top_p"),
            "truncation": sent.get("truncation", "disabled"),
            "usage": usage,
            "user": sent.get("user"),
            "metadata": sent.get("metadata", {}),
            "store": self.is_stored,
        }


def response_of_item(item_id: str) -> str | None:
    """Return the id of the response that an item belongs to; None for an id of another kind."""
    found = _ITEM_ID.fullmatch(item_id)
    return None if found is None else _PREFIX + found[1]


def incomplete_reason(finish_reason: object) -> str | None:
    """Return why a response with this finish reason is incomplete; None when it is complete."""
    return _INCOMPLETE.get(finish_reason.lower()) if isinstance(finish_reason, str) else None


def responses_usage(usage: Any) -> dict[str, Any] | None:
    """Return the usage of a chat completion in the words of Responses; None without a possible one."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = token_count(usage.get("prompt_tokens")), token_count(usage.get("completion_tokens") or 0)
    if prompt is None or completion is None:
        return None
    details, made = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": _detail(details, "cached_tokens"),
            "cache_write_tokens": _detail(details, "cache_write_tokens"),
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": _detail(made, "reasoning_tokens")},
        "total_tokens": token_count(usage.get("total_tokens")) or prompt + completion,
    }


def _detail(details: Any, name: str) -> int:
    return token_count(details.get(name)) or 0 if isinstance(details, dict) else 0
