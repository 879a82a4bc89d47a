"""Text completions: requests of raw prompts, routed, cached exactly and shed like chat completions."""

from __future__ import annotations

from typing import Final

from gateway.chat.conversion import refused
from gateway.chat.fields.faults import only_with
from gateway.chat.operation import COMPLETIONS
from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatFields
from gateway.dialects.completions.schema import COMPLETION_RULES, MAX_PROMPTS, CompletionFields
from gateway.dialects.direct import DirectDialect
from gateway.dialects.operation_parser import OperationParser, ParsedBody, prompts_of
from gateway.errors import InvalidRequest

COMPLETIONS_PATH: Final = "/v1/completions"


def completions_dialect() -> DirectDialect:
    """Return the API of text completions."""
    parser = OperationParser(CompletionFields, _request_of, COMPLETION_RULES)
    return DirectDialect(COMPLETIONS_PATH, parser.parse)


def _request_of(body: ParsedBody[CompletionFields]) -> ChatRequest:
    """Return the request; its choices are those of all prompts together, which is what its price depends on."""
    fields = body.fields
    if body.document.get("stream_options") and not fields.stream:
        raise refused(only_with("stream_options", "stream"))
    prompts = prompts_of(fields.prompt, "prompt")
    if len(prompts.texts) > MAX_PROMPTS:
        raise InvalidRequest(
            f"`prompt` must have at most {MAX_PROMPTS} prompts; got {len(prompts.texts)}.", param="prompt"
        )
    read = ChatFields(
        model=fields.model,
        messages=list(prompts.messages),
        stream=fields.stream,
        stream_options=fields.stream_options,
        max_tokens=fields.max_tokens,
        temperature=fields.temperature,
        n=max(fields.n or 1, fields.best_of or 1) * len(prompts.texts),
        user=fields.user,
        prompt_cache_key=fields.prompt_cache_key,
        service_tier=fields.service_tier,
    )
    return ChatRequest(
        body.raw,
        body.document,
        read,
        num_text_bytes=prompts.num_text_bytes,
        spans=body.spans,
        operation=COMPLETIONS,
    )
