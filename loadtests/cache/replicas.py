"""Gateways that share a Redis: how soon one gives what another stored, and what is gone when either is killed.

Processes as they run anywhere: gateways with the real encoder, a Redis with `appendonly yes` and `appendfsync
everysec`, both killed with SIGKILL in the middle of their work. What was stored is requested again at a gateway that
was
started afterwards and has only the store: exact answers in the same words, similar ones in others.
"""

from __future__ import annotations

import argparse
from typing import Final

from loadtests.cache.replica_clients import KINDS, Admin, Delays, Writer, found_of, start_replica, until_settled
from loadtests.harness.card import Card
from loadtests.harness.measures import percentile
from loadtests.harness.processes import Workbench, raise_fd_limit
from loadtests.harness.redis_server import AppendOnlyRedis
from loadtests.harness.stack import Script, start_upstream

LAST_SECOND_S: Final = 1.0
"""Before a kill: what may be lost."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--writes", type=int, default=100, help="of each kind, one by one (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of writing before a kill (default %(default)s)")
    parser.add_argument("--rate", type=float, default=40.0, help="writes a second before it (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    async with Workbench() as bench, AppendOnlyRedis(bench.folder / "redis") as redis:
        upstream = await start_upstream(bench, Script())
        one, other = [await start_replica(bench, name, redis.url, upstream.admin.url) for name in ("one", "other")]
        delays = [await Delays.measured(one, other, kind, options.writes) for kind in KINDS]

        writer = Writer("gateway")
        await writer.write(one, options.seconds, options.rate)
        await one.process.kill()
        third = await start_replica(bench, "third", redis.url, upstream.admin.url)
        await until_settled(third)
        gateway_killed = await found_of(third, writer)

        writer, admin = Writer("redis"), Admin(bench.folder / "other", other)
        await writer.write(other, options.seconds, options.rate, admin.apply)
        await redis.kill()
        await redis.start()
        fourth = await start_replica(bench, "fourth", redis.url, upstream.admin.url)
        await until_settled(fourth)
        redis_killed = await found_of(fourth, writer)
        records = await Admin(bench.folder / "fourth", fourth).read()
    losses = {"gateway_killed": gateway_killed, "redis_killed": redis_killed}
    results: dict[str, float | int | str | None] = {}
    for kind, found in zip(KINDS, delays, strict=True):
        results[f"{kind}_elsewhere_p50_s"] = percentile(found.waits_s, 0.5)
        results[f"{kind}_elsewhere_p99_s"] = percentile(found.waits_s, 0.99)
    for name, loss in losses.items():
        results[f"{name}_writes"] = loss.num_written
        results[f"{name}_lost_older"] = loss.num_lost(LAST_SECOND_S)
        results[f"{name}_lost_all"] = loss.num_lost(0.0)
    results["policies_applied"] = admin.num_applied
    results["policies_lost"] = max(0, admin.last_revision - records.revision)
    results["audit_records_lost"] = max(0, admin.num_applied - records.num_applies)
    problems = [
        f"{found.num_refused} {found.kind} answers were not given elsewhere" for found in delays if found.num_refused
    ]
    problems += [f"{name}: answers older than a second are gone" for name, loss in losses.items() if loss.num_lost(1.0)]
    if results["policies_lost"] or results["audit_records_lost"] or not records.is_whole:
        problems.append("a policy or an audit record is gone")
    return Card(
        bench="replicas",
        arrivals=f"{options.writes} of a kind one by one; before a kill {options.rate:g}/s for {options.seconds:g} s",
        results=results,
        notes=(
            "elsewhere: from the end of an answer until the other gateway has it, looked at every 10 ms",
            "lost_older: of answers that ended more than a second before the kill, exact and similar",
        ),
        failed="; ".join(problems) or None,
    )
