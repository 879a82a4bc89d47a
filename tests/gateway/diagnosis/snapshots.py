"""Snapshots made by hand: a healthy past, and a present that differs in what a test states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.diagnosis.samples import Distribution, Samples
from gateway.diagnosis.window import ObservedDeployment, Snapshot, Window

NUM = 100.0
"""Requests before the window, and as many in it."""
SECONDS = 10.0

_ENGINE: dict[str, float] = {"ttft": 0.022, "queue": 0.001, "prefill": 0.02, "decode": 0.3, "tpot": 0.01}
_STAGES: dict[str, float] = {"read": 0.001, "admit": 0.0, "trim": 0.0, "embed": 0.0, "cache": 0.0, "route": 0.0}
_FIRST_BYTE = 0.029
_FIRST = 0.03


class Scene:
    """Means of each stage in the window; everything before it was healthy."""

    def __init__(self, **engine: float) -> None:
        self.stages: dict[str, float] = {**_STAGES, "queue": 0.0, "connect": 0.0, "upstream_first_byte": _FIRST_BYTE}
        self.stages_before: dict[str, float] = {}
        """Where the past was not `_STAGES`."""
        self.hit_ttft: tuple[float, float] | None = None
        """Of similar answers, before the window and in it."""
        self.engine = {**_ENGINE, **engine}
        self.ttft = _FIRST
        self.tpot = 0.01
        self.total = 0.33
        self.gauges: dict[str, float] = {}
        self.counted: dict[str, float] = {}
        """Growth of engine counters in the window."""
        self.before: dict[str, float] = {}
        self.gateway: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        """Further numbers of the gateway at the window's end."""
        self.gateway_before: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        self.tenants: dict[str, float] = {"one": 500.0, "two": 500.0}
        self.prompt_tokens = 10.0
        self.answer_tokens = 30.0
        self.outcomes: dict[str, float] = {}
        """Further requests of the window at the deployment, by outcome."""
        self.state: dict[str, Any] = {}
        self.state_before: dict[str, Any] = {}
        self.late_s = 0.0
        self.num = NUM
        self.num_before = NUM
        self.has_engine = True
        self.is_new = False

    def window(self) -> Window:
        """The two snapshots."""
        healthy = Scene()
        healthy.stages |= self.stages_before
        first = Snapshot(
            at=0.0,
            gateway=self._gateway([(healthy, self.num_before)], self.gateway_before),
            engines={}
            if self.is_new or not self.has_engine
            else {"large": self._engine([(healthy, self.num_before)], self.before)},
            deployments={"large": ObservedDeployment(**self.state_before)},
        )
        grown = {name: self.before.get(name, 0.0) + amount for name, amount in self.counted.items()}
        parts = [(healthy, self.num_before), (self, self.num)]
        last = Snapshot(
            at=SECONDS,
            gateway=self._gateway(parts, self.gateway),
            engines={"large": self._engine(parts[1:] if self.is_new else parts, {**self.before, **grown})}
            if self.has_engine
            else {},
            deployments={"large": ObservedDeployment(**self.state)},
            late_s=self.late_s,
        )
        return Window([first, last])

    def _gateway(
        self, parts: list[tuple[Scene, float]], more: Mapping[str, list[tuple[Mapping[str, str], float]]]
    ) -> Samples:
        where = {"deployment": "large", "prompt_bucket": "0-256", "cache": "bypass"}
        spreads: dict[str, tuple[tuple[Mapping[str, str], Distribution], ...]] = {
            f"penstock_{name}_seconds": ((where, _sum((getattr(scene, name), num) for scene, num in parts)),)
            for name in ("ttft", "tpot", "total")
        }
        if self.hit_ttft is not None:
            hits = {"deployment": "cache", "prompt_bucket": "0-256", "cache": "hit_semantic"}
            found = _sum((mean, num) for mean, (_, num) in zip(self.hit_ttft, parts, strict=False))
            spreads["penstock_ttft_seconds"] += ((hits, found),)
        spreads["penstock_stage_seconds"] = tuple(
            ({"stage": stage}, _sum((scene.stages[stage], num) for scene, num in parts)) for stage in parts[0][0].stages
        )
        spreads["penstock_queue_wait_seconds"] = (
            ({"lane": "interactive"}, _sum((scene.stages["queue"], num) for scene, num in parts)),
        )
        requests = sum(num for _, num in parts)
        numbers: dict[str, tuple[tuple[Mapping[str, str], float], ...]] = {
            "penstock_requests_total": (
                ({"route": "all", "deployment": "large", "outcome": "completed"}, requests),
                *(
                    ({"route": "all", "deployment": "large", "outcome": outcome}, num)
                    for outcome, num in (self.outcomes.items() if len(parts) > 1 else ())
                ),
            ),
            "penstock_prompt_tokens_total": tuple(
                (
                    {"tenant": name},
                    sum(scene.tenants[name] * scene.prompt_tokens / 10.0 * num / NUM for scene, num in parts),
                )
                for name in self.tenants
            ),
            "penstock_completion_tokens_total": (
                ({"tenant": "one"}, sum(scene.answer_tokens * num for scene, num in parts)),
            ),
        }
        return Samples({**numbers, **{name: tuple(num_seqs) for name, num_seqs in more.items()}}, spreads)

    def _engine(self, parts: list[tuple[Scene, float]], counters: Mapping[str, float]) -> Samples:
        spreads = {
            f"engine_{name}_seconds": ((dict[str, str](), _sum((scene.engine[name], num) for scene, num in parts)),)
            for name in _ENGINE
        }
        numbers = {
            name: ((dict[str, str](), value),)
            for name, value in {**counters, **(self.gauges if parts[-1][0] is self else {})}.items()
        }
        return Samples(numbers, spreads)


def _sum(parts: Any) -> Distribution:
    merged = Distribution()
    for mean, num in parts:
        merged += Distribution(num, mean * num)
    return merged
