"""Tracer: a traced request's way through the engine as spans, made after it and sent off the event loop."""

from __future__ import annotations

import http.client
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from engine.config import FrontConfig
from engine.frontend.core_client.generation import Generation

CAPACITY: Final = 1024
"""Finished requests that may wait to be sent; of more, the newest are dropped."""
INTERVAL_S: Final = 0.5
TIMEOUT_S: Final = 5.0

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_SAMPLED: Final = 0x01
_SERVER, _INTERNAL = 2, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One finished request, on the front's clock."""

    trace_id: str
    parent_id: str
    generation: Generation
    ended_at: float
    is_failed: bool


class Tracer:
    """Tracer that continues traces sampled by the caller; one thread posts the spans that have ended."""

    def __init__(
        self,
        config: FrontConfig,
        clock: Callable[[], float],
        unix_time: Callable[[], float],
        random_bits: Callable[[int], int],
    ) -> None:
        """Create a tracer for the collector at `config.otlp_endpoint`; `random_bits(n)` makes span ids."""
        self._config = config
        self._clock = clock
        self._unix_time = unix_time
        self._random_bits = random_bits
        self._queue: deque[Traced] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self.num_dropped = 0
        """Number of requests whose spans were dropped."""

    @contextmanager
    def watch(self, traceparent: str, generation: Generation) -> Iterator[None]:
        """Record the request when the block ends, however it ends; do nothing if the caller did not sample it."""
        found = _TRACEPARENT.fullmatch(traceparent)
        if found is None or not int(found[3], 16) & _SAMPLED:
            yield
            return
        is_failed = True
        try:
            yield
            is_failed = False
        finally:
            self._note(
                Traced(
                    trace_id=found[1],
                    parent_id=found[2],
                    generation=generation,
                    ended_at=self._clock(),
                    is_failed=is_failed,
                )
            )

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Send what waits and stop; gives up after `timeout_s`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def spans(self, traced: Traced) -> list[dict[str, Any]]:
        """Return the request's span, and one for each phase of each choice."""
        offset_s = self._unix_time() - self._clock()
        generation, prompt = traced.generation, traced.generation.prompt
        began_at = prompt.received_at + offset_s
        root = self._span_id()
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "penstock",
            "gen_ai.request.model": self._config.model_name,
            "gen_ai.usage.input_tokens": prompt.num_tokens,
            "gen_ai.usage.output_tokens": sum(choice.num_tokens for choice in generation.choices),
            "penstock.lane": prompt.lane,
            "penstock.cached_tokens": generation.num_cached_tokens,
            "penstock.tokenize_s": prompt.tokenize_s,
            "penstock.detokenize_s": generation.detokenize_s,
        }
        name = f"chat {self._config.model_name}"
        ended_at = traced.ended_at + offset_s
        own = self._span(traced, name, root, traced.parent_id, began_at, ended_at, attributes, kind=_SERVER)
        own["status"] = {"code": 2 if traced.is_failed else 0}
        return [own, *self._phases(traced, root, began_at + prompt.tokenize_s)]

    def _phases(self, traced: Traced, root: str, began_at: float) -> Iterator[dict[str, Any]]:
        for choice in traced.generation.choices:
            stages = choice.stages
            if stages is None:  # it was aborted before the core reported
                continue
            at = began_at
            counts = {
                "queue": {"penstock.preemptions": stages.num_preemptions},
                "prefill": {
                    "penstock.prefill_chunks": stages.num_prefill_chunks,
                    "penstock.cached_tokens": stages.num_cached_tokens,
                },
                "decode": {
                    "penstock.output_tokens": choice.num_tokens,
                    "penstock.drafted_tokens": stages.num_drafted_tokens,
                    "penstock.accepted_tokens": stages.num_accepted_tokens,
                },
            }
            for name, seconds in (
                ("queue", stages.queue_s),
                ("prefill", stages.prefill_s),
                ("decode", stages.decode_s),
            ):
                attributes = {"penstock.choice": choice.index, **counts[name]}
                yield self._span(traced, name, self._span_id(), root, at, at + seconds, attributes)
                at += seconds

    def _span(
        self,
        traced: Traced,
        name: str,
        span_id: str,
        parent_id: str,
        began_at: float,
        ended_at: float,
        attributes: dict[str, Any],
        *,
        kind: int = _INTERNAL,
    ) -> dict[str, Any]:
        return {
            "traceId": traced.trace_id,
            "spanId": span_id,
            "parentSpanId": parent_id,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(int(began_at * 1e9)),
            "endTimeUnixNano": str(int(ended_at * 1e9)),
            "attributes": [_attribute(key, value) for key, value in attributes.items()],
        }

    def _span_id(self) -> str:
        return f"{self._random_bits(64) or 1:016x}"

    def _note(self, traced: Traced) -> None:
        if len(self._queue) < CAPACITY:
            self._queue.append(traced)
        else:
            self.num_dropped += 1

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            self._send()
        self._send()

    def _send(self) -> None:
        spans: list[dict[str, Any]] = []
        num = 0
        while self._queue:
            spans += self.spans(self._queue.popleft())
            num += 1
        if spans and not self._post(spans):
            self.num_dropped += num

    def _post(self, spans: list[dict[str, Any]]) -> bool:
        """Post the spans; return whether the collector accepted them. They are not sent again."""
        resource = {"attributes": [_attribute("service.name", "penstock-engine")]}
        scoped = [{"scope": {"name": "penstock.engine"}, "spans": spans}]
        body = msgspec.json.encode({"resourceSpans": [{"resource": resource, "scopeSpans": scoped}]})
        url = urlsplit(self._config.otlp_endpoint)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", url.path or "/v1/traces", body, {"content-type": "application/json"})
            return connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def _attribute(key: str, value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    if isinstance(value, float):
        return {"key": key, "value": {"doubleValue": value}}
    return {"key": key, "value": {"stringValue": str(value)}}
