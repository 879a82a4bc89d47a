"""Semantic lookups beside an upstream on a machine whose cores are full: late ones, skipped ones, and hits kept.

Half of the streamed questions are stored in other words, the others are new. The scripted upstream begins its answers
after a fixed time, which is another one for each deployment. Processes that only compute occupy every core. A lookup is
late if it ends after the response has begun; a skipped one never begins.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from multiprocessing import get_context

from loadtests.cache.question_pairs.paraphrases import paraphrases
from loadtests.cache.similar import until_encoding
from loadtests.clients.http_client import LoadConnection, request_bytes
from loadtests.clients.open_loop import poisson_arrivals, run_open_loop
from loadtests.harness.card import Card, Value
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import Script, Server, chat_body, metric, start_gateway_with, start_upstream

_REASONS = ("similar", "unguarded", "alone", "doubtful", "closed", "no_vector", "late", "skipped", "failed")
_NOT_BEGUN = ("no_vector", "skipped")
_FILL = "script:num_chunks=4"
_PATIENCE_S = 60.0
_SECRET = "sk-penstock-bench-busy"
_KEY = (("authorization", f"Bearer {_SECRET}"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument(
        "--first-byte-ms",
        type=float,
        nargs="+",
        default=[15.0, 40.0, 100.0, 300.0],
        help="of the upstream, one deployment for each (default 15 40 100 300)",
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="for each of them (default %(default)s)")
    parser.add_argument("--rate", type=float, default=15.0, help="requests per second (default %(default)s)")
    parser.add_argument("--burners", type=int, default=os.cpu_count(), help="processes that compute (default: cores)")
    parser.add_argument("--seed", type=int, default=1, help="of questions and arrivals (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    results: dict[str, Value] = {}
    notes = []
    async with Workbench() as bench:
        upstream = await start_upstream(bench, Script())
        models = {f"after-{first_byte_ms:g}-ms": first_byte_ms for first_byte_ms in options.first_byte_ms}
        gateway = await start_gateway_with(bench, _policy(upstream.admin.url, models))
        await until_encoding(gateway.address, gateway.admin, next(iter(models)), _KEY)
        for model, first_byte_ms in models.items():
            found = await _measured(gateway, model, first_byte_ms, options)
            results |= {f"{name}_after_{first_byte_ms:g}_ms": value for name, value in found.items()}
            notes.append(_line(first_byte_ms, found))
    return Card(
        bench="busy_lookups",
        arrivals=f"Poisson, {options.rate:g} per s, {options.burners} processes that compute",
        results=results,
        notes=tuple(notes),
    )


def _policy(url: str, models: Mapping[str, float]) -> dict[str, object]:
    rule = {"mode": "exact_then_semantic", "scope": "tenant", "ttl_s": 3600}
    cache = {**rule, "max_error_ratio": 0.05, "audit_ratio": 0.0}
    return {
        "schema_version": 1,
        "deployments": [{"id": name, "url": url, "model": name, "limits": {"max_in_flight": 1000}} for name in models],
        "routes": [
            {"id": name, "match": {"models": [name]}, "select": {"candidates": [name]}, "cache": cache}
            for name in models
        ],
        "tenants": [{"id": "busy", "keys": [{"id": "k", "sha256": sha256(_SECRET.encode()).hexdigest()}]}],
    }


async def _measured(gateway: Server, model: str, first_byte_ms: float, options: argparse.Namespace) -> dict[str, Value]:
    rng = random.Random(f"{options.seed} {model}")
    arrivals = list(poisson_arrivals(options.rate, options.seconds, rng))
    known = _unique_pairs(options.seed, len(arrivals) // 2)
    await _fill(gateway, model, [cached for cached, _ in known])
    new = (f"Where does one find the door number {number} of the {model} building?" for number in count())
    texts = [text for _, text in known] + [next(new) for _ in range(len(arrivals) - len(known))]
    rng.shuffle(texts)
    user = f"script:first_byte_ms={first_byte_ms:g},num_chunks=4,chunks_per_s=50"
    requests = [
        request_bytes("POST", "/v1/chat/completions", chat_body(model, text, stream=True, user=user), _KEY)
        for text in texts
    ]
    before = await _lookups(gateway)
    with _busy(options.burners):
        await run_open_loop(gateway.address, requests, arrivals)
    after = await _lookups(gateway)
    counts = {reason: after[reason] - before[reason] for reason in _REASONS}
    num_begun = sum(num for reason, num in counts.items() if reason not in _NOT_BEGUN)
    return {
        "begun_ratio": num_begun / len(arrivals),
        "late_of_begun": counts["late"] / max(num_begun, 1.0),
        "skipped_ratio": counts["skipped"] / len(arrivals),
        "hits_of_known": counts["similar"] / max(len(known), 1),
    }


def _line(first_byte_ms: float, found: Mapping[str, Value]) -> str:
    shares = ", ".join(f"{name} {value:.1%}" for name, value in found.items() if isinstance(value, float))
    return f"first byte after {first_byte_ms:g} ms: {shares}"


def _unique_pairs(seed: int, num: int) -> list[tuple[str, str]]:
    """Return two wordings of so many questions, no wording twice."""
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    for cached, text in paraphrases(seed):
        if len(found) == num:
            break
        if seen.isdisjoint((cached, text)):
            found.append((cached, text))
            seen |= {cached, text}
    return found


async def _fill(gateway: Server, model: str, texts: list[str]) -> None:
    """Store an answer to each text. Raises OSError if one fails, or TimeoutError if they are not indexed in time."""
    before = await metric(gateway.admin, "penstock_cache_index_entries")
    connection = await LoadConnection.open(gateway.address)
    num_stored = 0
    for text in texts:
        body = chat_body(model, text, user=_FILL)
        exchange = await connection.exchange(request_bytes("POST", "/v1/chat/completions", body, _KEY))
        if not exchange.is_ok:
            raise OSError(f"a question: {exchange.error or exchange.status}")
        num_stored += b"\r\nx-penstock-cache: miss" in connection.scanner.head
    connection.close()
    async with asyncio.timeout(_PATIENCE_S):
        while await metric(gateway.admin, "penstock_cache_index_entries") < before + num_stored:
            await asyncio.sleep(0.1)


async def _lookups(gateway: Server) -> dict[str, float]:
    return {
        reason: await metric(gateway.admin, f'penstock_cache_lookups_total{{reason="{reason}",result="{result}"}}')
        for reason in _REASONS
        for result in ("hit_semantic" if reason in ("similar", "unguarded") else "miss",)
    }


@contextmanager
def _busy(num: int) -> Iterator[None]:
    """Keep so many processes computing."""
    context = get_context("spawn")
    burners = [context.Process(target=_burn, daemon=True) for _ in range(num)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


def _burn() -> None:
    while True:
        pass
