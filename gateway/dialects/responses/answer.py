"""Answer: a whole chat completion as the output of a response."""

from __future__ import annotations

from typing import Any

from gateway.chat.schema import OUTPUT_ITEMS
from gateway.completion.answer_json import document_of
from gateway.dialects.chat_calls import in_tool_calls
from gateway.dialects.chat_spellings import arguments_text, content_text
from gateway.dialects.responses.output_items import (
    call_item,
    custom_call_item,
    latest_items,
    message_item,
    reasoning_item,
    refusal_part,
    responses_annotations,
    responses_logprobs,
    text_part,
)
from gateway.dialects.responses.response_frame import ResponseFrame, incomplete_reason, responses_usage
from gateway.errors import UpstreamFailed


def response_of(completion: bytes, frame: ResponseFrame) -> dict[str, Any]:
    """Return a chat completion as a response object.

    Raises:
        UpstreamFailed: It is no chat completion.
    """
    document = document_of(in_tool_calls(completion))
    try:
        choice = document["choices"][0]
        message = choice["message"]
        frame.model = document.get("model") or frame.model
        reason = incomplete_reason(choice.get("finish_reason"))
        output = output_of(message, choice.get("logprobs"), frame, is_cut=reason is not None)
    except (AttributeError, IndexError, KeyError, TypeError):
        raise UpstreamFailed("The upstream's answer is no chat completion. Try again.") from None
    extension = {"penstock": document["penstock"]} if "penstock" in document else {}
    response = frame.document(
        "completed" if reason is None else "incomplete",
        output,
        usage=responses_usage(document.get("usage")),
        reason=reason,
        service_tier=document.get("service_tier"),
    )
    return {**extension, **response}


def output_of(message: dict[str, Any], logprobs: Any, frame: ResponseFrame, *, is_cut: bool) -> list[Any]:
    """Return the output items of a message, in the order in which a stream has them."""
    status = "incomplete" if is_cut else "completed"
    entries = latest_items(message.get(OUTPUT_ITEMS))
    output: list[Any] = []
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning and not any(entry["item"].get("type") == "reasoning" for entry in entries):
        output.append(reasoning_item(frame.item_id("rs", 0), reasoning))
    parts = _parts(message, logprobs)
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    pieces: list[Any] = [parts] if parts else []
    pieces += calls
    for number, piece in enumerate(pieces):
        output += [entry["item"] for entry in entries if entry["at"] == number]
        position = len(output)
        if isinstance(piece, list):
            output.append(message_item(frame.item_id("msg", position), piece, status))
        else:
            output.append(_call(piece, frame, position, status if number == len(pieces) - 1 else "completed"))
    return output + [entry["item"] for entry in entries if entry["at"] >= len(pieces)]


def _parts(message: dict[str, Any], logprobs: Any) -> list[Any]:
    parts = []
    content = content_text(message.get("content"))
    if content:
        annotations = responses_annotations(message.get("annotations"))
        parts.append(text_part(content, annotations, responses_logprobs(logprobs)))
    if message.get("refusal"):
        parts.append(refusal_part(message["refusal"]))
    if not parts and not message.get("tool_calls") and not message.get(OUTPUT_ITEMS):
        parts.append(text_part(""))
    return parts


def _call(call: dict[str, Any], frame: ResponseFrame, position: int, status: str) -> dict[str, Any]:
    call_id = call.get("id") or frame.item_id("call", position)
    custom = call.get("custom")
    if isinstance(custom, dict):
        item_id = frame.item_id("ctc", position)
        return custom_call_item(item_id, call_id, custom.get("name") or "", custom.get("input") or "", status)
    function = call["function"]
    arguments = arguments_text(function.get("arguments"))
    return call_item(frame.item_id("fc", position), call_id, function.get("name") or "", arguments, status)
