"""Files of one model: a single GGUF file, or the numbered parts of a split one."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.models.gguf.container import GgufArray, GgufError, GgufFile, TensorPlace, Value

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAX_PARTS = 1024
_FLOAT = struct.Struct("<f")
_MAX_FLOAT = 3.4e38
"""Largest number that is rounded to float32, which ends a little above it."""


def find_parts(path: Path) -> list[Path]:
    """Return the files of the model that one of its files belongs to, in order.

    Raises:
        GgufError: The file or another part is missing.
    """
    if not path.is_file():
        raise GgufError(f"{path}: no such file")
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    if not 1 <= count <= _MAX_PARTS:
        raise GgufError(f"{path}: is one of {count} parts; at most {_MAX_PARTS} are read")
    parts = [path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise GgufError(f"{path}: {missing[0]} is missing beside it ({len(missing)} of {count} parts are)")
    return parts


def model_name(path: Path) -> str:
    """Return the file's name without ending and part number."""
    match = _PART.fullmatch(path.name)
    return path.stem if match is None else match["stem"]


class GgufModel:
    """All files of a model: the metadata of the first one and the tensors of all."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open the files of `find_parts`.

        Raises:
            GgufError: A file is damaged, or two parts hold the same tensor.
        """
        self.path = paths[0]
        self._files = [GgufFile(path) for path in paths]
        self._owners: dict[str, GgufFile] = {}
        for file in self._files:
            for name in file.tensors:
                if name in self._owners:
                    raise GgufError(f"{file.path}: {name} is in {self._owners[name].path.name} too")
                self._owners[name] = file
        self.tensors: Mapping[str, TensorPlace] = {name: file.tensors[name] for name, file in self._owners.items()}
        """Places of all tensors by their name."""
        if not self._owners:
            raise GgufError(f"{self.path}: holds no tensors")

    @property
    def metadata(self) -> Mapping[str, Value]:
        """Metadata of the model."""
        return self._files[0].metadata

    def data(self, name: str) -> memoryview:
        """Return the bytes of a tensor, which stay in the file."""
        place = self.tensors[name]
        return memoryview(self._owners[name].data)[place.start : place.start + place.num_bytes]

    def has(self, key: str) -> bool:
        """Return whether the metadata has a key."""
        return key in self.metadata

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an integer of the metadata, also one that all items of an array are equal to. Raises GgufError."""
        value = self._scalar(key, default)
        if type(value) is not int:
            raise self.error(key, f"expected an integer, got {_shown(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number of the metadata. Raises GgufError."""
        value = self._scalar(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"expected a number, got {_shown(value)}")
        return float(value)

    def decimal(self, key: str, default: float | None = None) -> float:
        """Return the decimal number with the fewest digits that has the same float32 as a number of the metadata.

        The file holds it in float32: 1e-5 must not become 9.999999747378752e-06.

        Raises:
            GgufError: The key is missing or holds something else.
        """
        number = self.number(key, default)
        if not abs(number) <= _MAX_FLOAT:
            return number  # also one that is no number
        shorter = (float(f"{number:.{digits}g}") for digits in range(6, 9))
        return next((found for found in shorter if _FLOAT.pack(found) == _FLOAT.pack(number)), number)

    def boolean(self, key: str, default: bool) -> bool:
        """Return a truth value of the metadata. Raises GgufError."""
        value = self.metadata.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"expected true or false, got {_shown(value)}")
        return value

    def string(self, key: str, default: str | None = None) -> str:
        """Return a string of the metadata. Raises GgufError."""
        value = self.metadata.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"expected a string, got {_shown(value)}")
        return value

    def strings(self, key: str) -> list[str]:
        """Return an array of strings of the metadata. Raises GgufError."""
        return self._files[0].strings(key)

    def numbers(self, key: str) -> list[float]:
        """Return an array of numbers of the metadata. Raises GgufError."""
        return self._files[0].numbers(key)

    def error(self, key: str, problem: str) -> GgufError:
        """Return an error about a key of the metadata, for the caller to raise."""
        return GgufError(f"{self.path}: {key}: {problem}")

    def _scalar(self, key: str, default: Any) -> Any:
        value = self.metadata.get(key, default)
        if not isinstance(value, GgufArray):
            return value
        found = set(self.numbers(key))
        if len(found) != 1:
            raise self.error(key, "values that differ between layers are not supported")
        return found.pop()


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."
