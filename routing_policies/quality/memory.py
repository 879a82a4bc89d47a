"""NeighbourMemory: what became of the prompts nearest to one, by their embeddings."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class NeighbourMemory(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Embeddings on the few axes along which they differ most. All numbers in half precision, row after row."""

    axes: bytes
    num_axes: int
    rows: bytes
    """Of unit length."""
    values: bytes
    """Two for each row: for prompts of an untold kind of work, and of one that was told. Models that were trained by
    earlier versions have a third, for a kind that was told and is new."""
    num_nearest: int

    @cached_property
    def _axes(self) -> NDArray[np.float32]:
        return _read(self.axes).reshape(self.num_axes, -1)

    @cached_property
    def _rows(self) -> NDArray[np.float32]:
        return _read(self.rows).reshape(-1, self.num_axes)

    @cached_property
    def _values(self) -> NDArray[np.float32]:
        return _read(self.values).reshape(len(self._rows), -1)

    def recall(self, vector: NDArray[np.float32]) -> tuple[float, float, float]:
        """What the nearest add to a logit, for a kind of work that is untold, for one that is told, and for one that is
        told and was never seen."""
        import numpy as np

        place = self._axes @ vector
        similar = self._rows @ place  # in no need of the length: only the order counts
        nearest = np.argpartition(similar, -self.num_nearest)[-self.num_nearest :]
        untold, told, *away = self._values[nearest].mean(axis=0).tolist()
        return untold, told, away[0] if away else 0.0


def _read(content: bytes) -> NDArray[np.float32]:
    import numpy as np

    return np.frombuffer(content, dtype="<f2").astype(np.float32)
