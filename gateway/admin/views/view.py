"""View: the documents that pages show, over all processes that report. The live feed sends the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from starlette.responses import Response

from gateway.admin.api.request import AdminRequest, serves
from gateway.admin.views.engine_facts import EngineFacts
from gateway.admin.views.live_state import DeploymentState, LiveState, added
from gateway.admin.views.overview import SERIES_NAMES, Charts, deployment_row, group_row, overview, spread_by
from gateway.admin.views.replicas import ReplicaReport, Replicas, windows_of
from gateway.api.application import ApiResponse
from gateway.telemetry.window import WINDOWS_S, History, Totals, merged, step_of
from gateway.timeline import Clock

OVERVIEW_PATH: Final = "/admin/api/overview"
DEPLOYMENTS_PATH: Final = "/admin/api/deployments"
LOAD_PATH: Final = "/admin/api/load"
DEFAULT_WINDOW_S: Final = 300

Facts = Callable[[], Mapping[str, Any]]
"""Source of further facts for every page, such as whether the policy file is valid."""


class View:
    """`GET /admin/api/overview`, `/deployments` and `/load`."""

    def __init__(
        self,
        *,
        name: str,
        history: History,
        live: Callable[[], LiveState],
        facts: Facts,
        engines: EngineFacts,
        similar_error: Callable[[], dict[str, Any] | None],
        wall: Clock,
    ) -> None:
        """Show all processes; `name` is this one's, `similar_error` returns the audits' result for similar answers."""
        self._name = name
        self._history = history
        self._live = live
        self._facts = facts
        self._engines = engines
        self._similar_error = similar_error
        self._wall = wall
        self._charts = {window_s: Charts() for window_s in WINDOWS_S}
        self.replicas: Replicas | None = None
        """The other processes, once there is a store to see them in."""

    def report(self) -> ReplicaReport:
        """Return this process's report for the others."""
        return ReplicaReport(
            name=self._name,
            at=self._wall(),
            revision=str(self._facts().get("policy", {}).get("revision", "")),
            live=self._live(),
            windows=windows_of(self._history.totals),
            series={window: self._history.series(window, SERIES_NAMES) for window in WINDOWS_S},
        )

    @serves(OVERVIEW_PATH)
    async def show_overview(self, request: AdminRequest) -> Response:
        """Show the overview page's document."""
        return ApiResponse(self.overview(_window(request)))

    @serves(DEPLOYMENTS_PATH)
    async def show_deployments(self, request: AdminRequest) -> Response:
        """Show each deployment: its state, its traffic and its engine's report."""
        await self._engines.refresh()
        return ApiResponse(self.deployments(_window(request)))

    @serves(LOAD_PATH)
    async def show_load(self, request: AdminRequest) -> Response:
        """Show queues and lanes."""
        return ApiResponse(self.load(_window(request)))

    def overview(self, window_s: int, *, with_series: bool = True) -> dict[str, Any]:
        """Totals over the window; without the charts where they have not changed."""
        totals, live = self._totals(window_s), self._live_state()
        document = {**self._frame(window_s), **overview(totals, live)}
        document["cache"]["error"] = self._similar_error()
        if with_series:
            document["step_s"] = step_of(window_s)
            document["series"] = self._charts[window_s].points(self._series(window_s))
        return document

    def deployments(self, window_s: int) -> dict[str, Any]:
        """Return the deployments page's document, with the engine reports at hand."""
        totals, live = self._totals(window_s), self._live_state()
        buckets = spread_by(totals, "ttft_seconds", 0, 1)
        return {
            **self._frame(window_s),
            "deployments": [self._deployment(one, totals, buckets) for one in live.deployments],
            "groups": [group_row(one, totals) for one in live.groups],
        }

    def load(self, window_s: int) -> dict[str, Any]:
        """Lanes with their queues, deployments with their permits, and what was refused."""
        document = self.overview(window_s, with_series=False)
        shared = ("queues", "shed", "degraded", "slo", "requests", "since", "until", "deployments")
        frame = self._frame(window_s)
        return {**frame, **{name: document[name] for name in shared}}

    def refresh_engines(self) -> None:
        """Request the engines' facts anew, in the background."""
        self._engines.refresh_soon()

    def _deployment(self, one: DeploymentState, totals: Totals, buckets: Mapping[Any, Any]) -> dict[str, Any]:
        measured = {bucket: spread for (deployment, bucket), spread in buckets.items() if deployment == one.id}
        return {
            **deployment_row(one, totals),
            "url": one.url,
            "zone": one.zone,
            "forecast": [
                {"bucket": bucket, "forecast_ms": ms, "measured": measured.get(bucket)}
                for bucket, ms in one.forecast_ttft_ms.items()
            ],
            "forecast_tpot_ms": one.forecast_tpot_ms,
            "forecast_error_p90": one.forecast_error_p90,
            "cache_trust": one.cache_trust,
            "cost_per_mtok": one.cost_per_mtok,
            "report": one.report,
            "engine": self._engines.of(one.id),
        }

    def _frame(self, window_s: int) -> dict[str, Any]:
        return {"at": self._wall(), "window_s": window_s, "replicas": self.who_reports(), **self._facts()}

    def who_reports(self) -> dict[str, Any]:
        """Return the names of all processes; each call makes them report for some more seconds."""
        seen = self.replicas
        if seen is not None:
            seen.look()
        return {
            "names": [self._name, *(other.name for other in self._others())],
            "lost": () if seen is None else seen.lost,
            "is_alone": seen is None or seen.is_alone,
            "is_store_lost": seen is not None and seen.is_store_lost,
        }

    def _others(self) -> tuple[ReplicaReport, ...]:
        return () if self.replicas is None else self.replicas.others

    def _totals(self, window_s: int) -> Totals:
        found = [other.windows[window_s] for other in self._others() if window_s in other.windows]
        return merged([self._history.totals(window_s), *found])

    def _live_state(self) -> LiveState:
        return added([self._live(), *(other.live for other in self._others())])

    def _series(self, window_s: int) -> list[Totals]:
        own = self._history.series(window_s, SERIES_NAMES)
        return _aligned([own, *(other.series.get(window_s, []) for other in self._others())], step_of(window_s))


def _aligned(parts: Iterable[list[Totals]], step_s: float) -> list[Totals]:
    """Steps of several processes that ended together, added up."""
    steps: dict[int, list[Totals]] = {}
    for part in parts:
        for step in part:
            steps.setdefault(int(step.since // step_s + 0.5), []).append(step)
    return [merged(steps[key]) for key in sorted(steps)]


def _window(request: AdminRequest) -> int:
    return request.choice("window", DEFAULT_WINDOW_S, WINDOWS_S)
