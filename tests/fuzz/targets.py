"""All targets by name, their corpora, and one run of a target on one input."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.fuzz import engine_targets, gateway_targets

CORPORA: Final = Path(__file__).parent / "corpora"
MAX_CPU_S: Final = 2.0
"""Processor time that no small input may take, on a slow machine either."""

TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "chat_request": gateway_targets.chat_request,
    "messages_request": gateway_targets.messages_request,
    "http_request": gateway_targets.http_request,
    "sse": gateway_targets.sse,
    "upstream_response": gateway_targets.upstream_response,
    "whole_answer": gateway_targets.whole_answer,
    "policy": gateway_targets.policy,
    "grammar": engine_targets.grammar,
    "gguf": engine_targets.gguf,
    "safetensors": engine_targets.safetensors,
    "model_config": engine_targets.model_config,
    "tokenizer": engine_targets.tokenizer,
}
TOKENS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "chat_request": (b'"messages":', b'"content":null', b'"tool_calls":[{}]', b"\\ud800", b'"n":'),
    "http_request": (b"content-length: ", b"transfer-encoding: chunked\r\n", b"\r\n\r\n", b"0\r\n\r\n", b"expect: 100-continue"),
    "sse": (b"data: ", b"event: ", b"\n\n", b"\r\r", b"data: [DONE]\n\n", b": \n", b"\xef\xbb\xbf"),
    "upstream_response": (b"HTTP/1.1 100 \r\n\r\n", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n", b";a=b", b"content-length: 3\r\n"),
    "policy": (b"&a ", b"*a", b"<<: ", b"!!python/object:x", b"- {id: x}", b"when: \"", b"|\n"),
    "grammar": (b'"$ref":"#"', b'"pattern":"(a+)+$"', b'"type":', b'"anyOf":[', b'"maxLength":1000000', b'"minimum":1e308'),
    "tokenizer": (b'"type":', b'"vocab":{}', b'"merges":[]', b'"id":-1', b"null"),
}  # fmt: skip


def corpus_of(name: str) -> dict[str, bytes]:
    """The stored inputs of a target, by file name."""
    return {path.name: path.read_bytes() for path in sorted((CORPORA / name).iterdir())}


def run_target(name: str, data: bytes) -> None:
    """Run a target. Raises AssertionError for an input that took too long; whatever else is raised is a finding."""
    began_s = time.process_time()
    TARGETS[name](data)
    took_s = time.process_time() - began_s
    assert took_s < MAX_CPU_S, f"{len(data)} bytes took {took_s:.1f} s"
