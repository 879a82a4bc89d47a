"""Window: the metrics between the first and the last of several snapshots, beside a baseline from before.

The gateway's baseline is everything from its start until BASELINE_AGE_S before the window, so that an incident of less
than that is not compared with itself. A gateway that is younger, or had too few first tokens by then, compares with
everything before the window. The baseline of an engine is everything before the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.diagnosis.samples import Distribution, Samples
from routing_policies.policy.members import group_of

BASELINE_AGE_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDeployment:
    """State of one deployment as the gateway observes it."""

    is_ready: bool = True
    is_draining: bool = False
    """True if operators took it out of service, or its source no longer lists it; then it is not ready either."""
    backoff_s: float = 0.0
    """Seconds left of the backoff that its server requested with a 429; 0.0 without one."""
    limit: float = 64.0
    """Current limit of permits; never above `max_in_flight`."""
    in_flight: int = 0
    num_waiting: int = 0
    """Number of requests that wait for one of its permits."""
    num_seqs: float = 0.0
    max_num_seqs: int = 0
    """Number of rows in a step of the engine; 0 when it does not report one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Metrics of all processes at one instant, in monotonic seconds."""

    at: float
    gateway: Samples
    engines: Mapping[str, Samples] = field(default_factory=dict)
    """Metrics by deployment; deployments without metrics are absent."""
    deployments: Mapping[str, ObservedDeployment] = field(default_factory=dict)
    late_s: float = 0.0
    """Sum of the delays of the event loop's timers so far, in seconds."""


class Window:
    """Two snapshots or more, oldest first, and a baseline of the gateway's metrics."""

    def __init__(self, snapshots: Sequence[Snapshot], baseline: Samples | None = None) -> None:
        """Set up the window; without `baseline`, all of the gateway's metrics up to the first snapshot are it."""
        if len(snapshots) < 2:
            raise ValueError(f"a window needs two snapshots, got {len(snapshots)}")
        self.first = snapshots[0]
        self.last = snapshots[-1]
        self.all = tuple(snapshots)
        self.is_baseline_apart = baseline is not None
        """True if the baseline ends BASELINE_AGE_S before the window."""
        self._baseline = self.first.gateway if baseline is None else baseline
        self.seconds = max(1e-9, self.last.at - self.first.at)

    @property
    def late_ratio(self) -> float:
        """Delay of the event loop's timers as a share of the window."""
        return max(0.0, self.last.late_s - self.first.late_s) / self.seconds

    # The gateway

    def counted(self, name: str, **where: str) -> float:
        """Return the growth of a gateway counter inside the window."""
        return max(0.0, self.last.gateway.number(name, **where) - self.first.gateway.number(name, **where))

    def counted_before(self, name: str, **where: str) -> float:
        """Return the growth of a gateway counter up to the baseline's end."""
        return self._baseline.number(name, **where)

    def spread(self, name: str, **where: str) -> Distribution:
        """Return a gateway histogram's observations inside the window."""
        return self.last.gateway.distribution(name, **where) - self.first.gateway.distribution(name, **where)

    def spread_before(self, name: str, **where: str) -> Distribution:
        """Return a gateway histogram's observations in the baseline."""
        return self._baseline.distribution(name, **where)

    # Engines

    def engine_spread(self, name: str, deployment: str | None = None) -> Distribution:
        """Return the observations of an engine histogram inside the window, for one engine or for all."""
        merged = Distribution()
        for key in self._engines(deployment):
            before = self.first.engines.get(key, Samples())
            merged += self.last.engines[key].distribution(name) - before.distribution(name)
        return merged

    def engine_spread_before(self, name: str, deployment: str | None = None) -> Distribution:
        """Return the observations of an engine histogram before the window, for one engine or for all."""
        merged = Distribution()
        for key in self._engines(deployment):
            merged += self.first.engines.get(key, Samples()).distribution(name)
        return merged

    def engine_counted(self, name: str) -> float:
        """Return the growth of a counter over all engines; a restarted engine counts from 0."""
        return sum(self._growth(key, name) for key in self._engines(None))

    def engine_counted_before(self, name: str) -> float:
        """Return the value of a counter over all engines at the window's start."""
        return sum(self.first.engines.get(key, Samples()).number(name) for key in self._engines(None))

    def engine_peak(self, name: str) -> tuple[str, float]:
        """Return the deployment with the highest value of a gauge in any snapshot, and that value."""
        readings = [(samples.number(name), key) for snapshot in self.all for key, samples in snapshot.engines.items()]
        value, key = max(readings, default=(0.0, ""))
        return key, value

    def restarted(self) -> list[str]:
        """Return the deployments that began to serve inside the window.

        They were not ready at its start, are new, or have a counter that fell; the end of a drain is no start.
        """
        found = []
        for key, state in self.last.deployments.items():
            states = [snapshot.deployments[key] for snapshot in self.all if key in snapshot.deployments]
            began = state.is_ready and not all(earlier.is_ready or earlier.is_draining for earlier in states)
            fell = key in self.first.engines and key in self.last.engines and self._fell(key)
            is_new = key in self.last.engines and key not in self.first.engines
            if began or fell or is_new:
                found.append(key)
        return found

    def peak_state(self, deployment: str) -> ObservedDeployment:
        """Return the state of a deployment in the snapshot with the most requests in flight; an idle one if unknown."""
        states = self.states(deployment)
        return max(states, key=lambda state: (state.in_flight, state.num_seqs), default=ObservedDeployment())

    def member(self, deployment: str) -> str:
        """Return the member of a deployment with the most requests in flight; without members, the deployment."""
        members = sorted(name for name in self.last.deployments if group_of(name) == deployment)
        return max(members, key=lambda name: self.peak_state(name).in_flight, default=deployment)

    def states(self, deployment: str) -> list[ObservedDeployment]:
        """Return the states of a deployment in all snapshots that have it."""
        return [found.deployments[deployment] for found in self.all if deployment in found.deployments]

    def _engines(self, deployment: str | None) -> list[str]:
        return [key for key in self.last.engines if deployment in (None, key)]

    def _fell(self, key: str) -> bool:
        name = "engine_prompt_tokens_total"
        return self.last.engines[key].number(name) < self.first.engines[key].number(name)

    def _growth(self, key: str, name: str) -> float:
        now, before = self.last.engines[key].number(name), self.first.engines.get(key, Samples()).number(name)
        return now if now < before else now - before
