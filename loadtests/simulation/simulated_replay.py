"""A recorded trace in virtual time: goodput, and how far off the gateway's forecasts of first tokens were."""

from __future__ import annotations

import argparse
from pathlib import Path

from loadtests.clients.chat_streams import Slo
from loadtests.engines.modelled_engine import EngineShape
from loadtests.harness.card import Card, Value
from loadtests.harness.measures import percentile
from loadtests.overload.replay import offers_of, warm_up
from loadtests.simulation.simulation import Outcome, Simulation, in_virtual_time


def run_replay(options: argparse.Namespace, shape: EngineShape, slo: Slo) -> Card:
    """One trace, once; runs its own loop."""
    offers, rate = offers_of(
        options.replay, options.data, shape, options.load * options.engines, options.seconds, options.seed
    )

    async def main(folder: Path) -> tuple[Outcome, list[tuple[float, float]]]:
        simulation = Simulation(shape, options.engines, slo, folder, options.seed)
        if not options.silent:
            simulation.publish_loads()
        await simulation.run(warm_up(rate))
        outcome = await simulation.run(offers)
        outcome.failure = simulation.close()
        return outcome, simulation.forecast_errors((0.5, 0.9))

    outcome, errors = in_virtual_time(main)
    results: dict[str, Value] = {
        "requests": outcome.num_offered,
        "good_share": outcome.num_good / max(1, outcome.num_offered),
        "refused_share": outcome.num_refused / max(1, outcome.num_offered),
        "admitted_ttft_p99_ratio": percentile(outcome.ttft_s, 0.99) / slo.ttft_s,
        "failed_requests": outcome.num_failed,
        **{f"ttft_forecast_error_p{share * 100:g}": error for share, error in errors},
    }
    synthetic = " (synthetic: drawn from recorded distributions)" if options.replay == "servegen" else ""
    return Card(
        bench="simulate",
        arrivals=f"open loop, {options.replay}{synthetic}, {options.load:g} x capacity, virtual time",
        results=results,
        notes=(
            f"good: first token within {slo.ttft_s * 1e3:.0f} ms, tokens within {slo.tpot_s * 1e3:.0f} ms each",
            f"engine: modelled, {shape}{', silent' if options.silent else ''}",
        ),
        failed=outcome.failure,
    )
