"""Diagnosis: findings with their evidence, and the comparisons beside them."""

from __future__ import annotations

from typing import Literal

import msgspec

StageName = Literal["queue", "preprocessing", "prefill", "decode", "network", "upstream", "gateway"]
Cause = Literal[
    "limit",
    "engine_full",
    "one_tenant",
    "admission",
    "prompt_size",
    "tokenizer",
    "encoder",
    "long_prompts",
    "prefix_misses",
    "kv_headroom",
    "cold_start",
    "slow_prefill",
    "num_seqs",
    "output_length",
    "preemption",
    "speculation",
    "slow_decode",
    "path",
    "deployment_down",
    "drained",
    "backoff",
    "upstream_failing",
    "loop_lag",
    "store",
]
Measure = Literal["s", "ratio", "tokens", "count"]


class FindingEvidence(msgspec.Struct, frozen=True):
    """One number beside its expected value."""

    name: str
    now: float
    expected: float | None
    """Value to compare with; None without one."""
    expected_is: Literal["baseline", "target", "bound"]
    measure: Measure = "s"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One slow stage, its cause and the remedy."""

    stage: StageName
    cause: Cause
    summary: str
    evidence: tuple[FindingEvidence, ...]
    lever: str
    """Remedy, in words."""
    policy_path: str | None = None
    """Path of the policy line to change, such as `deployments.large.limits.max_in_flight`; None without one."""


class StageTime(msgspec.Struct, frozen=True):
    """Mean seconds of one stage before the first token, now and before."""

    now_s: float
    baseline_s: float


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt bucket, deployment or tenant beside its own past."""

    key: str
    num_requests: float = 0.0
    ttft_s: float = 0.0
    baseline_ttft_s: float = 0.0
    tpot_s: float = 0.0
    baseline_tpot_s: float = 0.0
    token_ratio: float = 0.0
    """Share of all tokens; set for tenants."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a diagnosis."""

    seconds: float
    num_requests: float
    findings: tuple[Finding, ...]
    conclusion: str
    """Sentences for a diagnosis without findings: what it rules out, and what it cannot tell; else empty."""
    stages: dict[str, StageTime]
    prompts: tuple[Compared, ...]
    deployments: tuple[Compared, ...]
    tenants: tuple[Compared, ...]
    notes: tuple[str, ...] = ()
