"""Traffic from the `openai` SDK as products use it: streams, the SDK's own time limit, and its two retries."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loadtests.clients.chat_streams import Slo, prompt_text
from loadtests.clients.http_client import Address, clock
from loadtests.clients.open_loop import Pacer
from loadtests.overload.workload import Lengths, Offer, poisson_offers

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_BYTES_PER_TOKEN = 4
_RETRIES = 2
_TIMEOUT_S = 10.0


@dataclass(slots=True)
class RetryTally:
    """Calls of the SDK, each with all its retries."""

    num_offered: int = 0
    num_answered: int = 0
    num_good: int = 0
    """Answered, and within both targets counted from the call."""
    errors: dict[str, int] = field(default_factory=dict)
    late_s: list[float] = field(default_factory=list)
    """How much later than due each call was made: believe nothing when that is more than a little."""

    def __str__(self) -> str:
        message = ", ".join(f"{count} {name}" for name, count in sorted(self.errors.items()))
        return f"{self.num_offered} calls, {self.num_answered} answered, {self.num_good} good; {message or 'no errors'}"


async def offer_with_retries(
    address: Address, rate_per_s: float, seconds: float, rng: random.Random, slo: Slo, *, first_number: int
) -> RetryTally:
    """Open loop of SDK calls. Raises ImportError without the `openai` package."""
    from openai import AsyncOpenAI

    tally = RetryTally()
    offers = list(poisson_offers(rate_per_s, seconds, rng, Lengths()))
    base_url = f"http://127.0.0.1:{address.port}/v1"
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=_RETRIES, timeout=_TIMEOUT_S) as client:
        started_at = clock()
        calls = []
        with Pacer() as pacer:
            for number, offer in enumerate(offers):
                await pacer.until(started_at + offer.at_s)
                call = _call(client, offer, first_number + number, started_at + offer.at_s, slo, tally)
                calls.append(asyncio.ensure_future(call))
        await asyncio.gather(*calls)
    return tally


async def _call(client: AsyncOpenAI, offer: Offer, number: int, due_at: float, slo: Slo, tally: RetryTally) -> None:
    from openai import OpenAIError

    tally.num_offered += 1
    tally.late_s.append(clock() - due_at)
    first_at = last_at = 0.0
    num_tokens = 0
    text = prompt_text(offer, max(1, offer.prompt_tokens * _BYTES_PER_TOKEN - 200), number)
    try:
        stream = await client.chat.completions.create(
            model="scripted",
            messages=[{"role": "user", "content": text}],
            max_tokens=512,
            stream=True,
            user=f"script:output_tokens={offer.output_tokens},id={number}",
        )
        async for event in stream:
            if event.choices and event.choices[0].delta.content:
                last_at = clock()
                first_at = first_at or last_at
                num_tokens += 1
    except OpenAIError as error:
        name = type(error).__name__
        tally.errors[name] = tally.errors.get(name, 0) + 1
        return
    tally.num_answered += 1
    tpot_s = (last_at - first_at) / (num_tokens - 1) if num_tokens > 1 else 0.0
    tally.num_good += first_at - due_at <= slo.ttft_s and tpot_s <= slo.tpot_s
