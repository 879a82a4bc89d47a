"""Token embeddings: rows of a table that may be stored in another dtype than the model computes in."""

from __future__ import annotations

import os

import torch

from engine.huge_pages import mapped_file, release_pages

_ROWS_BETWEEN_RELEASES = 4096
"""Rows that are read before the pages of a mapped table are released, which compiled steps read too."""
_NUM_COMPARED = 16


class TokenEmbedding:
    """Lookup of token embeddings, times a scale.

    A step reads a few rows, so a table that is mapped from a file takes hardly any memory. Where the rows need no
    conversion they are read from that file, because the system maps 64 KiB around every row that is read in memory.
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
        self._file = _FileRows.of(table) if table.dtype == dtype == torch.float32 else None

    @property
    def device(self) -> torch.device:
        """Device of the table."""
        return self.table.device

    def into(self, token_ids: torch.Tensor, out: torch.Tensor) -> None:
        """Write the embeddings of token ids [T] to `out` [T, hidden]."""
        if self._file is not None and out.dtype == self.table.dtype and out.is_contiguous():
            self._file.into(token_ids, out)
        elif self.table.dtype == out.dtype:
            torch.index_select(self.table, 0, token_ids, out=out)
        else:
            out.copy_(self.table.index_select(0, token_ids))
        if self.scale != 1.0:
            out.mul_(self.scale)

    def of(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of token ids of any shape in the model's dtype."""
        found = torch.empty(token_ids.numel(), self.table.shape[1], dtype=self.dtype, device=self.device)
        self.into(token_ids.flatten(), found)
        return found.view(*token_ids.shape, -1)


class _FileRows:
    """Rows of a table in a file that the table is mapped from."""

    def __init__(self, table: torch.Tensor, file: int, start: int) -> None:
        self._table = table
        self._file = file
        self._start = start
        self._row_bytes = table.shape[1] * table.itemsize
        self._num_rows = 0

    @classmethod
    def of(cls, table: torch.Tensor) -> _FileRows | None:
        """Return the rows of a float32 table; None if it is not mapped, or its file is another one by now."""
        found = mapped_file(table) if table.is_contiguous() and table.numel() else None
        if found is None:
            return None
        try:
            file = os.open(found[0], os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # the table itself has every row
            return None
        rows = cls(table, file, found[1])
        compared = torch.linspace(0, table.shape[0] - 1, _NUM_COMPARED).long()
        if rows._equal(compared):
            return rows
        os.close(file)
        return None

    def into(self, token_ids: torch.Tensor, out: torch.Tensor) -> None:
        """Write the rows of token ids [T] to `out` [T, hidden]. Raises OSError."""
        content, at, read = out.numpy().data.cast("B"), 0, os.preadv
        file, start, row_bytes = self._file, self._start, self._row_bytes
        for token_id in token_ids.tolist():
            if read(file, (content[at : at + row_bytes],), start + token_id * row_bytes) != row_bytes:
                raise OSError(f"the file of the embeddings has no row {token_id}; it was cut while it was in use")
            at += row_bytes
        self._num_rows += len(token_ids)
        if self._num_rows > _ROWS_BETWEEN_RELEASES:
            self._num_rows = 0
            release_pages(self._table)

    def _equal(self, token_ids: torch.Tensor) -> bool:
        """Return whether the file's rows are those of the table."""
        found = torch.empty(token_ids.shape[0], self._table.shape[1])
        try:
            self.into(token_ids, found)
        except OSError:
            return False
        return torch.equal(found, self._table.index_select(0, token_ids))
