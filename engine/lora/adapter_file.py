"""Weights of an adapter: `adapter_model.safetensors`, checked against the model's shape before anything is read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from engine.lora.adapter_config import CONFIG_FILE, AdapterConfig, AdapterError, read_adapter_config
from engine.lora.projections import AdaptedModule, AdaptedProjection, adapted_projections
from engine.models.config.config import ModelConfig

WEIGHTS_FILE: Final = "adapter_model.safetensors"
_NAME: Final = re.compile(r"base_model\.model\.model\.layers\.(\d{1,6})\.([\w.]{1,100})\.lora_(A|B)\.weight")
_DTYPES: Final = ("F32", "BF16", "F16")
_MAX_SHOWN: Final = 128
_DIGEST_CHARS: Final = 16
"""Characters of a digest: enough to tell two adapters apart."""

_Tensors = Mapping[tuple[int, str, str], str]
"""Names in the file by layer, module and matrix ("A" or "B")."""


@dataclass(frozen=True, slots=True)
class LowRankWeights:
    """Weights of one module: its outputs gain up @ (down @ x)."""

    module: AdaptedModule
    down: torch.Tensor
    """float32 [rank, in]: matrix A."""
    up: torch.Tensor
    """float32 [size, rank]: matrix B times the scale, with outputs in the order of the model's weights."""


class AdapterFile:
    """Open file of an adapter whose names and shapes fit the model.

    Tensors are memory-mapped and converted one module at a time.
    """

    def __init__(self, folder: Path, model: ModelConfig, max_rank: int) -> None:
        """Open the adapter in a folder.

        Raises:
            AdapterError: The adapter is broken, does not fit the model, or needs what is not supported.
        """
        self.config = read_adapter_config(folder, max_rank)
        self._path = folder / WEIGHTS_FILE
        self._projections = [adapted_projections(model, layer) for layer in range(model.num_layers)]
        self._file = _open(self._path)
        self._tensors = self._found(model)
        for layer, projections in enumerate(self._projections):
            for projection in projections:
                for module in projection.modules:
                    self._check_module(layer, projection, module, self.config)

    def weights(self, layer: int, projection: AdaptedProjection) -> list[LowRankWeights]:
        """Read the weights of a projection's modules, without those that the adapter leaves as they are.

        Raises:
            AdapterError: A weight is not finite, alone or scaled, or the file has changed.
        """
        found: list[LowRankWeights] = []
        for module in projection.modules:
            if (layer, module.name, "A") not in self._tensors:
                continue
            up = self._read(layer, module, "B").mul_(self.config.scale)
            if not up.isfinite().all():
                name = self._tensors[layer, module.name, "B"]
                raise self._error(name, f"overflows with lora_alpha, whose scale is {self.config.scale:g}")
            if module.output_order is not None:
                up = up.index_select(0, module.output_order)
            found.append(LowRankWeights(module, self._read(layer, module, "A"), up))
        return found

    def digest(self) -> str:
        """Return a digest of the adapter's two files. Raises AdapterError if one cannot be read."""
        found = hashlib.sha256()
        for path in (self._path.with_name(CONFIG_FILE), self._path):
            try:
                with path.open("rb") as file:
                    found.update(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise AdapterError(f"{path}: cannot be read: {error}") from error
        return found.hexdigest()[:_DIGEST_CHARS]

    def _found(self, model: ModelConfig) -> _Tensors:
        """Return the file's tensors; all of them must belong to modules that adapters may change."""
        modules = [
            {module.name for projection in projections for module in projection.modules}
            for projections in self._projections
        ]
        found: dict[tuple[int, str, str], str] = {}
        for name in self._file.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
            match = _NAME.fullmatch(name)
            layer = -1 if match is None else int(match[1])
            if match is None or (layer < model.num_layers and match[2] not in modules[layer]):
                raise self._error(name, "adapters may change attention and dense MLP projections only")
            if layer >= model.num_layers:
                raise self._error(name, f"the model has {model.num_layers} layers; the adapter is for another model")
            found[layer, match[2], match[3]] = name
        if not found:
            raise AdapterError(f"{self._path}: has no tensors")
        layers = {layer for layer, _, _ in found}
        if self.config.covers_all_layers and len(layers) < model.num_layers:
            raise AdapterError(
                f"{self._path}: has weights for {len(layers)} layers of {model.num_layers}; "
                "the adapter is for another model, or the file is incomplete"
            )
        return found

    def _check_module(
        self, layer: int, projection: AdaptedProjection, module: AdaptedModule, config: AdapterConfig
    ) -> None:
        names = {matrix: self._tensors.get((layer, module.name, matrix)) for matrix in ("A", "B")}
        present = [name for name in names.values() if name is not None]
        if not present:
            return
        if len(present) == 1:
            raise self._error(present[0], "its counterpart is missing")
        shapes = {"A": [config.rank, projection.in_size], "B": [module.size, config.rank]}
        for matrix, name in names.items():
            part = self._file.get_slice(name)
            if part.get_dtype() not in _DTYPES:
                raise self._error(str(name), f"expected one of {', '.join(_DTYPES)}, got {part.get_dtype()}")
            if part.get_shape() != shapes[matrix]:
                raise self._error(
                    str(name),
                    f"expected shape {shapes[matrix]}, got {part.get_shape()}; is the adapter for another model?",
                )

    def _read(self, layer: int, module: AdaptedModule, matrix: str) -> torch.Tensor:
        name = self._tensors[layer, module.name, matrix]
        try:
            tensor: torch.Tensor = self._file.get_tensor(name).to(torch.float32, copy=True)
        except (SafetensorError, OSError) as error:
            raise self._error(name, f"cannot be read: {error}") from error
        if not tensor.isfinite().all():
            raise self._error(name, "has a number that is not finite")
        return tensor

    def _error(self, name: str, problem: str) -> AdapterError:
        return AdapterError(f"{self._path}: {name[:_MAX_SHOWN]}: {problem}")


def _open(path: Path) -> Any:
    if not path.is_file():
        raise AdapterError(f"{path}: no such file; adapters are read from safetensors only")
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise AdapterError(f"{path}: is not a readable safetensors file: {error}") from error
