"""Answers of operations in the OpenAPI document, errors among them."""

from __future__ import annotations

from typing import Final

from gateway.api.openapi.components import Schema, ref
from gateway.api.openapi.headers import (
    ERROR_CODE,
    MESSAGE_LIMITS,
    RATE_HEADERS,
    REQUEST_ID,
    RETRY_HEADERS,
    SHED_HEADERS,
    TEXT,
    described_headers,
)
from gateway.dialects.messages.schema import (
    MessageErrorEnvelope,
)
from gateway.errors import ErrorEnvelope

JSON_TYPE: Final = "application/json"
_ERRORS: Final[dict[int, str]] = {
    400: "The request is wrong: `invalid_json`, `invalid_value`, `unsupported_parameter` (see `param`), "
    "`context_length_exceeded`, `unsupported_operation`, or `invalid_request` for malformed HTTP.",
    401: "No valid API key: `invalid_api_key`.",
    403: "The key may not use the model: `model_not_allowed`.",
    404: "No such model (`model_not_found`) or path (`not_found`).",
    405: "`method_not_allowed`; see `allow`.",
    408: "The request came too slowly: `request_timeout`.",
    413: "`request_too_large`.",
    414: "`uri_too_long`.",
    415: "Not plain JSON: `unsupported_media_type`.",
    417: "`invalid_request`: an expectation that is not served.",
    429: "The tenant's own limit (`rate_limit_exceeded`) or budget (`insufficient_quota`), or the deployment's limit, "
    "passed on.",
    431: "`headers_too_large`.",
    500: "`internal_error`, with the request id.",
    502: "The deployment failed: `upstream_error`.",
    503: "Refused for load: `server_is_overloaded`. `error.degraded` names why, and what would be admitted.",
    504: "The deployment was too late: `upstream_timeout`.",
}
EDGE_ERRORS: Final = (400, 405, 408, 413, 414, 415, 417, 431, 500, 503)
GENERATION_ERRORS: Final = tuple(_ERRORS)


def described_errors(statuses: tuple[int, ...]) -> Schema:
    """Describe the errors of these statuses, in the envelope of all endpoints."""
    return {str(status): _error(status) for status in statuses}


def _error(status: int) -> Schema:
    response = described_response(_ERRORS[status], ErrorEnvelope)
    response["headers"] |= described_headers(ERROR_CODE)
    if status == 503:
        response["headers"] |= described_headers(SHED_HEADERS)
    if status == 429:
        response["headers"] |= described_headers(RETRY_HEADERS | RATE_HEADERS)
    if status == 405:
        response["headers"] |= described_headers({"allow": ("Methods that would have worked", TEXT)}, required=True)
    if status == 401:
        challenge = {"type": "string", "pattern": "^Bearer"}
        response["headers"] |= described_headers({"www-authenticate": ("The scheme to use", challenge)}, required=True)
    return response


def described_message_errors(statuses: tuple[int, ...]) -> Schema:
    """Describe errors in the envelope of Anthropic's API."""
    errors = described_errors(statuses)
    for status in statuses:
        error = errors[str(status)]
        error["content"][JSON_TYPE]["schema"] = ref(MessageErrorEnvelope)
        error["headers"] = {
            name: header for name, header in error["headers"].items() if not name.startswith("x-ratelimit-")
        }
    if 429 in statuses:
        errors["429"]["headers"] |= described_headers(MESSAGE_LIMITS)
    return errors


def described_response(description: str, kind: type) -> Schema:
    """Describe an answer in JSON."""
    return {
        "description": description,
        "headers": described_headers(REQUEST_ID, required=True),
        "content": {JSON_TYPE: {"schema": ref(kind)}},
    }
