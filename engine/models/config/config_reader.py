"""Typed reader of a JSON object whose errors name the file and the key."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.config import EngineConfigError

MAX_SIZE = 2**31 - 1
"""Largest count of anything in a model, because kernels index with 32 bits."""
MAX_LAYERS = 4096
"""Maximum number of layers; bounds the per-layer lists that are built before the first tensor is read."""


class ModelConfigError(EngineConfigError):
    """A missing, wrong or unsupported value in a checkpoint's configuration; the message names file and key."""


class ConfigReader:
    """Reader of one JSON object; a null value counts as absent, as in Hugging Face configs."""

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.path = path
        self._values = values
        self._prefix = prefix

    def error(self, key: str, problem: str) -> ModelConfigError:
        """Return an error about one key, for the caller to raise."""
        return ModelConfigError(f"{self.path}: {self._prefix}{key}: {problem}")

    def has(self, key: str) -> bool:
        """Return whether the key exists and is not null."""
        return self._values.get(key) is not None

    def is_null(self, key: str) -> bool:
        """Return whether the key exists and is null."""
        return key in self._values and self._values[key] is None

    def is_empty(self) -> bool:
        """Return whether the object has no keys but null ones."""
        return all(value is None for value in self._values.values())

    def keys(self) -> tuple[str, ...]:
        """Return the keys of the object in their order."""
        return tuple(self._values)

    def child(self, key: str) -> ConfigReader | None:
        """Return a reader of the object under a key, or None if it is absent.

        Raises:
            ModelConfigError: The value is not an object.
        """
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong_type(key, "an object", value)
        return ConfigReader(self.path, value, f"{self._prefix}{key}.")

    def positive_integer(self, key: str, *, default: int | None = None, at_most: int = MAX_SIZE) -> int:
        """Return an integer from 1 to `at_most`. Raises ModelConfigError."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong_type(key, "a positive integer", value)
        if value > at_most:
            raise self._wrong_type(key, f"at most {at_most}", value)
        return value

    def num_layers(self) -> int:
        """Return the number of layers. Raises ModelConfigError."""
        return self.positive_integer("num_hidden_layers", at_most=MAX_LAYERS)

    def integer(self, key: str, *, default: int | None = None) -> int:
        """Return an integer. Raises ModelConfigError."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong_type(key, "an integer", value)
        return value

    def count(self, key: str, *, default: int | None = None) -> int:
        """Return an integer of 0 or more. Raises ModelConfigError."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong_type(key, "an integer, 0 or more", value)
        return value

    def positive_number(self, key: str, *, default: float | None = None) -> float:
        """Return a finite number above 0. Raises ModelConfigError."""
        value = self._get(key, default)
        if not _is_positive(value):
            raise self._wrong_type(key, "a number above 0", value)
        return float(value)

    def positive_numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of finite numbers above 0. Raises ModelConfigError."""
        value = self._get(key, None)
        if not isinstance(value, list) or not all(_is_positive(item) for item in value):
            raise self._wrong_type(key, "a list of numbers above 0", value)
        return tuple(map(float, value))

    def boolean(self, key: str, *, default: bool | None = None) -> bool:
        """Return true or false. Raises ModelConfigError."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong_type(key, "true or false", value)
        return value

    def string(self, key: str, *, default: str | None = None) -> str:
        """Return a string. Raises ModelConfigError."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong_type(key, "a string", value)
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """Return a list of strings, empty when absent. Raises ModelConfigError."""
        value = self._get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong_type(key, "a list of strings", value)
        return tuple(value)

    def counts(self, key: str) -> tuple[int, ...]:
        """Return a list of integers of 0 or more, empty when absent. Raises ModelConfigError."""
        value = self._get(key, [])
        if not isinstance(value, list) or not all(_is_count(item) for item in value):
            raise self._wrong_type(key, "a list of integers, 0 or more", value)
        return tuple(value)

    def token_ids(self, key: str) -> tuple[int, ...]:
        """Return one token id or a list of them, empty when absent. Raises ModelConfigError."""
        value = self._get(key, [])
        ids = value if isinstance(value, list) else [value]
        if not all(_is_count(item) for item in ids):
            raise self._wrong_type(key, "a token id or a list of them", value)
        return tuple(ids)

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is None:
            raise self.error(key, "is required")
        return default

    def _wrong_type(self, key: str, expected: str, value: object) -> ModelConfigError:
        shown = repr(value)
        return self.error(key, f"expected {expected}, got {shown if len(shown) <= 80 else shown[:77] + '...'}")


def _is_positive(value: object) -> bool:
    # An integer too large for a float is rejected too.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
