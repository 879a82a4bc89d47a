"""Models that this engine does not serve, and fields that it may not ignore because they would change the answer."""

from __future__ import annotations

from typing import Any, Final

from engine.config import FrontConfig
from engine.frontend.fields.faults import privileged_field, unserved_field, unserved_kind
from engine.frontend.fields.table import KNOWN_FIELDS, PRIVILEGED
from engine.frontend.request.errors import ApiError, unsupported

_UNSERVED: Final = frozenset(
    path for path, row in KNOWN_FIELDS.items() if row.engine == "refuses" and path.isidentifier()
)


def adapter_of(model: str, config: FrontConfig) -> str | None:
    """Return the adapter that a model name asks for; None for the base model.

    Raises:
        ApiError: The name is another model's (404).
    """
    if model == config.model_name:
        return None
    adapter = model.removeprefix(f"{config.model_name}:")
    if not adapter or adapter == model:
        raise ApiError(
            404,
            f"The model {model[:128]!r} does not exist here; this engine serves {config.model_name!r}.",
            param="model",
            code="model_not_found",
        )
    return adapter


def adapted_name(adapter: str, config: FrontConfig) -> str:
    """Return the model name that asks for an adapter."""
    return f"{config.model_name}:{adapter}"


def refuse_unserved(document: dict[str, Any]) -> None:
    """Refuse fields, tools and content parts that would change the answer and cannot be served.

    Args:
        document: Members of the body, without absent ones.

    Raises:
        ApiError: There is such a field; it is named with the reason (400).
    """
    for name in sorted(_UNSERVED & document.keys()):
        row = KNOWN_FIELDS[name]
        if document[name] not in row.served:
            raise unsupported(unserved_field(name, row))
    _refuse_other_types(document.get("tools"), "tools[{}].type", "function")
    messages = document.get("messages")
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict):
            continue
        place = f"messages[{number}]"
        if "audio" in message:
            raise unsupported(unserved_field(f"{place}.audio", KNOWN_FIELDS["messages[].audio"]))
        _refuse_other_types(message.get("content"), place + ".content[{}].type", "text")
        _refuse_other_types(message.get("tool_calls"), place + ".tool_calls[{}].type", "function")


def refuse_privileged(document: dict[str, Any]) -> None:
    """Raise ApiError (400) for a field that only the operator sets, whatever its value."""
    if found := PRIVILEGED & document.keys():
        raise unsupported(privileged_field(min(found)))


def _refuse_other_types(items: object, path: str, served: str) -> None:
    for number, item in enumerate(items if isinstance(items, list) else ()):
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(kind, str) and kind not in (served, ""):
            raise unsupported(unserved_kind(path.format(number), served, kind))
