"""Similar questions: what a semantic hit takes one by one and at a steady rate, over HTTP with the real encoder.

Each question is sent once in one wording and then in others. The scripted upstream is slow, so
that whatever is fast came from the cache; what the match model refuses is left out and counted.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass

from loadtests.clients.http_client import Address, LoadConnection, request_bytes
from loadtests.clients.open_loop import poisson_arrivals, run_open_loop
from loadtests.harness.stack import chat_body, metric

RATE_PER_S = 50.0
SLOW = "script:first_byte_ms=400,num_chunks=4"
"""Script for the upstream, in the field `user`: far slower than any lookup."""
_HIT = b"\r\nx-penstock-cache: hit-semantic"
_PATIENCE_S = 120.0
_PAUSE_S = 0.02
_SETTLE_S = 1.0

_DEEDS = (
    *("bake sourdough bread", "replace a bicycle chain", "grow tomatoes on a balcony", "tune an acoustic guitar"),
    *("remove rust from steel", "write a cover letter", "train for a marathon", "insulate an attic"),
    *("descale a coffee machine", "fold a fitted sheet", "identify edible mushrooms", "sharpen a kitchen knife"),
    *("repair a leaking tap", "prune apple trees", "learn to juggle", "compress a video file"),
    *("knit a scarf", "calibrate a telescope", "brew ginger beer", "frame a picture"),
    *("measure blood pressure", "restore old photographs", "build a birdhouse", "clean a clarinet"),
)
_WORDINGS = ("How do I {}?", "How can I {}?", "What is the best way to {}?", "How do you {}?")
NUM_WORDINGS = len(_WORDINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarResult:
    """Seconds from sending to the last byte."""

    one_by_one_s: list[float]
    steady_s: list[float]
    num_sent: int
    num_served: int
    """Number of other wordings that the match model let pass."""
    num_failed: int


def questions(wording: int) -> list[str]:
    """Every question, in one wording."""
    return [_WORDINGS[wording].format(deed) for deed in _DEEDS]


async def until_encoding(
    address: Address, admin: Address, model: str, headers: tuple[tuple[str, str], ...], **fields: object
) -> None:
    """Return once a question was encoded; the first start makes the encoder's graph. Raises OSError when it does not
    come. `fields` are more of the request."""
    connection = await LoadConnection.open(address)
    for number in itertools.count():
        body = chat_body(model, f"Is anybody there at door number {number} of it?", **fields)
        await connection.exchange(request_bytes("POST", "/v1/chat/completions", body, headers))
        if await metric(admin, 'penstock_embeddings_total{result="encoded"}') > 0:
            break
        if number * 0.1 > _PATIENCE_S:
            raise OSError("the encoder did not get ready")
        await asyncio.sleep(0.1)
    connection.close()


async def run_similar(
    address: Address, admin: Address, model: str, headers: tuple[tuple[str, str], ...], seconds: float, seed: int
) -> SimilarResult:
    """Fill the cache, then send in other words. Raises OSError when a question fails."""
    connection = await LoadConnection.open(address)
    for text in questions(0):
        await _send(connection, model, text, headers, "script:num_chunks=4")
        await asyncio.sleep(_PAUSE_S)
    await asyncio.sleep(_SETTLE_S)
    served: list[bytes] = []
    texts_sent = [text for wording in range(1, len(_WORDINGS)) for text in questions(wording)]
    for text in texts_sent:
        took_s = await _send(connection, model, text, headers, SLOW)
        if took_s is not None:
            served.append(_request(model, text, headers, SLOW))
    if not served:
        raise OSError("no question in other words was answered from the cache")
    one_by_one, num_failed = await _one_by_one(connection, served, seconds * 0.4)
    rng = random.Random(seed)
    steady = await run_open_loop(address, served, list(poisson_arrivals(RATE_PER_S, seconds * 0.6, rng)))
    connection.close()
    return SimilarResult(
        one_by_one_s=one_by_one,
        steady_s=steady.latencies_s,
        num_sent=len(texts_sent),
        num_served=len(served),
        num_failed=num_failed + steady.num_failed,
    )


async def _one_by_one(connection: LoadConnection, requests: list[bytes], seconds: float) -> tuple[list[float], int]:
    took: list[float] = []
    num_failed = 0
    until = asyncio.get_running_loop().time() + seconds
    for request in itertools.cycle(requests):
        if asyncio.get_running_loop().time() >= until:
            break
        exchange = await connection.exchange(request)
        if exchange.is_ok and _HIT in connection.scanner.head:
            took.append(exchange.ended_at - exchange.sent_at)
        else:
            num_failed += 1
    return took, num_failed


async def _send(
    connection: LoadConnection,
    model: str,
    text: str,
    headers: tuple[tuple[str, str], ...],
    script: str,
) -> float | None:
    """Seconds that a semantic hit took, None for anything else. Raises OSError when it fails."""
    exchange = await connection.exchange(_request(model, text, headers, script))
    if not exchange.is_ok:
        raise OSError(f"a question: {exchange.error or exchange.status}")
    return exchange.ended_at - exchange.sent_at if _HIT in connection.scanner.head else None


def _request(model: str, text: str, headers: tuple[tuple[str, str], ...], script: str) -> bytes:
    fields: Mapping[str, object] = {"user": script}
    return request_bytes("POST", "/v1/chat/completions", chat_body(model, text, **fields), headers)
