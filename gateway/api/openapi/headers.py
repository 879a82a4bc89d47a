"""Headers of requests and answers in the OpenAPI document."""

from __future__ import annotations

from typing import Final, get_args

from gateway.api.openapi.components import Schema
from gateway.errors import ShedReason
from gateway.telemetry.records.record import CacheResult, QuoteUseKind

ANY_TEXT: Final[Schema] = {"type": "string"}
TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_BOOLEAN: Final[Schema] = {"type": "string", "enum": ["true", "false"]}
REQUEST_ID: Final[dict[str, tuple[str, Schema]]] = {
    "x-request-id": ("Made by the gateway", {"type": "string", "pattern": "^req_[A-Za-z0-9]+$"}),
}
ANSWER_HEADERS: Final[dict[str, tuple[str, Schema]]] = {
    "x-penstock-cache": ("What the cache did", {"enum": [result.header.decode() for result in CacheResult]}),
    "x-penstock-deployment": ("Who answered", TEXT),
    "x-penstock-route": ("Which route of the policy matched", TEXT),
    "x-penstock-policy": ("Policy revision", TEXT),
    "server-timing": ("Milliseconds by stage up to the first byte", TEXT),
}
SOME_HEADERS: Final[dict[str, tuple[str, Schema]]] = {
    "x-penstock-degraded": ("Steps by which the answer was made cheaper under load", TEXT),
    "x-penstock-quote": ("What the quote that was sent back is worth", {"enum": list(get_args(QuoteUseKind))}),
    "x-penstock-trimmed": ("What trimming removed, such as `tokens=120;strategies=minify`", TEXT),
}
ERROR_CODE: Final[dict[str, tuple[str, Schema]]] = {
    "x-penstock-error-code": ("Repeats `code` when, and only when, the gateway itself decided", TEXT),
}
RETRY_HEADERS: Final[dict[str, tuple[str, Schema]]] = {
    "retry-after": ("Seconds until there is room, as far as is known", {"type": "integer", "minimum": 1}),
    "retry-after-ms": ("The same in milliseconds", {"type": "integer", "minimum": 1000}),
    "x-should-retry": ("false where a retry cannot help", _BOOLEAN),
}
RATE_HEADERS: Final[dict[str, tuple[str, Schema]]] = {
    f"x-ratelimit-{what}-{unit}": (f"{text}; for tenants with such a limit", schema)
    for unit in ("requests", "tokens")
    for what, text, schema in (
        ("limit", f"How many {unit} a minute may have", {"type": "integer", "minimum": 1}),
        ("remaining", f"How many {unit} are left of them", {"type": "integer", "minimum": 0}),
        ("reset", "How long until the whole limit is free, such as `12ms` or `6m0s`", TEXT),
    )
}
MESSAGE_LIMITS: Final[dict[str, tuple[str, Schema]]] = {
    f"anthropic-ratelimit-{unit}-{what}": (f"{text}; for tenants with such a limit", schema)
    for unit in ("requests", "tokens")
    for what, text, schema in (
        ("limit", f"How many {unit} a minute may have", {"type": "integer", "minimum": 1}),
        ("remaining", f"How many {unit} are left of them", {"type": "integer", "minimum": 0}),
        ("reset", "Instant at which the whole limit is free", {"type": "string", "format": "date-time"}),
    )
}
SHED_HEADERS: Final[dict[str, tuple[str, Schema]]] = {
    **RETRY_HEADERS,
    "x-penstock-shed-reason": ("Why", {"enum": [reason.value for reason in ShedReason]}),
}
REQUEST_HEADERS: Final[dict[str, str]] = {
    "x-stainless-read-timeout": "Seconds the client waits for a byte; work that would begin later is not started",
    "x-stainless-timeout": "The same, where the other is absent",
    "x-stainless-retry-count": "Above 0 marks a retry",
    "x-penstock-priority": "The lane, within what the key may use",
    "x-penstock-trim": "`off` sends the prompt whole, where the route lets the client choose",
    "x-penstock-timing": "`full` adds every stage's time to the answer",
    "x-client-request-id": "A label for the log",
    "traceparent": "W3C trace context, passed on",
    "tracestate": "W3C trace context, passed on",
}
CHAT_HEADERS: Final[dict[str, str]] = {
    **REQUEST_HEADERS,
    "x-penstock-quote": "The `quote` of `POST /v1/quote` for the same body, under a policy with quotes",
}
MESSAGE_HEADERS: Final[dict[str, str]] = {
    **REQUEST_HEADERS,
    "x-api-key": "The API key, where there is no `authorization`",
    "anthropic-version": "Accepted; any version, or none",
    "anthropic-beta": "Passed on to deployments of Anthropic's API",
}


def described_headers(headers: dict[str, tuple[str, Schema]], *, required: bool = False) -> Schema:
    """Return headers, by name with text and schema, as an answer has them."""
    return {
        name: {"description": text, "required": required, "schema": schema} for name, (text, schema) in headers.items()
    }
