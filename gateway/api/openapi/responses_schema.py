"""Structs of the Responses API, from which its part of the OpenAPI document is made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class ResponsesFields(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a response; fields that are not here pass on to the deployment."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    input: Annotated[str, Meta(min_length=1)] | Annotated[list[dict[str, Any]], Meta(max_length=4096)] | None = None
    """Text of the user, or items: messages, function calls and their outputs, reasoning."""
    instructions: str | None = None
    """Instructions before the conversation."""
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    """Format and verbosity of the text."""
    reasoning: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    """Labels that the response repeats."""
    store: bool | None = None
    """False: the response is not kept, whatever the policy says."""
    previous_response_id: str | None = None
    """Id of a stored response that this one continues."""
    include: list[Any] | None = None
    truncation: Any = None
    """Passed on; a gateway that trims does so by its policy."""
    user: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None


class ResponseTokens(msgspec.Struct, frozen=True):
    """Tokens of a response, as the deployment counted them."""

    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """A response."""

    id: str
    object: Literal["response"]
    created_at: int
    status: ResponseStatus
    model: str
    output: list[dict[str, Any]]
    """Items: messages, function calls, reasoning."""
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, Any] | None = None
    """Reason of an incomplete response: `max_output_tokens` or `content_filter`."""
    usage: ResponseTokens | None = None
    store: bool
    """True if the response is kept for later requests."""
