"""`deploy.ray.app:app`: the builder of the Serve application, for `serve run` and for a Serve config file."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import msgspec
import ray
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig
from starlette.requests import Request
from starlette.responses import Response

from deploy.ray.engine_process import EngineProcess
from deploy.ray.relaying import failure, relay
from deploy.ray.scaling import ROOM, SEQS, WAIT
from deploy.ray.settings import RayAppSettings, ScalingSettings

logger = logging.getLogger(__name__)

POLICY: Final = "deploy.ray.scaling:QueueWaitPolicy"
ROUTER: Final = "deploy.ray.routing:FewestRequestsRouter"
REPORT_S: Final = 1.0
"""Interval of the replicas' reports."""


class _Named(msgspec.Struct):
    model: str = ""


class EngineReplica:
    """One replica: an engine for the model, or an engine for each model that it holds."""

    def __init__(self, settings: RayAppSettings) -> None:
        self._settings = settings
        self._engines: dict[str, EngineProcess] = {}
        """Running engines by the model's name; the empty name is that of a single model."""
        replica = serve.get_replica_context().replica_id.unique_id
        self._place = f"{replica} {ray.get_runtime_context().get_node_id()}"

    async def __call__(self, request: Request) -> Response:
        """Serve one request; Serve cancels it when its client leaves."""
        model = await self._model_of(request) if self._settings.models else ""
        if model is None:
            names = ", ".join(sorted(self._settings.models))
            return failure(404, "model_not_found", f"There is no such model here. Models: {names}.")
        engine = await self.engine(model)
        return await relay(engine.client, request, self._place)

    async def engine(self, model: str) -> EngineProcess:
        """Return the engine of a model; subclasses bound how many there are."""
        return await self.open_engine(model)

    async def open_engine(self, model: str) -> EngineProcess:
        """Start the engine of a model, unless it runs; raises EngineDied."""
        found = self._engines.get(model)
        if found is None:
            found = EngineProcess(self._settings.flags_of(model), drain_timeout_s=self._settings.drain_timeout_s)
            await found.start(self._settings.start_timeout_s)
            self._engines[model] = found
        return found

    async def close_engine(self, model: str) -> None:
        """Stop the engine of a model after its responses."""
        found = self._engines.pop(model, None)
        if found is not None:
            await found.stop()

    async def __del__(self) -> None:
        """Stop every engine; Serve awaits it when the replica is removed."""
        for model in tuple(self._engines):
            await self.close_engine(model)

    async def check_health(self) -> None:
        """Raise EngineDied where an engine has ended; Serve then replaces the replica."""
        for engine in self._engines.values():
            engine.check()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the figures that QueueWaitPolicy reads: the worst wait, and the sequences of all engines."""
        reports = [await engine.report() for engine in tuple(self._engines.values())]
        return {
            WAIT: max((one.forecast_wait_s for one in reports), default=0.0),
            SEQS: float(sum(one.num_running + one.num_waiting for one in reports)),
            ROOM: float(sum(one.max_num_seqs for one in reports)),
        }

    async def _model_of(self, request: Request) -> str | None:
        """Return the requested model: that of Serve's header, else that of the body; None for an unknown one."""
        name = serve.get_multiplexed_model_id()
        if not name:
            try:
                name = msgspec.json.decode(await request.body() or b"{}", type=_Named).model
            except msgspec.DecodeError:
                name = ""
        return name if name in self._settings.models else None


class SingleModelReplica(EngineReplica):
    """Replica of one model, which is loaded before the replica gets requests."""

    async def __init__(self, settings: RayAppSettings) -> None:  # type: ignore[misc]  # Serve awaits it
        super().__init__(settings)
        await self.open_engine("")


def multiplexed_replica(max_models: int) -> type[EngineReplica]:
    """Return a replica class whose engines Serve loads on demand, at most `max_models` at once."""

    class MultiplexedReplica(EngineReplica):
        """Replica of several models."""

        async def engine(self, model: str) -> EngineProcess:
            """Return the engine of a model, which unloads another one where there are too many."""
            await self.load_model(model)
            return await self.open_engine(model)

        @serve.multiplexed(max_num_models_per_replica=max_models)  # type: ignore[untyped-decorator]  # no types without Ray
        async def load_model(self, model_id: str) -> _Loaded:
            """Load a model; Serve calls it once while the model stays."""
            await self.open_engine(model_id)
            return _Loaded(self, model_id)

    return MultiplexedReplica


class _Loaded:
    """A loaded model, which Serve lets go of when another one takes its place."""

    def __init__(self, replica: EngineReplica, model: str) -> None:
        self._replica = replica
        self._model = model
        self._loop = asyncio.get_running_loop()
        self._is_open = True

    def __del__(self) -> None:
        """Stop the engine; Serve calls it on a thread of its own and waits, and the interpreter later once more."""
        if self._is_open and not self._loop.is_closed():
            self._is_open = False
            closing = asyncio.run_coroutine_threadsafe(self._replica.close_engine(self._model), self._loop)
            if not _is_on(self._loop):
                closing.result()


def _is_on(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this code runs on the loop, which must not wait for itself."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def app(args: dict[str, Any]) -> serve.Application:
    """Return the application for the `args` of a config file; raises RayAppError for wrong ones."""
    settings = RayAppSettings.parse(args)
    kind = SingleModelReplica if settings.model else multiplexed_replica(settings.max_models_per_replica)
    deployment = serve.deployment(
        kind,
        name="Engine",
        max_ongoing_requests=settings.max_ongoing_requests,
        autoscaling_config=_autoscaling(settings.scaling),
        request_router_config=RequestRouterConfig(request_router_class=ROUTER),
        ray_actor_options={"num_cpus": settings.num_cpus, "num_gpus": _num_gpus(settings)},
        placement_group_bundles=[{"CPU": settings.num_cpus, **_gpus(settings)}],
        placement_group_strategy="STRICT_PACK",
        graceful_shutdown_timeout_s=settings.drain_timeout_s,
        health_check_period_s=2.0,
    )
    return deployment.bind(settings)


def _num_gpus(settings: RayAppSettings) -> float:
    return settings.num_gpus_per_rank * settings.tensor_parallel


def _gpus(settings: RayAppSettings) -> dict[str, float]:
    """Return the GPUs of a replica's one bundle: its engine's ranks find them all in CUDA_VISIBLE_DEVICES."""
    return {"GPU": _num_gpus(settings)} if _num_gpus(settings) else {}


def _autoscaling(scaling: ScalingSettings) -> AutoscalingConfig:
    return AutoscalingConfig(
        min_replicas=scaling.min_replicas,
        initial_replicas=max(scaling.min_replicas, 1),
        max_replicas=scaling.max_replicas,
        metrics_interval_s=REPORT_S,
        look_back_period_s=scaling.look_back_s,
        upscale_delay_s=scaling.upscale_delay_s,
        downscale_delay_s=scaling.downscale_delay_s,
        policy=AutoscalingPolicy(policy_function=POLICY, policy_kwargs={"target_wait_s": scaling.target_wait_s}),
    )
