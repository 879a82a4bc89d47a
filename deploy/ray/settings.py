"""Settings of the Serve application: the `args` of `app.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

Replicas = Annotated[int, Meta(ge=0, le=10_000)]


class RayAppError(ValueError):
    """The arguments of the application are wrong; the message names the one and the remedy."""


class ScalingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many replicas there are."""

    min_replicas: Replicas = 1
    max_replicas: Annotated[int, Meta(ge=1, le=10_000)] = 4
    target_wait_s: Annotated[float, Meta(gt=0.0, le=600.0)] = 0.5
    """Wait for the first step of a prompt, by the engines' own forecast, above which replicas are added."""
    upscale_delay_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 5.0
    downscale_delay_s: Annotated[float, Meta(ge=0.0, le=86_400.0)] = 120.0
    look_back_s: Annotated[float, Meta(gt=0.0, le=3600.0)] = 10.0
    """Time over which the engines' reports are averaged."""

    def __post_init__(self) -> None:
        if self.min_replicas > self.max_replicas:
            raise ValueError("min_replicas is above max_replicas")


class RayAppSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model per replica, or several that replicas load on demand."""

    model: str = ""
    """Folder, GGUF file or name of the model that every replica serves, as for `penstock engine --model`."""
    models: dict[str, str] = {}
    """Models by the name that clients request, in place of `model`; a replica loads one at its first request."""
    max_models_per_replica: Annotated[int, Meta(ge=1, le=64)] = 1
    """Models that one replica holds at once; of more, the one that was used longest ago is unloaded."""
    engine_flags: tuple[str, ...] = ()
    """Further flags of `penstock engine`, such as `--max-num-seqs=32`."""
    tensor_parallel: Annotated[int, Meta(ge=1, le=64)] = 1
    """GPUs, or processes on CPUs, that share every layer; they are reserved together on one node."""
    num_gpus_per_rank: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    """GPUs of each of these: 1 on GPU nodes, 0 on CPU nodes."""
    num_cpus: Annotated[float, Meta(gt=0.0, le=1024.0)] = 1.0
    """CPUs of one replica."""
    max_ongoing_requests: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """Requests that Serve sends to one replica at once; more wait at the proxies."""
    start_timeout_s: Annotated[float, Meta(gt=0.0, le=7200.0)] = 900.0
    drain_timeout_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 30.0
    """Longest time for the responses of a replica that is removed to finish."""
    scaling: ScalingSettings = ScalingSettings()

    def __post_init__(self) -> None:
        if bool(self.model) == bool(self.models):
            raise ValueError("give either model, or models by name")

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> RayAppSettings:
        """Return the settings; raises RayAppError, which names the argument."""
        try:
            return msgspec.convert(dict(arguments), cls)
        except msgspec.ValidationError as error:
            raise RayAppError(f"args: {error}") from error

    def flags_of(self, model: str) -> tuple[str, ...]:
        """Return the flags of an engine for one of the models; requests name it as they do at the proxies."""
        served_as = (f"--name={model}",) if model in self.models else ()
        parallel = (f"--tensor-parallel={self.tensor_parallel}",) if self.tensor_parallel > 1 else ()
        return (f"--model={self.models.get(model, self.model)}", *served_as, *parallel, *self.engine_flags)
