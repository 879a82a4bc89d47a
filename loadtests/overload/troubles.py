"""Workloads with a trouble in them, and the same without it: a greedy tenant, a flood of long prompts.

Whoever offers them, to real processes or in virtual time, finds the same requests here for the same seed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass

from loadtests.clients.chat_streams import Slo
from loadtests.engines.modelled_engine import EngineShape
from loadtests.overload.workload import Lengths, Offer, merged, poisson_offers

LIGHT_TENANTS = 3
GREEDY = 9
FLOOD = 1
_LIGHT_LOAD = 0.3
_GREEDY_LOAD = 1.7
_SHORT_LOAD = 0.33
_FLOOD_LOAD = 1.2
"""Of what the engine could read if it did nothing else."""
_LONG = Lengths(prompt_median=3000, prompt_sigma=0.15, prompt_max=4000, output_median=20, output_sigma=0.3)
_SHORT = Lengths(prompt_median=120, prompt_sigma=0.5, prompt_max=500)
_LONG_TTFT_MS = 4000
_LONG_PROMPT_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is offered, and who is not to notice."""

    alone: list[Offer]
    beside: list[Offer]
    """The same requests and the trouble."""
    loud: int
    """The tenant that is the trouble."""
    policy: Mapping[str, object]
    """Top-level entries of the policy that take the place of the bench's own."""
    keys: Mapping[int, str]
    """API keys by tenant; empty: nobody authenticates."""
    loud_ttft_s: float
    """First-token target of the trouble's own lane."""


def greedy_tenant(capacity_per_s: float, seconds: float, seed: int, slo: Slo) -> Trouble:
    """One tenant brings 85 % of twice the capacity."""
    tenants = [*range(LIGHT_TENANTS), GREEDY]
    keys = {tenant: f"psk-bench-{tenant}" for tenant in tenants}
    digests = {tenant: hashlib.sha256(key.encode()).hexdigest() for tenant, key in keys.items()}
    entries = [{"id": f"t{tenant}", "keys": [{"id": "k", "sha256": digests[tenant]}]} for tenant in tenants]

    def stream(load: float, tenant: int) -> list[Offer]:
        rng = random.Random(f"{seed}:{tenant}")
        return list(poisson_offers(load * capacity_per_s, seconds, rng, Lengths(), tenant=tenant))

    light = merged(*(stream(_LIGHT_LOAD / LIGHT_TENANTS, tenant) for tenant in range(LIGHT_TENANTS)))
    beside = merged(light, stream(_GREEDY_LOAD, GREEDY))
    policy = {"tenants": entries}
    return Trouble(alone=light, beside=beside, loud=GREEDY, policy=policy, keys=keys, loud_ttft_s=slo.ttft_s)


def long_flood(capacity_per_s: float, seconds: float, seed: int, shape: EngineShape, slo: Slo) -> Trouble:
    """Short requests at a third of the capacity, while prompts of 3,000 tokens come in at more than the engine reads;
    a lane for what is longer than a thousand tokens, as policies have that expect both."""
    rng = random.Random(f"{seed}:1")
    short = list(poisson_offers(_SHORT_LOAD * capacity_per_s, seconds, rng, _SHORT))
    rate = _FLOOD_LOAD / (_LONG.prompt_median * shape.prefill_us / 1e6)
    flood = list(poisson_offers(rate, seconds, random.Random(seed), _LONG, tenant=FLOOD))
    targets = {"ttft_p95_ms": round(slo.ttft_s * 1e3), "tpot_p95_ms": round(slo.tpot_s * 1e3)}
    limits = {"max_prompt_tokens": _LONG_PROMPT_TOKENS, "longer": "interactive-long"}
    lanes = [
        {"id": "interactive", "weight": 8, "slo": targets, "on_overload": ["shed"], **limits},
        {"id": "interactive-long", "weight": 4, "slo": {"ttft_p95_ms": _LONG_TTFT_MS}, "on_overload": ["shed"]},
        {"id": "batch", "weight": 1, "slo": {"ttft_p95_ms": 20_000}, "on_overload": ["shed"]},
    ]
    beside = merged(short, flood)
    return Trouble(
        alone=short, beside=beside, loud=FLOOD, policy={"lanes": lanes}, keys={}, loud_ttft_s=_LONG_TTFT_MS / 1e3
    )
