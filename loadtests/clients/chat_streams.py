"""An open-loop client for chat streams of many kinds, and the record of every request it offered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadtests.clients.http_client import Address, request_bytes
from loadtests.clients.open_loop import Call, OpenLoop
from loadtests.harness.measures import percentile
from loadtests.overload.workload import Offer

_BYTES_PER_TOKEN = 4
_BODY_OVERHEAD = 200
_CONTENT_MARK = b'"content":"x'
_PATH = "/v1/chat/completions"
_HEADER = re.compile(rb"\r\n(x-penstock-[a-z-]+|retry-after-ms): ([^\r]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a request must meet to count as good."""

    ttft_s: float
    tpot_s: float


@dataclass(slots=True, eq=False)
class Served:
    """One offered request and what became of it; instants are of `http_client.clock`."""

    number: int
    offer: Offer
    due_at: float = 0.0
    sent_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
    ended_at: float = 0.0
    left_at: float = 0.0
    num_tokens: int = 0
    status: int = 0
    is_whole: bool = False
    error: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ttft_s(self) -> float:
        """Due to first token."""
        return self.first_at - self.due_at

    @property
    def tpot_s(self) -> float:
        """Mean time between tokens; 0 for fewer than two."""
        return (self.last_at - self.first_at) / (self.num_tokens - 1) if self.num_tokens > 1 else 0.0

    @property
    def is_refused(self) -> bool:
        """The gateway refused."""
        return self.status in (429, 503)

    @property
    def is_admitted(self) -> bool:
        """At least one token came."""
        return self.first_at > 0

    def note(self, call: Call) -> None:
        """Take over what became of the call."""
        self.due_at, self.sent_at, self.left_at, self.error = call.due_at, call.sent_at, call.left_at, call.error
        exchange = call.exchange
        if exchange is None or self.left_at:
            return
        self.ended_at, self.status, self.error = exchange.ended_at, exchange.status, exchange.error
        self.is_whole = exchange.is_ok and exchange.has_done and self.num_tokens > 0
        self.headers = {name.decode(): value.decode() for name, value in _HEADER.findall(call.head)}

    def is_good(self, slo: Slo) -> bool:
        """Answered whole and within both targets."""
        return self.is_whole and self.ttft_s <= slo.ttft_s and self.tpot_s <= slo.tpot_s

    def as_line(self, slo: Slo) -> str:
        """One JSON line; times in milliseconds, None where there is none."""
        first = self.first_at > 0
        values = {
            "number": self.number,
            "due_s": round(self.offer.at_s, 4),
            "lane": self.offer.lane,
            "tenant": self.offer.tenant,
            "prompt_tokens": self.offer.prompt_tokens,
            "output_tokens": self.offer.output_tokens,
            "status": self.status,
            "tokens": self.num_tokens,
            "ttft_ms": round(self.ttft_s * 1e3, 2) if first else None,
            "tpot_ms": round(self.tpot_s * 1e3, 3) if first else None,
            "total_ms": round((self.ended_at - self.due_at) * 1e3, 2) if self.ended_at else None,
            "good": self.is_good(slo),
            "left": self.left_at > 0,
            "error": self.error,
            **{name.removeprefix("x-penstock-").replace("-", "_"): value for name, value in self.headers.items()},
        }
        return json.dumps(values)


class OfferClient:
    """Sends every offer when it is due over keep-alive connections; opens as many as needed."""

    def __init__(self, address: Address, *, model: str = "scripted", max_tokens: int = 512) -> None:
        self._loop = OpenLoop(address)
        self._model = model
        self._max_tokens = max_tokens
        self.keys: Mapping[int, str] = {}
        """API key of each tenant; none for one that is not named."""

    async def run(self, offers: Sequence[Offer], *, first_number: int = 0, drain_s: float = 60.0) -> list[Served]:
        """Offer all; return when every answer came, or `drain_s` after the last request with the rest given up."""
        served = [Served(first_number + number, offer) for number, offer in enumerate(offers)]
        calls = [self._call(one) for one in served]
        await self._loop.run(calls, drain_s=drain_s)
        for one, call in zip(served, calls, strict=True):
            one.note(call)
        return served

    async def aclose(self) -> None:
        """Close the connections."""
        await self._loop.aclose()

    def _call(self, one: Served) -> Call:
        def on_piece(now: float, data: bytes) -> None:
            count = data.count(_CONTENT_MARK)
            if count:
                one.first_at = one.first_at or now
                one.last_at = now
                one.num_tokens += count

        return Call(one.offer.at_s, lambda: self._request(one), on_piece, one.offer.leaves_after_s)

    def _request(self, one: Served) -> bytes:
        offer = one.offer
        fill = max(1, offer.prompt_tokens * _BYTES_PER_TOKEN - _BODY_OVERHEAD)
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt_text(offer, fill, one.number)}],
            "max_tokens": self._max_tokens,
            "stream": True,
            "user": f"script:output_tokens={offer.output_tokens},id={one.number}",
        }
        headers = [("x-penstock-priority", offer.lane)]
        key = self.keys.get(offer.tenant)
        if key is not None:
            headers.append(("authorization", f"Bearer {key}"))
        return request_bytes("POST", _PATH, json.dumps(body).encode(), tuple(headers))


def prompt_text(offer: Offer, num_bytes: int, number: int) -> str:
    """So many letters, unlike those of every other number; requests with a common prefix of blocks have that much text
    in common."""
    if not offer.prefix:
        return f"{number:08d}".ljust(num_bytes, "q")[:num_bytes]
    size = max(1, num_bytes // len(offer.prefix))
    return "".join(f"{block:>{size}d}"[:size] for block in offer.prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One step's requests in numbers; shares are of all that were offered."""

    num_offered: int
    good_share: float
    goodput_per_s: float
    refused_share: float
    admitted_ttft_p50_ms: float
    admitted_ttft_p99_ms: float
    admitted_tpot_p99_ms: float
    refuse_p99_ms: float
    num_failed: int
    """Neither whole nor refused nor left by their own client."""

    @classmethod
    def of(cls, served: Sequence[Served], slo: Slo, seconds: float) -> Tally:
        """Count them; `seconds` is the time over which they were offered."""
        admitted = [one for one in served if one.is_admitted]
        refused = [one for one in served if one.is_refused]
        num_good = sum(one.is_good(slo) for one in served)
        failed = [one for one in served if not (one.is_whole or one.is_refused or one.left_at)]
        ttft = [one.ttft_s for one in admitted]
        return cls(
            num_offered=len(served),
            good_share=num_good / max(1, len(served)),
            goodput_per_s=num_good / seconds,
            refused_share=len(refused) / max(1, len(served)),
            admitted_ttft_p50_ms=percentile(ttft, 0.5) * 1e3,
            admitted_ttft_p99_ms=percentile(ttft, 0.99) * 1e3,
            admitted_tpot_p99_ms=percentile([one.tpot_s for one in admitted], 0.99) * 1e3,
            refuse_p99_ms=percentile([one.ended_at - one.due_at for one in refused], 0.99) * 1e3,
            num_failed=len(failed),
        )

    def __str__(self) -> str:
        return (
            f"{self.num_offered:6d} offered, {100 * self.good_share:5.1f} % good ({self.goodput_per_s:6.1f} per s), "
            f"{100 * self.refused_share:5.1f} % refused (p99 {self.refuse_p99_ms:.1f} ms), admitted first token p50 "
            f"{self.admitted_ttft_p50_ms:.0f} p99 {self.admitted_ttft_p99_ms:.0f} ms, per token p99 "
            f"{self.admitted_tpot_p99_ms:.1f} ms, {self.num_failed} failed"
        )
