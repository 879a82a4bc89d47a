"""A finished request as spans in OTLP's JSON encoding, by OpenTelemetry's GenAI semantic conventions. Pure.

Spans are built after the response, from the request's record. The text is assembled by hand: at thousands of requests a
second on one core, a tree of objects for each span would cost more than the rest of tracing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from gateway.telemetry.logs.log import clean
from gateway.telemetry.records.record import RequestRecord
from gateway.telemetry.records.trace_context import TraceContext
from gateway.timeline import STAGE_LABELS, Outcome, Stage

PREPARE, QUEUE, UPSTREAM = 1, 2, 3
"""Numbers of the spans inside a request's own; upstreams continue below UPSTREAM."""

_SCOPE: Final = "penstock.gateway"
_STAGE_MARKS: Final = tuple(
    f'{{"key":"penstock.{label}_s","value":{{"doubleValue":%.6f}}}}' for label in STAGE_LABELS[: Stage.QUEUE]
)
_GOOD: Final = (Outcome.COMPLETED, Outcome.CACHED)


def export_request(spans: Iterable[str], resource: str) -> bytes:
    """Return the body of one export; `resource` comes from `resource_of`."""
    listed = ",".join(spans)
    scope = f'{{"scope":{{"name":"{_SCOPE}"}},"spans":[{listed}]}}'
    return f'{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{scope}]}}]}}'.encode()


def resource_of(service: str, version: str, instance: str) -> str:
    """Return the OTLP resource that identifies this process."""
    names = (("service.name", service), ("service.version", version), ("service.instance.id", instance))
    return f'{{"attributes":[{",".join(_text(name, value) for name, value in names)}]}}'


def spans_of(record: RequestRecord, context: TraceContext, offset_s: float) -> str:
    """Return the request's span and those inside it, comma-joined.

    Args:
        record: The finished request.
        context: Its trace.
        offset_s: Seconds to add to the record's clock for seconds since 1970.
    """
    timeline = record.timeline
    spent = timeline.spent
    at, end = timeline.started_at + offset_s, timeline.last_at + offset_s
    status = '{"code":0}' if record.outcome in _GOOD else _failed(record.code or str(record.outcome))
    root = context.span_id(0)
    parent = f'"parentSpanId":"{context.parent_id}",' if context.parent_id else ""
    inside = f'{{"traceId":"{context.trace_id}","parentSpanId":"{root}",'
    names = _names(
        *(record.tenant, record.lane, record.route, record.deployment, record.policy),
        *(record.cache, record.cache_reason, record.outcome or Outcome.FAILED, record.stream),
    )
    found = (
        f'{{"traceId":"{context.trace_id}","spanId":"{root}",{parent}"name":"POST /v1/chat/completions","kind":2,'
        f'"startTimeUnixNano":"{int(at * 1e9)}","endTimeUnixNano":"{int(end * 1e9)}","attributes":[{names},'
        f'{{"key":"http.response.status_code","value":{{"intValue":"{record.status}"}}}},'
        f'{{"key":"penstock.request_id","value":{{"stringValue":"{record.request_id}"}}}}],"status":{status}}}'
    )
    read_s, admit_s, trim_s, embed_s, cache_s, route_s, waited_s, *_ = [seconds or 0.0 for seconds in spent]
    prepared_at = at + read_s + admit_s + trim_s + embed_s + cache_s + route_s
    found += (
        f',{inside}"spanId":"{context.span_id(PREPARE)}","name":"prepare","kind":1,'
        f'"startTimeUnixNano":"{int(at * 1e9)}","endTimeUnixNano":"{int(prepared_at * 1e9)}",'
        f'"attributes":[{_stage_times(spent)}]}}'
    )
    sent_at = prepared_at + waited_s
    if spent[Stage.QUEUE] is not None:
        found += (
            f',{inside}"spanId":"{context.span_id(QUEUE)}","name":"queue","kind":1,'
            f'"startTimeUnixNano":"{int(prepared_at * 1e9)}","endTimeUnixNano":"{int(sent_at * 1e9)}"}}'
        )
    if record.attempts:
        called = _upstream(record, sent_at, end, offset_s)
        found += f',{inside}"spanId":"{context.span_id(UPSTREAM)}",{called},"status":{status}}}'
    return found


def _upstream(record: RequestRecord, at: float, end: float, offset_s: float) -> str:
    usage, first_at = record.usage, record.timeline.first_token_at
    tokens = first = ""
    if usage is not None:
        tokens = (
            f',{{"key":"gen_ai.usage.input_tokens","value":{{"intValue":"{usage.prompt_tokens}"}}}}'
            f',{{"key":"gen_ai.usage.output_tokens","value":{{"intValue":"{usage.completion_tokens}"}}}}'
        )
    if first_at is not None:
        nanoseconds = int((first_at + offset_s) * 1e9)
        first = f',"events":[{{"name":"gen_ai.first_token","timeUnixNano":"{nanoseconds}"}}]'
    return (
        f'"name":{_chat_name(record.model)},"kind":3,"startTimeUnixNano":"{int(at * 1e9)}",'
        f'"endTimeUnixNano":"{int(max(at, end) * 1e9)}",'
        f'"attributes":[{_span_name(record.model, record.deployment)}{tokens}]{first}'
    )


def _stage_times(spent: list[float | None]) -> str:
    return ",".join([mark % seconds for mark, seconds in zip(_STAGE_MARKS, spent, strict=False) if seconds is not None])


@lru_cache(maxsize=4096)
def _names(
    tenant: str,
    lane: str,
    route: str,
    deployment: str,
    policy: str,
    cache: str,
    cache_reason: str,
    outcome: str,
    is_stream: bool,
) -> str:
    texts = {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "penstock.tenant": tenant,
        "penstock.lane": lane,
        "penstock.route": route,
        "penstock.deployment": deployment,
        "penstock.policy": policy,
        "penstock.cache": str(cache),
        "penstock.cache_reason": cache_reason,
        "penstock.outcome": str(outcome),
    }
    listed = [_text(name, value) for name, value in texts.items() if value]
    return ",".join([*listed, f'{{"key":"penstock.stream","value":{{"boolValue":{str(is_stream).lower()}}}}}'])


@lru_cache(maxsize=1024)
def _span_name(model: str, deployment: str) -> str:
    texts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "penstock",
        "gen_ai.request.model": model,
        "server.address": deployment,
    }
    return ",".join(_text(name, value) for name, value in texts.items())


@lru_cache(maxsize=256)
def _chat_name(model: str) -> str:
    return _quoted(f"chat {model}")


@lru_cache(maxsize=256)
def _failed(code: str) -> str:
    return f'{{"code":2,"message":{_quoted(code)}}}'


def _text(name: str, value: str) -> str:
    return f'{{"key":"{name}","value":{{"stringValue":{_quoted(value)}}}}}'


def _quoted(text: str) -> str:
    """Encode a name as JSON without secrets and control characters, because names come from clients."""
    return msgspec.json.encode(clean(text)).decode()
