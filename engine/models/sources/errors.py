"""ModelSourceError: why a model cannot be had."""

from __future__ import annotations

from engine.config import EngineConfigError


class ModelSourceError(EngineConfigError):
    """A model that cannot be found, downloaded or removed; the message has the cause and the remedy."""
