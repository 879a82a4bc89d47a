"""Requests of `/tokenize` and `/detokenize`, in the form of vLLM's server, parsed once and strictly."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from engine.config import FrontConfig
from engine.frontend.fields.faults import FieldRefusal, surplus_field
from engine.frontend.request.absent import without_absent
from engine.frontend.request.errors import invalid_value, unsupported
from engine.frontend.request.requests import ChatBody, parse_chat
from engine.frontend.request.strict_json import parse_object
from engine.frontend.request.unserved import adapter_of, refuse_privileged

_TOKENIZE_FIELDS: Final = ("prompt", "add_special_tokens", "return_token_strs")
_CONVERSATION_FIELDS: Final = frozenset({"messages", "tools", "chat_template_kwargs"})
_UNSERVED: Final = {"add_generation_prompt": False, "continue_final_message": True}
"""Values of a conversation's fields that would change the tokens, and that this engine does not render."""


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /tokenize`: a raw prompt, or a conversation to render with the chat template."""

    prompt: str | None = None
    conversation: ChatBody | None = None
    """The conversation; None for a raw prompt."""
    add_special_tokens: bool = True
    """True to begin a raw prompt with the model's start tokens, as `/v1/completions` does."""
    return_token_strs: bool = False


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /detokenize`."""

    tokens: list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]
    model: str | None = None


def parse_tokenize(body: bytes, config: FrontConfig) -> TokenizeRequest:
    """Parse and validate a request for tokens.

    Raises:
        ApiError: The request is wrong (400) or names another model (404); the error names the field.
    """
    document = without_absent(_document(body, config))
    for name in ("prompt", "messages"):
        if document.get(name, "") is None:
            del document[name]
    refuse_privileged(document)
    for name in ("add_special_tokens", "return_token_strs", *_UNSERVED):
        if not isinstance(document.get(name, False), bool):
            raise invalid_value(name, f"`{name}` must be true or false.")
    is_conversation = "messages" in document
    if is_conversation == ("prompt" in document):
        raise invalid_value("prompt", "Send either `prompt`, a string, or `messages`, a conversation.")
    return_token_strs = document.get("return_token_strs", False)
    if not is_conversation:
        _check_names(document, {*_TOKENIZE_FIELDS, "model"})
        prompt = document["prompt"]
        if not isinstance(prompt, str):
            raise invalid_value("prompt", "`prompt` must be a string.")
        add_special_tokens = document.get("add_special_tokens", True)
        return TokenizeRequest(
            prompt=prompt, add_special_tokens=add_special_tokens, return_token_strs=return_token_strs
        )
    _check_names(document, {*_TOKENIZE_FIELDS, *_UNSERVED, *_CONVERSATION_FIELDS, "model"})
    for name, value in (*_UNSERVED.items(), ("add_special_tokens", True)):
        if document.get(name) is value:
            message = f"`{name}` must not be {str(value).lower()} beside `messages` at this engine; leave it out."
            raise unsupported(FieldRefusal(name, message))
    chat = {name: document[name] for name in _CONVERSATION_FIELDS & document.keys()}
    conversation = parse_chat(msgspec.json.encode({"model": config.model_name, **chat}), config)
    return TokenizeRequest(conversation=conversation, return_token_strs=return_token_strs)


def parse_detokenize(body: bytes, config: FrontConfig) -> DetokenizeRequest:
    """Parse and validate a request for the text of tokens.

    Raises:
        ApiError: The request is wrong (400) or names another model (404); the error names the field.
    """
    document = _document(body, config)
    _check_names(document, set(DetokenizeRequest.__struct_fields__))
    try:
        return msgspec.convert(document, DetokenizeRequest)
    except msgspec.ValidationError:
        raise invalid_value("tokens", "`tokens` must be a list of token ids, 0 or more.") from None


def _document(body: bytes, config: FrontConfig) -> dict[str, Any]:
    """Return the body as an object whose `model`, if any, is the engine's."""
    document = parse_object(body)
    model = document.get("model")
    if model is not None and not isinstance(model, str):
        raise invalid_value("model", "`model` must be a string.")
    if model is not None:
        adapter_of(model, config)
    return document


def _check_names(document: dict[str, Any], served: set[str]) -> None:
    for name in document:
        if name not in served:
            shown = name[:64]
            raise unsupported(surplus_field(shown))
