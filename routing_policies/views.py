"""What a decision may look at: one moment's state of the deployments, frozen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentView:
    """One candidate as it is now."""

    id: str
    model: str
    is_ready: bool
    """It said so itself when last probed."""
    is_ejected: bool = False
    """Taken out for its recent failures, whatever it says."""
    in_flight: int = 0
    max_in_flight: int = 64
    weight: float = 1.0
    """Configured share, relative to the other candidates of the route."""

    @property
    def is_full(self) -> bool:
        """Whether every permit is taken."""
        return self.in_flight >= self.max_in_flight

    @property
    def load_ratio(self) -> float:
        """Permits taken over permits there are; above 1 after a limit was lowered."""
        return self.in_flight / self.max_in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What the decision is for: the first try, or one after others failed."""

    already_tried: frozenset[str] = frozenset()
