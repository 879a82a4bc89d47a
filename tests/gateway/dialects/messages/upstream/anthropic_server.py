"""Scripts of a server that speaks Anthropic's Messages API."""

from __future__ import annotations

import json
from typing import Any

from tests.gateway.scripted import Script, Wire

POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: claude, dialect: anthropic}}
  - {{id: large, url: "unix:{folder}/large.sock", model: big}}
routes:
  - id: main
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small]}}
  - id: either
    match: {{models: [either]}}
    select: {{policy: first_available, candidates: [large, small]}}
  - id: cached
    match: {{models: [cached]}}
    select: {{policy: first_available, candidates: [small]}}
    cache: {{mode: exact, scope: shared}}
"""
USAGE = {"input_tokens": 4, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 5}
TEXT = {"type": "text", "text": "hello"}
REASONED = {"type": "thinking", "thinking": "let me see", "signature": "c2lnbmVk"}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "get", "input": {"city": "Lyon"}}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [{"type": "web_search_result", "url": "https://a", "title": "A", "encrypted_content": "eA=="}],
}
CITED = {
    "type": "text",
    "text": "It is so.",
    "citations": [{"type": "web_search_result_location", "url": "https://a", "cited_text": "so"}],
}
SEARCHED: list[dict[str, Any]] = [
    {"type": "text", "text": "I search."},
    SEARCH,
    FOUND,
    CITED,
    {"type": "text", "text": " Done."},
]


def message_with(blocks: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A whole message."""
    head = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude", "content": blocks}
    return {**head, "stop_reason": "end_turn", "stop_sequence": None, "usage": USAGE, **fields}


def answering(message: dict[str, Any]) -> Script:
    """A script that answers with this message, plain or as a stream."""

    async def script(wire: Wire) -> None:
        if not wire.request.json.get("stream"):
            await wire.answer(json.dumps(message).encode())
            return
        await wire.start_stream()
        for part in stream_of(message):
            await wire.send(b"%x\r\n%b\r\n" % (len(part), part))
        await wire.end()

    return script


def stream_of(message: dict[str, Any]) -> list[bytes]:
    """The events of a message, as Anthropic's API sends them."""
    start = {**message, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    events = [_event("message_start", message=start), _event("ping")]
    for index, block in enumerate(message["content"]):
        empty, deltas = _pieces(block)
        events.append(_event("content_block_start", index=index, content_block=empty))
        events += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(_event("content_block_stop", index=index))
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence", "container") if name in message}
    events.append(_event("message_delta", delta=delta, usage={"output_tokens": 5}))
    return [*events, _event("message_stop")]


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kind = block["type"]
    if kind == "text":
        half = len(block["text"]) // 2
        parts = (block["text"][:half], block["text"][half:])
        cites = [{"type": "citations_delta", "citation": citation} for citation in block.get("citations", ())]
        return {"type": kind, "text": ""}, [*cites, *({"type": "text_delta", "text": part} for part in parts)]
    if kind == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": part} for part in (block["thinking"][:3], block["thinking"][3:])
        ]
        return {"type": kind, "thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    if kind in ("tool_use", "server_tool_use"):
        text = json.dumps(block["input"])
        pieces = ("", text[:4], text[4:])
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block, []


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())
