"""Container of a GGUF file: header, metadata and places of the tensors, checked against the size of the file.

A file consists of a header (magic, version, counts), key-value pairs, tensor descriptions, and the aligned data of the
tensors. Every count and length is checked before it is used, so that a damaged file costs neither time nor memory.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.config import EngineConfigError
from engine.models.gguf.block_types import BLOCK_TYPES, OTHER_TYPES, BlockType

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_KEY_ALIGNMENT = "general.alignment"
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
_MAX_HEADER_BYTES = 64 << 20
"""Largest sum of metadata and tensor descriptions; the largest published vocabularies take about 15 MB."""
_MAX_KEYS = 1 << 14
_MAX_TENSORS = 1 << 17
_MAX_ARRAY_ITEMS = 1 << 21
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 512
_MAX_NUMBERS = 1 << 42
"""Largest number of weights of one tensor."""
_MAX_SHOWN = 80
"""Maximum length of a name in a message, in characters."""

_STRING = 8
_ARRAY = 9
_SCALARS: Final[Mapping[int, struct.Struct]] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
"""Layouts of metadata numbers by their type in the file."""
_LENGTH = struct.Struct("<Q")
_KIND = struct.Struct("<I")


class GgufError(EngineConfigError):
    """A GGUF file that is damaged or not supported; the message names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class GgufArray:
    """Place of an array of the metadata, which is read on demand."""

    item_type: int
    num_items: int
    start: int
    """First byte of the first item in the file."""


Value = int | float | bool | str | GgufArray


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlace:
    """Description of one tensor and the place of its bytes."""

    shape: tuple[int, ...]
    """Rows first; the last number counts the weights of a row."""
    type: BlockType
    start: int
    num_bytes: int


class GgufFile:
    """Memory-mapped GGUF file with a checked header."""

    def __init__(self, path: Path) -> None:
        """Map the file and check its header.

        Raises:
            GgufError: The file cannot be read, is damaged or has an unsupported form.
        """
        self.path = path
        self.data = _map(path)
        header = _Header(path, self.data)
        self.metadata: Mapping[str, Value] = header.metadata
        self.tensors: Mapping[str, TensorPlace] = header.tensors

    def strings(self, key: str) -> list[str]:
        """Return an array of strings of the metadata.

        Raises:
            GgufError: The key is missing or holds something else.
        """
        array = self._array(key)
        if array.item_type != _STRING:
            raise GgufError(f"{self.path}: {key}: expected an array of strings")
        found, position = [], array.start
        try:
            for _ in range(array.num_items):
                (length,) = _LENGTH.unpack_from(self.data, position)
                position += _LENGTH.size
                found.append(self.data[position : position + length].decode())
                position += length
        except UnicodeDecodeError as error:
            raise GgufError(f"{self.path}: {key}[{len(found)}]: is not valid UTF-8") from error
        return found

    def numbers(self, key: str) -> list[float]:
        """Return an array of numbers of the metadata.

        Raises:
            GgufError: The key is missing or holds something else.
        """
        array = self._array(key)
        if array.item_type not in _SCALARS:
            raise GgufError(f"{self.path}: {key}: expected an array of numbers")
        layout = _SCALARS[array.item_type]
        return list(struct.unpack_from(f"<{array.num_items}{layout.format[1:]}", self.data, array.start))

    def _array(self, key: str) -> GgufArray:
        value = self.metadata.get(key)
        if not isinstance(value, GgufArray):
            raise GgufError(f"{self.path}: {key}: " + ("is missing" if value is None else "expected an array"))
        return value


class _Header:
    """Reader of everything before the data, at a position that never passes the end of the header."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._limit = min(len(data), _MAX_HEADER_BYTES)
        self._position = 0
        num_tensors, num_keys = self._counts()
        self.metadata: dict[str, Value] = {}
        for _ in range(num_keys):
            self._read_pair()
        self.tensors = self._checked_places([self._read_tensor() for _ in range(num_tensors)])

    def _counts(self) -> tuple[int, int]:
        if self._take(len(_MAGIC)) != _MAGIC:
            raise self._error("is not a GGUF file")
        version = self._number(_KIND)
        if version not in _VERSIONS:
            is_swapped = version & 0xFFFF == 0
            raise self._error("has big-endian numbers" if is_swapped else f"has version {version}; expected 2 or 3")
        num_tensors, num_keys = self._number(_LENGTH), self._number(_LENGTH)
        for kind, count, most in (("tensors", num_tensors, _MAX_TENSORS), ("keys", num_keys, _MAX_KEYS)):
            if count > most:
                raise self._error(f"claims {count} {kind}; at most {most} are read")
        return num_tensors, num_keys

    def _read_pair(self) -> None:
        key = self._string("a key", _MAX_NAME_BYTES)
        if key in self.metadata:
            raise self._error(f"{_shown(key)}: is there twice")
        self.metadata[key] = self._value(key, self._number(_KIND))

    def _value(self, key: str, kind: int) -> Value:
        if kind in _SCALARS:
            value: int | float | bool = _SCALARS[kind].unpack(self._take(_SCALARS[kind].size))[0]
            return value
        if kind == _STRING:
            return self._string(key, self._limit)
        if kind != _ARRAY:
            raise self._error(f"{_shown(key)}: has a value of the unknown type {kind}")
        item_type, num_items = self._number(_KIND), self._number(_LENGTH)
        if num_items > _MAX_ARRAY_ITEMS:
            raise self._error(f"{_shown(key)}: claims {num_items} items; at most {_MAX_ARRAY_ITEMS} are read")
        array = GgufArray(item_type, num_items, self._position)
        if item_type in _SCALARS:
            self._skip(num_items * _SCALARS[item_type].size)
        elif item_type == _STRING:
            self._skip_strings(num_items)
        else:
            raise self._error(f"{_shown(key)}: is an array of the unsupported type {item_type}")
        return array

    def _read_tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Return name, shape with rows first, type and offset in the data."""
        name = self._string("a tensor's name", _MAX_NAME_BYTES)
        num_dimensions = self._number(_KIND)
        if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
            raise self._error(f"{_shown(name)}: has {num_dimensions} dimensions; expected 1 to {_MAX_DIMENSIONS}")
        shape = tuple(self._number(_LENGTH) for _ in range(num_dimensions))[::-1]
        return name, shape, self._number(_KIND), self._number(_LENGTH)

    def _checked_places(self, tensors: list[tuple[str, tuple[int, ...], int, int]]) -> dict[str, TensorPlace]:
        alignment = self._alignment()
        data_start = -(-self._position // alignment) * alignment
        places: dict[str, TensorPlace] = {}
        for name, shape, kind, offset in tensors:
            if name in places:
                raise self._error(f"{_shown(name)}: is there twice")
            if offset % alignment:
                raise self._error(f"{_shown(name)}: starts at {offset}, which is not a multiple of {alignment}")
            places[name] = self._place(name, shape, kind, data_start + offset)
        self._check_overlaps(places)
        return places

    def _place(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> TensorPlace:
        found = BLOCK_TYPES.get(kind)
        if found is None:
            known = ", ".join(known.name for known in BLOCK_TYPES.values())
            raise self._error(
                f"{_shown(name)}: has the type {OTHER_TYPES.get(kind, kind)}, which is not read; expected {known}"
            )
        num_numbers = 1
        for length in shape:
            num_numbers *= length
        if not 1 <= num_numbers <= _MAX_NUMBERS:
            raise self._error(f"{_shown(name)}: has the impossible shape {list(shape)}")
        if shape[-1] % found.num_numbers:
            raise self._error(
                f"{_shown(name)}: rows of {shape[-1]} numbers are no whole blocks of {found.name} ({found.num_numbers})"
            )
        num_bytes = num_numbers // found.num_numbers * found.num_bytes
        if start + num_bytes > len(self._data):
            raise self._error(
                f"{_shown(name)}: ends at byte {start + num_bytes} of a file of {len(self._data)} bytes; "
                "the file is truncated or damaged"
            )
        return TensorPlace(shape=shape, type=found, start=start, num_bytes=num_bytes)

    def _check_overlaps(self, places: Mapping[str, TensorPlace]) -> None:
        end, last = 0, ""
        for name, place in sorted(places.items(), key=lambda item: item[1].start):
            if place.start < end:
                raise self._error(f"{_shown(name)}: overlaps {_shown(last)}")
            end, last = place.start + place.num_bytes, name

    def _alignment(self) -> int:
        value = self.metadata.get(_KEY_ALIGNMENT, _DEFAULT_ALIGNMENT)
        is_valid = type(value) is int and 1 <= value <= _MAX_ALIGNMENT and not value & (value - 1)
        if not is_valid:
            raise self._error(f"{_KEY_ALIGNMENT}: expected a power of two, got {value}")
        assert isinstance(value, int)
        return value

    def _string(self, owner: str, max_bytes: int) -> str:
        length = self._number(_LENGTH)
        if length > max_bytes:
            raise self._error(f"{_shown(owner)}: claims {length} bytes; at most {max_bytes} are read")
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise self._error(f"{_shown(owner)}: is not valid UTF-8") from error

    def _skip_strings(self, count: int) -> None:
        data, position, limit = self._data, self._position, self._limit - _LENGTH.size
        for _ in range(count):
            if position > limit:
                raise self._overrun()
            position += _LENGTH.size + _LENGTH.unpack_from(data, position)[0]
        self._position = position
        self._skip(0)

    def _number(self, layout: struct.Struct) -> int:
        number: int = layout.unpack(self._take(layout.size))[0]
        return number

    def _take(self, num_bytes: int) -> bytes:
        start = self._position
        self._skip(num_bytes)
        return self._data[start : self._position]

    def _skip(self, num_bytes: int) -> None:
        if self._position + num_bytes > self._limit:
            raise self._overrun()
        self._position += num_bytes

    def _overrun(self) -> GgufError:
        if self._limit == _MAX_HEADER_BYTES:
            return self._error(f"has metadata of more than {_MAX_HEADER_BYTES >> 20} MiB")
        return self._error("is truncated: its header ends in the middle")

    def _error(self, problem: str) -> GgufError:
        return GgufError(f"{self._path}: {problem}")


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise GgufError(f"{path}: is empty") from error
    except OSError as error:
        raise GgufError(f"{path}: cannot be read: {error.strerror or error}") from error


def _shown(name: str) -> str:
    return name if len(name) <= _MAX_SHOWN else name[: _MAX_SHOWN - 3] + "..."
