"""Usage of the Messages API and of chat completions, each as the other.

Chat completions count cached tokens inside of the prompt's, the Messages API beside them.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.completion.answer_end import token_count

NO_USAGE: Final = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
}
_PASSED_ON: Final = frozenset(
    {"cache_creation", "server_tool_use", "service_tier", "inference_geo", "speed", "output_tokens_details"}
)
"""Members of the Messages API's usage that chat completions do not have; they are passed on."""


def message_usage(usage: dict[str, Any] | None) -> dict[str, Any]:
    """Return the usage of a chat completion in the form of a message."""
    if not usage:
        return dict(NO_USAGE)
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    read, created = _count(details.get("cached_tokens")), _count(details.get("cache_creation_tokens"))
    found = {
        "input_tokens": max(_count(usage.get("prompt_tokens")) - read - created, 0),
        "cache_creation_input_tokens": created,
        "cache_read_input_tokens": read,
        "output_tokens": _count(usage.get("completion_tokens")),
    }
    if len(usage) > 3:
        found |= {name: usage[name] for name in _PASSED_ON & usage.keys()}
    return found


def chat_usage(usage: dict[str, Any]) -> dict[str, Any] | None:
    """Return the usage of a message in the form of a chat completion; None where a figure is impossible."""
    if any(type(usage.get(name)) is int and token_count(usage[name]) is None for name in NO_USAGE):
        return None
    read, created = _count(usage.get("cache_read_input_tokens")), _count(usage.get("cache_creation_input_tokens"))
    prompt, completion = _count(usage.get("input_tokens")) + read + created, _count(usage.get("output_tokens"))
    found: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": read, "cache_creation_tokens": created},
    }
    return found | {name: usage[name] for name in _PASSED_ON & usage.keys() if usage[name] is not None}


def _count(value: Any) -> int:
    return token_count(value) or 0 if type(value) is int else 0
