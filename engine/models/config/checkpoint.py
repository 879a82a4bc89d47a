"""Reader of a safetensors checkpoint, in one file or many, that accounts for every tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.config import EngineConfigError
from engine.huge_pages import drop_file_pages
from engine.models.config.config import read_json_object
from engine.models.config.config_reader import ModelConfigError

_SINGLE_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"
_MAX_NAMES_SHOWN = 5
_MAX_NAME_SHOWN = 128
"""Maximum length of a name in a message, in characters."""
# Old exporters saved this table, which follows from config.json.
_DERIVED = re.compile(r"rotary_emb\.inv_freq$")


class CheckpointError(EngineConfigError):
    """Missing, surplus, broken or misshapen weights in a checkpoint; the message names them."""


class Checkpoint:
    """Memory-mapped tensors of one model folder; each is taken once."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir
        self._files: dict[str, Any] = {name: _open(path) for name, path in _find_files(model_dir).items()}
        self._remaining: dict[str, str] = {}
        for file_name, file in self._files.items():
            for tensor_name in file.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                if tensor_name in self._remaining:
                    raise CheckpointError(
                        f"{model_dir}: {tensor_name} is in both {self._remaining[tensor_name]} and {file_name}"
                    )
                self._remaining[tensor_name] = file_name

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
        if not tensor.is_floating_point():
            raise self._error(name, f"expected floating-point numbers, got {tensor.dtype}")
        return tensor

    def take_integers(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Take an int32 tensor, such as packed codes.

        Raises:
            CheckpointError: The tensor is missing, misshapen or not int32.
        """
        tensor = self._take(name, shape)
        if tensor.dtype != torch.int32:
            raise self._error(name, f"expected int32 numbers, got {tensor.dtype}")
        return tensor

    def require(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise CheckpointError unless the tensor exists with this shape; only the file's header is read."""
        file_name = self._remaining.get(name)
        if file_name is None:
            raise CheckpointError(f"{self._model_dir}: missing tensor {name}")
        found = tuple(self._files[file_name].get_slice(name).get_shape())
        if found != shape:
            raise self._error(name, f"expected shape {list(shape)}, got {list(found)}")

    def is_zero(self, name: str) -> bool:
        """Return whether an existing tensor holds only zeros; the tensor is not taken."""
        return not self._files[self._remaining[name]].get_tensor(name).any()

    def discard(self, name: str) -> None:
        """Leave a tensor unused on purpose; a missing one is ignored."""
        self._remaining.pop(name, None)

    def drop_pages(self) -> None:
        """Release the memory of what was read of the files; tensors stay mapped and are read again where needed."""
        for file in self._files.values():
            for name in file.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                drop_file_pages(file.get_tensor(name))

    def check_all_taken(self) -> None:
        """Raise CheckpointError with the names of tensors that the model does not use."""
        names = sorted(name for name in self._remaining if not _DERIVED.search(name))
        if names:
            more = f" and {len(names) - _MAX_NAMES_SHOWN} more" if len(names) > _MAX_NAMES_SHOWN else ""
            raise CheckpointError(f"{self._model_dir}: unexpected tensors: {', '.join(names[:_MAX_NAMES_SHOWN])}{more}")

    def _take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        file_name = self._remaining.get(name)
        if file_name is None:
            if self.has(f"{name.removesuffix('.weight')}.qweight"):
                raise self._error(
                    name, "is packed, which is read of projections only; leave it out of the quantization"
                )
            raise CheckpointError(f"{self._model_dir}: missing tensor {name}")
        tensor: torch.Tensor = self._files[file_name].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise self._error(name, f"expected shape {list(shape)}, got {list(tensor.shape)}")
        del self._remaining[name]
        return tensor

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
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: is not a readable safetensors file: {error}") from error
