"""A cascade as it is live: both bundled engines behind a gateway, beside what a simulation states of the same prompts.

Each prompt is required of the cascade and of the small model alone, one after the other and in turns. What the cascade
decides from an engine's first tokens is compared with what `penstock bench routing` works out from outcomes that were
computed beforehand; time to the first token with the small model's alone; and what the gateway states it cost with what
the engines state they computed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from gateway.cli.outcomes.quality_training import Line, read_lines
from gateway.routing.quality_files import bundled_models
from loadtests.clients.http_client import LoadConnection, request_bytes
from loadtests.harness.card import Card, Value
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import Server, metric, start_engine, start_gateway_with
from loadtests.routing.outcomes import make_outcomes
from loadtests.routing.routing_cascade import FIRST_TOKENS, Ratios, cases_of, played
from routing_policies.quality.predictor import Predictor

_MODELS: Final = Path(__file__).resolve().parents[2] / "engine/bundled/models"
_PRICES: Final = {"small": (0.1, 0.4), "large": (0.5, 2.0)}
_SMALL: Final = "penstock-small"
_LARGE: Final = "penstock-large"
MAX_DIFFERENCE_POINTS: Final = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--samples", type=int, default=10, help="prompts per task and difficulty (default %(default)s)")
    parser.add_argument("--seed", type=int, default=977, help="of the prompts (default %(default)s)")
    parser.add_argument("--outcomes", type=Path, help="file of the pair's outcomes: used if it is there, else written")
    parser.add_argument("--limit", type=int, help="of the prompts, the first so many (default: all)")
    parser.add_argument("--temperature", type=float, default=0.0, help="of every request (default %(default)s)")
    parser.add_argument("--plain", action="store_true", help="request plain answers instead of streams")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    async with Workbench() as bench:
        path = options.outcomes or bench.folder / "outcomes.jsonl"
        if not path.exists():
            await make_outcomes(path, options.samples, options.seed)
        lines = list(read_lines([path]))[: options.limit]
        engines = {
            name: await start_engine(
                bench, _MODELS / f"penstock-{name}", "--name", f"penstock-{name}", name=f"engine-{name}"
            )
            for name in _PRICES
        }
        gateway = await start_gateway_with(bench, _policy(engines))
        before = await _computed(engines)
        answered = [await _send_both(gateway, line, number, options) for number, line in enumerate(lines)]
        cost = await metric(gateway.admin, "penstock_cost_total")
        after = await _computed(engines)
    computed = sum(after[name] - before[name] for name in _PRICES)
    results, notes = _summary(answered, _simulated(lines))
    results |= {"cost_counted": cost, "cost_computed": computed, "cost_counted_ratio": cost / computed}
    return Card(
        bench="cascade",
        arrivals="closed loop, 1 connection, cascade and small model in turns",
        results={"num_prompts": len(lines), "temperature": options.temperature, **results},
        notes=notes,
        failed=_failure(results, options),
    )


def _failure(results: Mapping[str, Value], options: argparse.Namespace) -> str | None:
    """Drawn tokens are no greedy ones, so only those of temperature 0 can be compared."""
    difference = results["share_difference_points"]
    assert isinstance(difference, float)
    if options.temperature == 0.0 and abs(difference) > MAX_DIFFERENCE_POINTS:
        return f"the live share of large calls is {difference:+.1f} points from the simulated one"
    return None


def _policy(engines: Mapping[str, Server]) -> dict[str, object]:
    deployments = [
        {
            "id": name,
            "url": engine.address.url,
            "model": f"penstock-{name}",
            "context_tokens": 4096,
            "cost_per_mtok": {"prompt": _PRICES[name][0], "completion": _PRICES[name][1]},
        }
        for name, engine in engines.items()
    ]
    select = {
        "policy": "cascade",
        "min_quality": Ratios().min_quality,
        "cascade": {"first_tokens": FIRST_TOKENS, "skip_below": Ratios().skip_below},
        "candidates": ["small", "large"],
    }
    routes = [
        {"id": "cascade", "match": {"models": ["auto"]}, "select": select},
        {"id": "alone", "match": {"models": ["alone"]}, "select": {"candidates": ["small"]}},
    ]
    return {"schema_version": 1, "deployments": deployments, "routes": routes}


async def _computed(engines: Mapping[str, Server]) -> dict[str, float]:
    """What each engine's tokens cost, by its own count."""
    costs = {}
    for name, engine in engines.items():
        prompt = await metric(engine.admin, "engine_prompt_tokens_total")
        completion = await metric(engine.admin, "engine_generation_tokens_total")
        costs[name] = (prompt * _PRICES[name][0] + completion * _PRICES[name][1]) / 1e6
    return costs


async def _send_both(gateway: Server, line: Line, number: int, options: argparse.Namespace) -> dict[str, Any]:
    """Who answered in the end, and the seconds to the first text of both."""
    order = ("auto", "alone") if number % 2 else ("alone", "auto")
    found: dict[str, Any] = {}
    for model in order:
        body = {
            "model": model,
            "messages": msgspec.to_builtins(line.messages),
            "max_tokens": 160,
            "temperature": options.temperature,
            **({} if options.plain else {"stream": True, "stream_options": {"include_usage": True}}),
        }
        deployment, first_s = await _send(gateway, json.dumps(body).encode())
        found[model] = first_s
        if model == "auto":
            found["is_large"] = deployment == b"large"
    return found


async def _send(gateway: Server, body: bytes) -> tuple[bytes, float]:
    firsts: list[float] = []

    def on_piece(now: float, data: bytes) -> None:
        if not firsts and b'"content":"' in data.replace(b'"content":""', b"").replace(b": ", b":"):
            firsts.append(now)

    connection = await LoadConnection.open(gateway.address, keep_body=True)
    try:
        exchange = await connection.exchange(request_bytes("POST", "/v1/chat/completions", body), on_piece)
        if not exchange.is_ok:
            raise SystemExit(
                f"a request failed: {exchange.status} {exchange.error} {connection.scanner.content[:200]!r}"
            )
        _, _, rest = connection.scanner.head.partition(b"x-penstock-deployment: ")
        return rest.partition(b"\r")[0], (firsts[0] if firsts else exchange.ended_at) - exchange.sent_at
    finally:
        connection.close()


def _simulated(lines: Sequence[Line]) -> list[bool]:
    """Whether each prompt goes to the large model, by outcomes computed beforehand."""
    (model,) = (one for one in bundled_models() if (one.weak, one.strong) == (_SMALL, _LARGE))
    predictor = Predictor(model)
    predictions = [predictor.assess(line.as_prompt()).prediction for line in lines]
    return [bool(one) for one in played(cases_of(lines, predictions, _SMALL), model.checkpoints, Ratios()).is_large]


def _summary(
    answered: Sequence[Mapping[str, Any]], simulated: Sequence[bool]
) -> tuple[dict[str, Value], tuple[str, ...]]:
    live = [one["is_large"] for one in answered]
    num = len(live)
    live_share, simulated_share = sum(live) / num, sum(simulated) / num
    added = [1000 * (one["auto"] - one["alone"]) for one in answered]
    added_alone = [1000 * (one["auto"] - one["alone"]) for one in answered if not one["is_large"]]
    results: dict[str, Value] = {
        "live_large_share": live_share,
        "simulated_large_share": simulated_share,
        "share_difference_points": 100 * (live_share - simulated_share),
        "decisions_equal": sum(one == other for one, other in zip(live, simulated, strict=True)) / num,
        "small_ttft_ms_p50": 1000 * median(one["alone"] for one in answered),
        "added_ttft_ms_p50": median(added),
        "added_ttft_ms_p50_kept": median(added_alone) if added_alone else None,
    }
    return results, ("added_ttft: the cascade's first text less the small model's own, of the same prompt",)
