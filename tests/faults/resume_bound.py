"""The bound of a pause: the time of a fresh request on the other engine, and the prefill of the client's tokens.

Both are measured in the same run and on the same engine as the pauses. The first is the time to the first token of as
many requests of the same kinds at once, whose prompts no cache has. The second is the time that an idle engine takes
for each token of a stream that it continues; streams that move together count the tokens of all of them. Pauses count
from the moment that the gateway notices the failure.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import httpx

from gateway.forwarding.resume.resume_order import RESUME_HEADER, ResumeOrder
from gateway.forwarding.resume.token_channel import TokenChannel
from tests.faults.resume_stack import KEY_VARIABLE, Pause, path_of, stream_of

_PERCENT: Final = 99
_NUM_GIVEN: Final = 128
_NUM_MEASURED: Final = 3


@dataclass(slots=True)
class PauseBound:
    """Pauses of one run, and what bounds them."""

    failovers_s: dict[str, list[float]] = field(default_factory=dict)
    """Seconds to the first token of fresh requests, by the fate of the engine that they stand for."""
    prefill_s: list[float] = field(default_factory=list)
    """Seconds for each token of a stream that goes on."""
    pauses_s: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """Pauses in seconds and tokens that were computed again meanwhile, by the fate of the engine."""

    def add(self, fate: str, pauses: Sequence[Pause], failovers_s: Sequence[float], *, is_at_once: bool) -> None:
        """Add what was measured; `is_at_once` if the streams moved together."""
        num_tokens = sum(pause.num_tokens for pause in pauses)
        self.pauses_s.setdefault(fate, []).extend(
            (pause.seconds, num_tokens if is_at_once else pause.num_tokens) for pause in pauses
        )
        self.failovers_s.setdefault(fate, []).extend(failovers_s)

    def report(self) -> dict[str, object]:
        """Return the figures: `is_held` is whether 99 % of the pauses are within their bounds."""
        per_token_s = median(self.prefill_s)
        rows: dict[str, object] = {}
        num_pauses = num_within = 0
        for fate, found in self.pauses_s.items():
            if not found:
                continue
            failover_s = percentile(self.failovers_s[fate], _PERCENT)
            pauses_s, bounds_s = [one for one, _ in found], [failover_s + per_token_s * num for _, num in found]
            within = sum(pause_s <= bound_s for pause_s, bound_s in zip(pauses_s, bounds_s, strict=True))
            num_pauses, num_within = num_pauses + len(found), num_within + within
            rows[fate] = {
                "pauses": len(found),
                "pause_p50_ms": _ms(percentile(pauses_s, 50)),
                "pause_p99_ms": _ms(percentile(pauses_s, _PERCENT)),
                "failover_p50_ms": _ms(percentile(self.failovers_s[fate], 50)),
                "failover_p99_ms": _ms(failover_s),
                "bound_p50_ms": _ms(percentile(bounds_s, 50)),
                "bound_p99_ms": _ms(percentile(bounds_s, _PERCENT)),
                "within": within,
            }
        return {
            "prefill_ms_per_token": round(per_token_s * 1000, 4),
            "within_bound": num_within,
            "is_held": num_within >= num_pauses * _PERCENT / 100,
            "by_fate": rows,
        }


async def fresh_ttfts_s(url: str, kinds: Sequence[str], rng: random.Random) -> list[float]:
    """Return the seconds to the first token of requests for new prompts of these kinds, sent at once."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        return await asyncio.gather(*(_ttft_s(client, _fresh(kind, rng)) for kind in kinds))


async def prefill_s_per_token(url: str, rng: random.Random) -> float:
    """Return the seconds that an idle engine takes for each token of a stream that it continues."""
    key = os.environ[KEY_VARIABLE].encode()
    fresh_s, continued_s = [], []
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for _ in range(_NUM_MEASURED):
            body = {**_fresh("greedy", rng), "max_tokens": _NUM_GIVEN + 2}
            channel = await _read_tokens(client, body, ResumeOrder("best_effort", 1), key)
            token_ids = channel.choices[0].token_ids
            del token_ids[_NUM_GIVEN:]
            rng.shuffle(token_ids)  # the engine has the keys and values of the tokens in their order
            fresh_s.append(await _ttft_s(client, body))
            order = ResumeOrder("best_effort", 1, channel)
            continued_s.append(await _ttft_s(client, body, order, key))
    return (median(continued_s) - median(fresh_s)) / _NUM_GIVEN


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


def _fresh(kind: str, rng: random.Random) -> dict[str, Any]:
    body = stream_of(kind)
    if "prompt" in body:
        prompts = [body["prompt"]] if isinstance(body["prompt"], str) else body["prompt"]
        return {**body, "model": "small", "prompt": [f"{rng.random()} {prompt}" for prompt in prompts]}
    (message,) = body["messages"]
    return {**body, "model": "small", "messages": [{**message, "content": f"{rng.random()} {message['content']}"}]}


async def _ttft_s(
    client: httpx.AsyncClient, body: dict[str, Any], order: ResumeOrder | None = None, key: bytes = b""
) -> float:
    """Return the seconds from a request to the first event with content, or to the end of an empty answer."""
    began_at = time.monotonic()
    async with client.stream("POST", path_of(body), **_request(body, order, key)) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line.startswith("data: {") and _has_content(json.loads(line[6:])):
                return time.monotonic() - began_at
    raise AssertionError("the engine answered nothing")


async def _read_tokens(client: httpx.AsyncClient, body: dict[str, Any], order: ResumeOrder, key: bytes) -> TokenChannel:
    """Return the tokens of a whole stream."""
    async with client.stream("POST", path_of(body), **_request(body, order, key)) as reply:
        channel = order.channel([(RESUME_HEADER, reply.headers[RESUME_HEADER.decode()].encode())])
        assert isinstance(channel, TokenChannel)
        async for piece in reply.aiter_bytes():
            channel.feed(piece)
    return channel


def _request(body: dict[str, Any], order: ResumeOrder | None, key: bytes) -> dict[str, Any]:
    content, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    if order is not None:
        name, value = order.header(key)
        content, headers[name.decode()] = order.in_body(content), value.decode()
    return {"content": content, "headers": headers}


def _has_content(event: dict[str, Any]) -> bool:
    for choice in event["choices"]:  # an answer may also be empty
        content = choice.get("text") or any(value for name, value in choice.get("delta", {}).items() if name != "role")
        if choice["finish_reason"] or content:
            return True
    return False


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
