"""Reader of a checkpoint, safetensors or GGUF, in one file or many, that accounts for every tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from engine.config import EngineConfigError
from engine.huge_pages import release_pages
from engine.models.config.config import read_json_object
from engine.models.config.config_reader import ModelConfigError
from engine.models.config.text_part import own_name, text_name
from engine.models.gguf.blocks import BlockValues, Mxfp4Values
from engine.models.gguf.folder import is_prepared
from engine.models.gguf.number_file import mapped_numbers
from engine.models.gguf.tensors import GgufTensors

_SINGLE_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 32 << 20
"""Largest header of a safetensors file that is read; 100,000 tensors take about 13 MB."""
_MAX_NAMES_SHOWN = 5
_MAX_NAME_SHOWN = 128
"""Maximum length of a name in a message, in characters."""
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Dtypes of codes that need a scale."""
_PACKED = "is packed, which is read of projections only; leave it out of the quantization"
# Old exporters saved this table, which follows from config.json.
_DERIVED = re.compile(r"rotary_emb\.inv_freq$")


class CheckpointError(EngineConfigError):
    """Missing, surplus, broken or misshapen weights in a checkpoint; the message names them."""


class TensorSource(Protocol):
    """Tensors of one format in the files of a model folder."""

    def names(self) -> Iterable[tuple[str, str]]:
        """Return the name of each tensor with the name of its file."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        ...

    def read(self, name: str) -> torch.Tensor:
        """Return a tensor, memory-mapped if it is stored as numbers."""
        ...

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Write a tensor to `out` of its shape, of any floating dtype and device."""
        ...

    def has_blocks(self, name: str) -> bool:
        """Return whether the tensor is a matrix in quantized blocks."""
        ...

    def blocks(self, name: str) -> BlockValues | Mxfp4Values | None:
        """Return the codes and scales of a matrix in quantized blocks; None for other tensors."""
        ...

    def drop_pages(self) -> None:
        """Release the memory of what was read of the files."""
        ...


def open_tensors(model_dir: Path) -> TensorSource:
    """Return the tensors of a model folder in the format that its files have.

    Raises:
        EngineConfigError: The folder has no weights, or a file is damaged.
    """
    files = sorted(model_dir.glob("*.gguf"))
    # Some repositories keep GGUF files beside the weights that their config.json describes.
    has_safetensors = any((model_dir / name).is_file() for name in (_INDEX_FILE, _SINGLE_FILE))
    return GgufTensors(files) if files and not has_safetensors else SafetensorsFiles(model_dir)


class SafetensorsFiles:
    """Memory-mapped tensors of the safetensors files of a folder."""

    def __init__(self, model_dir: Path) -> None:
        """Open the files. Raises CheckpointError."""
        self._files: dict[str, Any] = {name: _open(path) for name, path in _find_files(model_dir).items()}
        self._owners: dict[str, Any] = {}

    def names(self) -> Iterable[tuple[str, str]]:
        """Return the name of each tensor with the name of its file."""
        for file_name, file in self._files.items():
            for name in file.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                self._owners[name] = file
                yield name, file_name

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor; only the file's header is read."""
        return tuple(self._owners[name].get_slice(name).get_shape())

    def read(self, name: str) -> torch.Tensor:
        """Return a memory-mapped tensor."""
        tensor: torch.Tensor = self._owners[name].get_tensor(name)
        return tensor

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Write a tensor to `out`."""
        out.copy_(self.read(name))

    def has_blocks(self, name: str) -> bool:
        """Return False: the format has no quantized blocks."""
        return False

    def blocks(self, name: str) -> BlockValues | Mxfp4Values | None:
        """Return None: the format has no quantized blocks."""
        return None

    def drop_pages(self) -> None:
        """Release the memory of what was read; tensors stay mapped and are read again where needed."""
        for name, file in self._owners.items():
            release_pages(file.get_tensor(name))


class Checkpoint:
    """Tensors of one model folder; each is taken once."""

    def __init__(self, model_dir: Path, *, is_multimodal: bool = False) -> None:
        """Open the checkpoint of a folder.

        Args:
            model_dir: Folder of the checkpoint.
            is_multimodal: True to find the text part's tensors under the names they have without the other parts.

        Raises:
            EngineConfigError: The folder has no weights, or a file is damaged.
        """
        self._model_dir = model_dir
        self._source = open_tensors(model_dir)
        self._remaining: dict[str, str] = {}
        self._saved_names: dict[str, str] = {}
        self.num_ignored = 0
        """Number of tensors of other parts than the text."""
        for saved_name, file_name in self._source.names():
            name = text_name(saved_name) if is_multimodal else own_name(saved_name)
            if name is None:
                self.num_ignored += 1
                continue
            if name in self._remaining:
                raise CheckpointError(f"{model_dir}: {name} is in both {self._remaining[name]} and {file_name}")
            self._remaining[name] = file_name
            self._saved_names[name] = saved_name

    def has(self, name: str) -> bool:
        """Return whether a tensor of this name exists and is not taken yet."""
        return name in self._remaining

    def first_with(self, prefix: str) -> str | None:
        """Return the alphabetically first name with this prefix that is not taken yet."""
        return min((name for name in self._remaining if name.startswith(prefix)), default=None)

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Take a floating-point tensor.

        Returns:
            The memory-mapped tensor; the caller copies what it keeps.

        Raises:
            CheckpointError: The tensor is missing, misshapen or not floating-point.
        """
        tensor = self._take(name, shape)
        if tensor.dtype in _FLOAT8:
            raise self._error(name, _PACKED)
        if not tensor.is_floating_point():
            raise self._error(name, f"expected floating-point numbers, got {tensor.dtype}")
        return tensor

    def take_integers(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Take a tensor of integers, such as packed codes.

        Raises:
            CheckpointError: The tensor is missing, misshapen or of another dtype.
        """
        tensor = self._take(name, shape)
        if tensor.dtype != dtype:
            expected = str(dtype).removeprefix("torch.")
            raise self._error(name, f"expected {expected} numbers, got {tensor.dtype}")
        return tensor

    def take_into(self, name: str, out: torch.Tensor) -> None:
        """Take a matrix in quantized blocks as numbers straight into `out`.

        Raises:
            CheckpointError: The tensor is missing or misshapen.
        """
        self.require(name, tuple(out.shape))
        del self._remaining[name]
        self._source.read_into(self._saved_names[name], out)

    def mapped(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """Return a matrix in quantized blocks as numbers that are mapped from a file beside the model; take nothing.

        Returns:
            The numbers, only to be read; None for a folder that may change its weights or cannot be written.

        Raises:
            CheckpointError: The tensor is missing or misshapen.
        """
        self.require(name, shape)
        if not is_prepared(self._model_dir):
            return None
        saved_name = self._saved_names[name]
        path = self._model_dir / f"{saved_name}.{str(dtype).removeprefix('torch.')}"
        return mapped_numbers(path, shape, dtype, lambda out: self._source.read_into(saved_name, out))

    def has_blocks(self, name: str) -> bool:
        """Return whether a tensor that is not taken yet is a matrix in quantized blocks."""
        return name in self._remaining and self._source.has_blocks(self._saved_names[name])

    def take_blocks(self, name: str, shape: tuple[int, ...]) -> BlockValues | Mxfp4Values:
        """Take the codes and scales of a matrix in quantized blocks.

        Raises:
            CheckpointError: The tensor is missing, misshapen or not quantized.
        """
        self.require(name, shape)
        found = self._source.blocks(self._saved_names[name])
        if found is None:
            raise self._error(name, "expected quantized blocks, got plain numbers")
        del self._remaining[name]
        return found

    def require(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise CheckpointError unless the tensor exists with this shape; only the file's header is read."""
        found = self.shape(name)
        if found != shape:
            raise self._error(name, f"expected shape {list(shape)}, got {list(found)}")

    def is_zero(self, name: str) -> bool:
        """Return whether an existing tensor holds only zeros; the tensor is not taken."""
        return not self._read(name).any()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor from the file's header. Raises CheckpointError if it is missing."""
        if name not in self._remaining:
            raise self._missing(name)
        return self._source.shape(self._saved_names[name])

    def dtype(self, name: str) -> torch.dtype:
        """Return the dtype of an existing tensor, which is mapped but not read."""
        return self._read(name).dtype

    def discard(self, name: str) -> None:
        """Leave a tensor unused on purpose; a missing one is ignored."""
        self._remaining.pop(name, None)

    def drop_pages(self) -> None:
        """Release the memory of what was read of the files; tensors stay mapped and are read again where needed."""
        self._source.drop_pages()

    def check_all_taken(self) -> None:
        """Raise CheckpointError with the names of tensors that the model does not use."""
        names = sorted(name for name in self._remaining if not _DERIVED.search(name))
        if names:
            more = f" and {len(names) - _MAX_NAMES_SHOWN} more" if len(names) > _MAX_NAMES_SHOWN else ""
            raise CheckpointError(f"{self._model_dir}: unexpected tensors: {', '.join(names[:_MAX_NAMES_SHOWN])}{more}")

    def _take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        # The shape comes first: it bounds what a damaged checkpoint makes the source allocate.
        self.require(name, shape)
        tensor = self._read(name)
        del self._remaining[name]
        return tensor

    def _read(self, name: str) -> torch.Tensor:
        return self._source.read(self._saved_names[name])

    def _missing(self, name: str) -> CheckpointError:
        prefix = name.removesuffix(".weight")
        if self.has(f"{prefix}.qweight") or self.has(f"{prefix}.weight_packed"):
            return self._error(name, _PACKED)
        return CheckpointError(f"{self._model_dir}: missing tensor {name}")

    def _error(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._model_dir}: {name}: {problem}")


def _find_files(model_dir: Path) -> dict[str, Path]:
    if (model_dir / _INDEX_FILE).is_file():
        return {name: model_dir / name for name in _shards(model_dir / _INDEX_FILE)}
    if (model_dir / _SINGLE_FILE).is_file():
        return {_SINGLE_FILE: model_dir / _SINGLE_FILE}
    raise CheckpointError(f"{model_dir}: has neither {_SINGLE_FILE} nor {_INDEX_FILE}; other formats are not read")


def _shards(index: Path) -> list[str]:
    try:
        weight_map = read_json_object(index).get("weight_map")
    except ModelConfigError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise CheckpointError(f"{index}: weight_map: expected an object of tensor names to file names")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        # The index comes with the download: it must not point outside its own directory.
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index}: weight_map: {name!r} is not the name of a safetensors file beside it")
        if not _is_there(index.parent / name):
            raise CheckpointError(f"{index}: names {name[:_MAX_NAME_SHOWN]}, which is not there")
    return names


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _open(path: Path) -> safe_open:
    try:
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if _MAX_HEADER_BYTES < header_bytes < path.stat().st_size:
            raise CheckpointError(f"{path}: has a header of {header_bytes} bytes; at most {_MAX_HEADER_BYTES} are read")
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: is not a readable safetensors file: {error}") from error
