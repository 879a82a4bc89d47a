"""Names of the model in requests: its own, or its own and an adapter's with a colon between."""

from __future__ import annotations

from engine.config import FrontConfig
from engine.frontend.request.errors import ApiError


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
