"""A deployment's whole response as a chat completion."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from gateway.chat.schema import OUTPUT_ITEMS
from gateway.completion.answer_end import token_count
from gateway.completion.answer_json import document_of
from gateway.dialects.responses.content import item_text
from gateway.errors import UpstreamFailed

_FINISH: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Finish reason by the reason of an incomplete response; any other also cuts the answer short."""
_SUMMARY_SEAM: Final = "\n\n"


def completion_of_response(body: bytes) -> dict[str, Any]:
    """Return a whole response as a chat completion, or the error that it states as an envelope.

    Raises:
        UpstreamFailed: It is no response, or not a finished one.
    """
    response = document_of(body)
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        if isinstance(response, dict) and response.get("error"):
            return {"error": response["error"]}
        raise UpstreamFailed("The upstream's answer is no response of the Responses API. Try again.")
    if response.get("status") == "failed" or response.get("error"):
        return {"error": response.get("error") or {"message": "The upstream's response failed."}}
    if response.get("status") not in (None, "completed", "incomplete"):
        raise UpstreamFailed(f"The upstream's response is not finished: {response['status']!s:.20}. Try again.")
    try:
        message, logprobs = message_of_output(response["output"])
    except (AttributeError, KeyError, TypeError):
        raise UpstreamFailed("The upstream's response has an item of an unknown form. Try again.") from None
    choice = {
        "index": 0,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": finish_reason_of_response(response, has_calls="tool_calls" in message),
    }
    return {
        **shared_members_of(response),
        "object": "chat.completion",
        "choices": [choice],
        "usage": usage_of_response(response),
    }


def shared_members_of(response: dict[str, Any]) -> dict[str, Any]:
    """Return what all events of a completion share."""
    shared = {
        "id": response.get("id") or "",
        "created": _whole_seconds(response.get("created_at")),
        "model": response.get("model") or "",
    }
    tier = response.get("service_tier")
    return shared if tier is None else {**shared, "service_tier": tier}


def _whole_seconds(stated: Any) -> int:
    """Return an instant that the API may write with a fraction; zero where there is none."""
    if isinstance(stated, msgspec.Raw):  # a decoded number with a fraction
        stated = float(bytes(stated))
    return int(stated) if isinstance(stated, int | float) and math.isfinite(stated) else 0


def finish_reason_of_response(response: dict[str, Any], *, has_calls: bool) -> str:
    """Return the finish reason of a response that ended."""
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        return _FINISH.get(str(details.get("reason")) if isinstance(details, dict) else "", "length")
    return "tool_calls" if has_calls else "stop"


def usage_of_response(response: dict[str, Any]) -> dict[str, Any] | None:
    """Return the usage of a response in the words of chat completions; None without a possible one."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, made = token_count(usage.get("input_tokens")), token_count(usage.get("output_tokens") or 0)
    if prompt is None or made is None:
        return None
    counts = {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": token_count(usage.get("total_tokens")) or prompt + made,
    }
    details, own = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    return {
        **counts,
        **({"prompt_tokens_details": details} if isinstance(details, dict) else {}),
        **({"completion_tokens_details": own} if isinstance(own, dict) else {}),
    }


def message_of_output(output: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the message that output items make, and its log probabilities."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[Any] = []
    logprobs: list[Any] = []
    for item in output:
        kind = item.get("type")
        if kind == "message":
            _add_parts(message, item["content"], logprobs)
        elif kind == "function_call" or kind == "custom_tool_call":
            calls.append(chat_call(item))
        else:
            at = (message["content"] is not None) + len(calls)
            message.setdefault(OUTPUT_ITEMS, []).append({"at": at, "item": item})
            if kind == "reasoning" and (text := reasoning_text(item)):
                message["reasoning_content"] = message.get("reasoning_content", "") + text
    if calls:
        message["tool_calls"] = calls
    return message, {"content": logprobs, "refusal": None} if logprobs else None


def _add_parts(message: dict[str, Any], parts: list[dict[str, Any]], logprobs: list[Any]) -> None:
    for part in parts:
        if part.get("type") == "refusal":
            message["refusal"] = message.get("refusal", "") + part["refusal"]
            continue
        message["content"] = (message["content"] or "") + part["text"]
        logprobs += part.get("logprobs") or ()
        if part.get("annotations"):
            message.setdefault("annotations", []).extend(map(chat_annotation, part["annotations"]))


def chat_call(item: dict[str, Any]) -> dict[str, Any]:
    """Return a call as chat completions have it."""
    call_id = item.get("call_id") or item.get("id") or ""
    if item["type"] == "custom_tool_call":
        custom = {"name": item.get("name") or "", "input": item.get("input") or ""}
        return {"id": call_id, "type": "custom", "custom": custom}
    arguments = item.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else msgspec.json.encode(arguments).decode()
    return {"id": call_id, "type": "function", "function": {"name": item.get("name") or "", "arguments": arguments}}


def chat_annotation(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation as chat completions have it: its members inside an object of its type's name."""
    kind = annotation.get("type")
    if kind != "url_citation":
        return annotation
    return {"type": kind, kind: {name: value for name, value in annotation.items() if name != "type"}}


def reasoning_text(item: dict[str, Any]) -> str:
    """Return the text of reasoning, or of its summary where there is no other."""
    return item_text(item.get("content")) or _SUMMARY_SEAM.join(
        part["text"] for part in item.get("summary") or () if part.get("text")
    )
