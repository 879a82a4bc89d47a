"""Permit: one unit of admitted concurrency, given back exactly once."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class Permit:
    """Leave the `with` block, or call `release`, and the unit is free again; a second release does nothing."""

    __slots__ = ("_give_back", "waited_s")

    def __init__(self, give_back: Callable[[], None], waited_s: float = 0.0) -> None:
        self._give_back: Callable[[], None] | None = give_back
        self.waited_s = waited_s
        """Seconds the request stood in the queue."""

    @property
    def is_released(self) -> bool:
        """Whether the unit was given back."""
        return self._give_back is None

    def release(self) -> None:
        """Give the unit back."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
