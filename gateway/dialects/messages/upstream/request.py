"""MessagesBody: a chat request as a request of the Messages API, for a deployment that speaks it."""

from __future__ import annotations

from typing import Any, Final

from gateway.chat.json_members import encoded
from gateway.chat.request import ChatRequest
from gateway.dialects.messages.native_blocks import blocks_in
from gateway.dialects.messages.projection import BETAS
from gateway.dialects.messages.tools import OWN_TOOLS
from gateway.dialects.messages.upstream.turns import MessageTurns
from gateway.errors import InvalidRequest

DEFAULT_MAX_TOKENS: Final = 8192
"""Limit of an answer where the request sets none, which Anthropic's API requires."""
_SAME: Final = ("stream", "temperature", "top_p", "top_k")
_TRANSLATED: Final = frozenset(
    {
        *("model", "messages", "max_tokens", "max_completion_tokens", "stop", "stream_options", "tools", "tool_choice"),
        *("parallel_tool_calls", "response_format", "user", "service_tier", "functions", "function_call"),
        *(OWN_TOOLS, BETAS, *_SAME),
    }
)
_NO_EFFECT: Final = frozenset(
    {
        *("seed", "store", "metadata", "prompt_cache_key", "safety_identifier", "reasoning_effort", "verbosity"),
        *("prediction", "modalities", "chat_template_kwargs", "logprobs", "top_logprobs", "n", "best_of", "min_p"),
        *("web_search_options", "prompt_cache_retention", "logit_bias", "presence_penalty", "frequency_penalty"),
        *("repetition_penalty", "audio"),
    }
)
"""Members that Anthropic's API does not have; it refuses unknown ones. Those that matter are refused before."""
_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}
_TIERS: Final = {"auto": "auto", "default": "standard_only"}
_FUNCTION: Final = frozenset({"type", "function"})
_NO_SCHEMA: Final = {"type": "object", "properties": {}}


def messages_body(request: ChatRequest, model: str) -> bytes:
    """Return the request for `model`; raises InvalidRequest for a field whose loss would change the answer."""
    document = request.document
    _refuse_what_matters(document)
    turns = MessageTurns()
    for index, message in enumerate(document["messages"]):
        turns.add(message, f"messages[{index}]")
    found: dict[str, Any] = {
        "model": model,
        "max_tokens": _max_tokens(document),
        "messages": turns.turns,
    }
    if turns.system:
        found["system"] = turns.system
    found |= {name: document[name] for name in _SAME if document.get(name) is not None}
    found |= _tools(document)
    _add_others(found, document)
    known = {name for name in document if name in _TRANSLATED or name in _NO_EFFECT}
    found |= {name: value for name, value in document.items() if name not in known}
    _add_format(found, document)
    return encoded(found)


def _refuse_what_matters(document: dict[str, Any]) -> None:
    """Raise InvalidRequest for what would change the answer and has no form in the Messages API."""
    wrong = None
    if (document.get("n") or 1) > 1 or (document.get("best_of") or 1) > 1:
        wrong = "n" if (document.get("n") or 1) > 1 else "best_of"
    elif document.get("logprobs"):
        wrong = "logprobs"
    elif isinstance(modalities := document.get("modalities"), list) and "audio" in modalities:
        wrong = "modalities"
    else:
        names = ("presence_penalty", "frequency_penalty", "logit_bias", "functions")
        wrong = next((name for name in names if document.get(name)), None)
        if wrong is None and (document.get("repetition_penalty") or 1) != 1:
            wrong = "repetition_penalty"
    if wrong is not None:
        message = f"{wrong}: Anthropic's API, which this model is served by, has nothing like it. Remove it."
        raise InvalidRequest(message, param=wrong, code="unsupported_parameter")


def _max_tokens(document: dict[str, Any]) -> int:
    limit = document.get("max_completion_tokens")
    limit = document.get("max_tokens") if limit is None else limit
    return DEFAULT_MAX_TOKENS if limit is None else limit


def _tools(document: dict[str, Any]) -> dict[str, Any]:
    tools = [_tool(tool, index) for index, tool in enumerate(document.get("tools") or ())]
    for stored in blocks_in(document.get(OWN_TOOLS)):
        index = stored.get("index")
        own = {name: value for name, value in stored.items() if name != "index"}
        tools.insert(index if type(index) is int else len(tools), own)
    if not tools:
        return {}
    found: dict[str, Any] = {"tools": tools}
    choice, is_parallel = document.get("tool_choice"), document.get("parallel_tool_calls")
    rule = _choice(choice)
    if is_parallel is not None and (rule or {}).get("type") != "none":
        rule = {**(rule or {"type": "auto"}), "disable_parallel_tool_use": not is_parallel}
    return found if rule is None else {**found, "tool_choice": rule}


def _tool(tool: dict[str, Any], index: int) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, dict):
        path = f"tools[{index}].type"
        message = f"{path}: Anthropic's API, which this model is served by, takes tools of type `function` only."
        raise InvalidRequest(message, param=path, code="unsupported_parameter")
    rest = {name: value for name, value in tool.items() if name not in _FUNCTION}
    found = {**rest, "name": function.get("name"), "input_schema": function.get("parameters") or _NO_SCHEMA}
    return found | {name: function[name] for name in ("description", "strict") if function.get(name) is not None}


def _choice(choice: Any) -> dict[str, Any] | None:
    if isinstance(choice, str):
        return {"type": _CHOICES[choice]} if choice in _CHOICES else None
    if not isinstance(choice, dict):
        return None
    if choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools")
        return _choice(allowed.get("mode") if isinstance(allowed, dict) else None)
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return None if name is None else {"type": "tool", "name": name}


def _add_others(found: dict[str, Any], document: dict[str, Any]) -> None:
    stop, user, tier = document.get("stop"), document.get("user"), document.get("service_tier")
    if stop:
        found["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if user:
        found["metadata"] = {"user_id": user}
    if tier in _TIERS:
        found["service_tier"] = _TIERS[tier]


def _add_format(found: dict[str, Any], document: dict[str, Any]) -> None:
    """Add the form of the answer, unless the request has it in Anthropic's words."""
    stated = document.get("response_format")
    if not isinstance(stated, dict):
        return
    kind = stated.get("type")
    if kind in (None, "text") or "output_format" in document:
        return
    setting = document.get("output_config")
    setting = setting if isinstance(setting, dict) else {}
    if setting.get("format"):
        return
    inner = stated.get("json_schema") if kind == "json_schema" else None
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if schema is None:
        path = "response_format.type"
        message = f"{path}: Anthropic's API, which this model is served by, takes `json_schema` with a schema only."
        raise InvalidRequest(message, param=path, code="unsupported_parameter")
    found["output_config"] = {**setting, "format": {"type": "json_schema", "schema": schema}}
