"""Token embeddings: rows of a table that may be stored in another dtype than the model computes in."""

from __future__ import annotations

import torch

from engine.huge_pages import is_of_file, release_pages

_ROWS_BETWEEN_RELEASES = 64
"""Rows that are read before the pages of a table in a file are released: the system maps 64 KiB around each row."""


class TokenEmbedding:
    """Lookup of token embeddings, times a scale.

    A step reads a few rows, so a table that is mapped from a file takes hardly any memory.
    """

    def __init__(self, table: torch.Tensor, dtype: torch.dtype, scale: float | None = None) -> None:
        """Create the lookup.

        Args:
            table: [vocab, hidden] in any floating-point dtype; it is only read.
            dtype: Dtype of the model's computation.
            scale: Factor of the embeddings; None: 1.
        """
        self.table = table
        self.dtype = dtype
        # The scale is rounded to the model's dtype, as in the training of these models.
        self.scale = 1.0 if scale is None else torch.tensor(scale, dtype=dtype).item()
        self._is_of_file = is_of_file(table)
        self._num_rows = 0

    @property
    def device(self) -> torch.device:
        """Device of the table."""
        return self.table.device

    def into(self, token_ids: torch.Tensor, out: torch.Tensor) -> None:
        """Write the embeddings of token ids [T] to `out` [T, hidden]."""
        if self.table.dtype == out.dtype:
            torch.index_select(self.table, 0, token_ids, out=out)
        else:
            out.copy_(self.table.index_select(0, token_ids))
        if self.scale != 1.0:
            out.mul_(self.scale)
        if self._is_of_file:
            self._num_rows += len(token_ids)
            if self._num_rows > _ROWS_BETWEEN_RELEASES:
                self._num_rows = 0
                release_pages(self.table)

    def of(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of token ids of any shape in the model's dtype."""
        found = torch.empty(token_ids.numel(), self.table.shape[1], dtype=self.dtype, device=self.device)
        self.into(token_ids.flatten(), found)
        return found.view(*token_ids.shape, -1)
