"""Findings for late first tokens without waiting: the prompt's way through gateway, engine and network."""

from __future__ import annotations

from gateway.diagnosis.budget import LatencyBudget
from gateway.diagnosis.compare import compare_prompts
from gateway.diagnosis.finding import Finding, FindingEvidence
from gateway.diagnosis.policy_lines import PolicyLines
from gateway.diagnosis.window import Window
from routing_policies.policy.members import group_of

KV_FULL_RATIO = 0.9
_PREFIX_DROP = 0.2
_LONGER = 1.5
_LONG_BUCKETS = frozenset({"1k-4k", "4k-16k", "16k+"})


def explain_preprocessing(place: PolicyLines, now: LatencyBudget, before: LatencyBudget) -> Finding:
    """Return the finding for prompts that are slow before their computation begins."""
    parts = {
        "prompt_size": (now.read_s, before.read_s),
        "encoder": (now.embed_s, before.embed_s),
        "tokenizer": (now.front_s, before.front_s),
    }
    worst = max(parts, key=lambda part: parts[part][0] - parts[part][1])
    names = {"prompt_size": "reading and trimming", "encoder": "encoder", "tokenizer": "template and tokenizer"}
    evidence = tuple(FindingEvidence(f"{names[part]}, mean", *parts[part], "baseline") for part in parts)
    if worst == "encoder":
        return Finding(
            stage="preprocessing",
            cause="encoder",
            summary="Turning prompts into vectors takes the time.",
            evidence=evidence,
            lever="Take the semantic tier off the routes that gain least from it, or give the encoder a core.",
            policy_path=place.route_path("cache.mode"),
        )
    if worst == "tokenizer":
        return Finding(
            stage="preprocessing",
            cause="tokenizer",
            summary="The engine's front takes the time, before its queue: template and tokenizer.",
            evidence=evidence,
            lever="Give the engine's front a core of its own (fewer --threads), or send it shorter prompts.",
            policy_path=place.route_path("trim.budget_tokens"),
        )
    return Finding(
        stage="preprocessing",
        cause="prompt_size",
        summary="Reading and trimming requests takes the time: they are large.",
        evidence=evidence,
        lever="Have clients send less; trim to a budget so that at least the engine is spared.",
        policy_path=place.route_path("trim.budget_tokens"),
    )


def explain_prefill(window: Window, place: PolicyLines, now: LatencyBudget, before: LatencyBudget) -> Finding:
    """Return the finding for prompts whose computation, or the memory for it, takes the time."""
    prefill = FindingEvidence("prefill, mean", now.prefill_s, before.prefill_s, "baseline")
    owner, used = window.engine_peak("engine_kv_utilization")
    hits, hits_before = prefix_hits(window), prefix_hits_before(window)
    if used >= KV_FULL_RATIO:
        return _kv_headroom(place, owner, used, now, before)
    if hits_before is not None and hits is not None and hits_before - hits >= _PREFIX_DROP:
        return Finding(
            stage="prefill",
            cause="prefix_misses",
            summary="Prompts that used to be found in the prefix cache are computed again.",
            evidence=(
                FindingEvidence("prompt tokens found in the cache", hits, hits_before, "baseline", "ratio"),
                prefill,
            ),
            lever="Keep conversations with their replica (affinity), and the beginning of prompts the same.",
            policy_path=place.route_path("select.weights.affinity"),
        )
    tokens, tokens_before = _prompt_tokens(window), _prompt_tokens_before(window)
    if tokens >= _LONGER * tokens_before:
        return _long_prompts(
            window, place, prefill, FindingEvidence("tokens of a prompt", tokens, tokens_before, "baseline", "tokens")
        )
    return Finding(
        stage="prefill",
        cause="slow_prefill",
        summary="The same prompts take longer to compute.",
        evidence=(prefill, FindingEvidence("tokens of a prompt", tokens, tokens_before, "baseline", "tokens")),
        lever="Check what shares the engine's machine; else a larger --max-num-batched-tokens or a replica.",
        policy_path=place.route_path("select.candidates"),
    )


def explain_cold_start(window: Window, place: PolicyLines, now: LatencyBudget, before: LatencyBudget) -> Finding:
    """Return the finding for engines that began to serve inside the window."""
    names = ", ".join(window.restarted())
    return Finding(
        stage="prefill",
        cause="cold_start",
        summary=f"{names} started in these {window.seconds:.0f} s; its caches are empty and its first steps are slow.",
        evidence=(
            FindingEvidence("deployments that started", float(len(window.restarted())), 0.0, "bound", "count"),
            FindingEvidence("time to first token, mean", now.ttft_s, before.ttft_s, "baseline"),
        ),
        lever="Keep standby cores (penstock engine --standby-cores 1) and a fallback; scale out before the peak.",
        policy_path=place.route_path("select.fallback"),
    )


def explain_path(window: Window, place: PolicyLines, now: LatencyBudget, before: LatencyBudget) -> Finding:
    """Return the finding for time that neither gateway nor engine spent."""
    is_known = any(place.deployment in (name, group_of(name)) for name in window.last.engines)
    unknown = "" if is_known else " It gives no metrics, so its own stages are part of this."
    connect, connect_before = (
        spread("penstock_stage_seconds", stage="connect").mean for spread in (window.spread, window.spread_before)
    )
    return Finding(
        stage="network",
        cause="path",
        summary=f"Time is lost between the gateway and {place.deployment}.{unknown}",
        evidence=(
            FindingEvidence("between gateway and engine, mean", now.path_s, before.path_s, "baseline"),
            FindingEvidence("connecting, mean", connect, connect_before, "baseline"),
        ),
        lever="Check the network between the two; prefer a nearer deployment (zone), or hedge late streams.",
        policy_path=place.route_path("select.hedge"),
    )


def prefix_hits(window: Window) -> float | None:
    """Return the share of looked-up prompt tokens found in prefix caches; None without lookups."""
    num_queried = window.engine_counted("engine_prefix_cache_queries_tokens_total")
    return window.engine_counted("engine_prefix_cache_hits_tokens_total") / num_queried if num_queried > 0 else None


def prefix_hits_before(window: Window) -> float | None:
    """Return `prefix_hits` for the time before the window."""
    num_queried = window.engine_counted_before("engine_prefix_cache_queries_tokens_total")
    return (
        window.engine_counted_before("engine_prefix_cache_hits_tokens_total") / num_queried if num_queried > 0 else None
    )


def _kv_headroom(place: PolicyLines, owner: str, used: float, now: LatencyBudget, before: LatencyBudget) -> Finding:
    return Finding(
        stage="prefill",
        cause="kv_headroom",
        summary=f"The KV memory of {owner} is full: prompts wait in the engine for blocks.",
        evidence=(
            FindingEvidence("KV blocks in use", used, KV_FULL_RATIO, "bound", "ratio"),
            FindingEvidence("wait in the engine's queue, mean", now.engine_queue_s, before.engine_queue_s, "baseline"),
        ),
        lever="More KV memory (--kv-memory-bytes, --kv-dtype int8), or fewer requests there at once.",
        policy_path=place.deployment_path("limits.max_in_flight", owner),
    )


def _long_prompts(window: Window, place: PolicyLines, prefill: FindingEvidence, length: FindingEvidence) -> Finding:
    compared = [
        FindingEvidence(
            f"first token of prompts {found.key}, mean", found.ttft_s, found.baseline_ttft_s or None, "baseline"
        )
        for found in compare_prompts(window)
    ]
    are_apart = {found.key for found in compare_prompts(window)} - _LONG_BUCKETS
    lever = "Trim to a budget" + (
        "; a lane of their own keeps short prompts from waiting behind them." if are_apart else "."
    )
    return Finding(
        stage="prefill",
        cause="long_prompts",
        summary="Prompts are longer than they were, and computing them takes the time.",
        evidence=(length, prefill, *compared),
        lever=lever,
        policy_path=place.route_path("trim.budget_tokens"),
    )


def _prompt_tokens(window: Window) -> float:
    answered = window.spread("penstock_total_seconds").count
    return window.counted("penstock_prompt_tokens_total") / answered if answered > 0 else 0.0


def _prompt_tokens_before(window: Window) -> float:
    answered = window.spread_before("penstock_total_seconds").count
    return window.counted_before("penstock_prompt_tokens_total") / answered if answered > 0 else 0.0
