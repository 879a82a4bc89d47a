"""Tensors of GGUF files under their Hugging Face names, read from the memory-mapped files on demand."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from engine.huge_pages import release_pages
from engine.models.gguf.block_types import BlockType
from engine.models.gguf.blocks import BlockValues, Mxfp4Values, block_values, mxfp4_values, write_numbers
from engine.models.gguf.parts import GgufModel
from engine.models.gguf.tensor_names import name_tensors


class GgufTensors:
    """Source of a model's tensors in GGUF files."""

    def __init__(self, paths: list[Path]) -> None:
        """Open the parts of one model.

        Raises:
            GgufError: A file is damaged or of an unsupported architecture.
        """
        self._model = GgufModel(paths)
        self._slices = name_tensors(self._model)
        self._places = self._model.tensors

    def names(self) -> Iterator[tuple[str, str]]:
        """Return the name of each tensor with the name of its file."""
        return ((name, self._model.path.name) for name in self._slices)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self._slices[name].shape

    def read(self, name: str) -> torch.Tensor:
        """Return the numbers of a tensor; quantized ones as float32."""
        kind = self._kind(name)
        dtype = {"F16": torch.float16, "BF16": torch.bfloat16}.get(kind.name, torch.float32)
        numbers = torch.empty(self._slices[name].shape, dtype=dtype)
        self.read_into(name, numbers)
        return numbers

    def read_into(self, name: str, out: torch.Tensor) -> None:
        """Write the numbers of a tensor to `out` of its shape, of any floating dtype and device."""
        found = self._slices[name]
        write_numbers(self._rows(name), self._kind(name), out.view(-1, out.shape[-1]))
        if found.offset:
            out.sub_(found.offset)
        if found.is_rate:
            out.neg_().log_()

    def blocks(self, name: str) -> BlockValues | Mxfp4Values | None:
        """Return the codes and scales of a quantized matrix; None for other tensors."""
        if not self.has_blocks(name):
            return None
        if self._kind(name).name == "MXFP4":
            return mxfp4_values(self._rows(name))
        return block_values(self._rows(name), self._kind(name))

    def has_blocks(self, name: str) -> bool:
        """Return whether a tensor is a quantized matrix."""
        found = self._slices[name]
        return self._kind(name).is_quantized and len(found.shape) == 2 and not found.offset

    def drop_pages(self) -> None:
        """Release the memory of what was read; tensors stay mapped and are read again where needed."""
        for source in self._places:
            release_pages(self._raw(source))

    def _kind(self, name: str) -> BlockType:
        return self._places[self._slices[name].source].type

    def _rows(self, name: str) -> torch.Tensor:
        """Return the bytes of a tensor's rows in Hugging Face order, uint8 [rows, bytes of a row]."""
        found = self._slices[name]
        place, raw = self._places[found.source], self._raw(found.source)
        row_bytes = place.shape[-1] // place.type.num_numbers * place.type.num_bytes
        num_rows = 1
        for length in found.shape[:-1]:
            num_rows *= length
        rows = raw.view(-1, row_bytes)[found.first_row : found.first_row + num_rows]
        if not found.num_permuted_heads:
            return rows
        if len(found.shape) == 1:
            return _unpermuted(rows.view(-1, place.type.num_bytes), found.num_permuted_heads).view(1, -1)
        return _unpermuted(rows, found.num_permuted_heads)

    def _raw(self, source: str) -> torch.Tensor:
        """Return the bytes of a tensor of the files."""
        with warnings.catch_warnings():
            # torch warns that writing to the file's read-only pages would fail; nothing writes to them.
            warnings.filterwarnings("ignore", "The given buffer is not writable", UserWarning)
            return torch.frombuffer(self._model.data(source), dtype=torch.uint8)


def _unpermuted(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Return rows with the two halves of each head one after the other: 0 3 1 4 2 5 → 0 1 2 3 4 5."""
    pairs = rows.view(num_heads, -1, 2, rows.shape[1])
    return pairs.transpose(1, 2).reshape(-1, rows.shape[1])
