"""All targets by name, and one run of a target on one input."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Final

MAX_CPU_S: Final = 2.0
"""Processor time that no small input may take, on a slow machine either."""

_GATEWAY: Final = "tests.fuzz.gateway_targets"
_ENGINE: Final = "tests.fuzz.engine_targets"
TARGETS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("chat_request", "messages_request", "http_request", "sse"), _GATEWAY),
    **dict.fromkeys(("upstream_response", "whole_answer", "policy"), _GATEWAY),
    **dict.fromkeys(("grammar", "gguf", "safetensors", "model_config", "tokenizer"), _ENGINE),
}
"""The module of each target, imported when it runs: what a run needs is all that is instrumented."""
TOKENS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "chat_request": (b'"messages":', b'"content":null', b'"tool_calls":[{}]', b"\\ud800", b'"n":'),
    "http_request": (b"content-length: ", b"transfer-encoding: chunked\r\n", b"\r\n\r\n", b"0\r\n\r\n", b"expect: "),
    "sse": (b"data: ", b"event: ", b"\n\n", b"\r\r", b"data: [DONE]\n\n", b": \n", b"\xef\xbb\xbf"),
    "upstream_response": (b"HTTP/1.1 100 \r\n\r\n", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n", b";a=b"),
    "policy": (b"&a ", b"*a", b"<<: ", b"!!python/object:x", b"- {id: x}", b'when: "', b"|\n"),
    "grammar": (b'"$ref":"#"', b'"pattern":"(a+)+$"', b'"type":', b'"anyOf":[', b'"maxLength":1000000', b'"minimum":'),
    "tokenizer": (b'"type":', b'"vocab":{}', b'"merges":[]', b'"id":-1', b"null"),
}
"""Words of each format, for mutations."""


def run_target(name: str, data: bytes) -> None:
    """Run a target. Raises AssertionError for an input that took too long; whatever else is raised is a finding."""
    target: Callable[[bytes], None] = getattr(importlib.import_module(TARGETS[name]), name)
    began_s = time.process_time()
    target(data)
    took_s = time.process_time() - began_s
    assert took_s < MAX_CPU_S, f"{len(data)} bytes took {took_s:.1f} s"
