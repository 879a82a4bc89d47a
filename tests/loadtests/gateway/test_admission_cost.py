"""The bench of what a decision costs: it decides, and states what it measured."""

from __future__ import annotations

import argparse
import asyncio

from loadtests.gateway import admission_cost
from loadtests.harness.card import Card


def test_every_request_is_decided_and_both_halves_are_timed() -> None:
    parser = argparse.ArgumentParser()
    admission_cost.add_arguments(parser)
    options = ["--decisions", "500", "--deployments", "6", "--tenants", "5", "--in-flight", "4"]

    async def as_a_command() -> Card:  # another task waits for it, as at the command line
        return await asyncio.create_task(admission_cost.run(parser.parse_args(options)))

    card = asyncio.run(as_a_command())

    assert card.failed is None
    assert card.results["refused"] == 0
    for name in ("admission_us", "ending_us", "first_installation_admission_us"):
        value = card.results[name]
        assert isinstance(value, float)
        assert 1 < value < 5_000
