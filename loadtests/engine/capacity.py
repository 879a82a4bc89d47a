"""What a plan of `penstock capacity` is worth: the rate that it gives a replica beside the rate that one really keeps.

One engine, alone, and requests of one length as a Poisson process, each due at its instant whatever became of the
others. The command itself is called, of the running engine, after the engine has served half of what was predicted
before: that is when somebody would call. Then the highest rate is searched for at which the targets are really stored:
up or down by thirds from the predicted one, then the middle between what held and what did not. Every round does both
anew, so that a machine that changes its pace troubles both alike."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from loadtests.clients.chat_streams import Slo
from loadtests.clients.completions import TokenStream, stream_tokens
from loadtests.clients.http_client import Address, clock
from loadtests.clients.open_loop import Pacer, poisson_arrivals
from loadtests.engine.part import Prompts
from loadtests.harness.card import Card, Value
from loadtests.harness.measures import percentile
from loadtests.harness.processes import ProcessFailed, Workbench, raise_fd_limit, split_cores
from loadtests.harness.stack import start_engine

_STEP = 4 / 3
_MOST_STEPS = 12
_TEACHING_RATE = 2.0
_TAUGHT_AT_ONCE = (1, 2, 4, 8)
"""Requests, before those: an engine that is done with each before the next comes has seen no step of several rows."""
_SETTLE_SHARE = 0.25
"""Share of a trial, at its start, that is not evaluated because sequences still fill the engine."""
_DRAIN_TARGETS = 4.0
"""So many first-token targets after the last request whoever has no first token yet is given up."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--model", type=Path, default=Path("engine/bundled/models/penstock-large"), help="folder")
    parser.add_argument("--threads", type=int, default=1, help="of the engine (default %(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=200, help="of every request (default %(default)s)")
    parser.add_argument("--output-tokens", type=int, default=60, help="of every answer (default %(default)s)")
    parser.add_argument("--ttft-p95-ms", type=float, default=500.0, help="target (default %(default)s)")
    parser.add_argument("--tpot-ms", type=float, default=30.0, help="target, of the mean (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=12.0, help="of one rate, at least (default %(default)s)")
    parser.add_argument("--requests", type=int, default=60, help="of one rate, about, at least (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of prediction and search (default %(default)s)")
    parser.add_argument("--precision", type=float, default=0.05, help="of the rate found (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of prompts and arrivals (default %(default)s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What the command states of one replica at its most."""

    rate_per_s: float
    bound: str
    ttft_p95_s: float
    tpot_s: float

    @classmethod
    def read(cls, document: str) -> Predicted:
        """From its JSON."""
        plan = json.loads(document)["plan"]
        most = plan["per_replica"]
        return cls(
            rate_per_s=most["requests_per_s"],
            bound=plan["bound"],
            ttft_p95_s=most["ttft_p95_s"],
            tpot_s=most["step_s"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one rate came to."""

    rate_per_s: float
    ttft_p95_s: float
    """Infinite when more than a twentieth had no first token at all."""
    tpot_s: float
    """Mean over requests."""
    num_requests: int

    @classmethod
    def of(cls, rate_per_s: float, streams: Sequence[TokenStream]) -> Trial:
        """Of the streams that are evaluated; `sent_at` of each is when it was due."""
        first = [stream.ttft_s if stream.instants else math.inf for stream in streams]
        paces = [
            (stream.instants[-1] - stream.instants[0]) / (stream.num_tokens - 1)
            for stream in streams
            if stream.num_tokens > 1
        ]
        return cls(
            rate_per_s=rate_per_s,
            ttft_p95_s=_upper(first, 0.95),
            tpot_s=mean(paces) if paces else math.inf,
            num_requests=len(streams),
        )

    def keeps(self, slo: Slo) -> bool:
        """Whether both targets hold."""
        return self.ttft_p95_s <= slo.ttft_s and self.tpot_s <= slo.tpot_s

    def __str__(self) -> str:
        return (
            f"{self.rate_per_s:7.2f} per s: first token p95 {self.ttft_p95_s * 1e3:7.1f} ms, "
            f"per token {self.tpot_s * 1e3:6.2f} ms ({self.num_requests} requests)"
        )


def _upper(samples: Sequence[float], share: float) -> float:
    """A percentile that infinite samples do not turn into no number."""
    finite = [sample for sample in samples if sample < math.inf]
    if len(samples) - len(finite) > (1.0 - share) * len(samples) or not finite:
        return math.inf
    return percentile(finite + [max(finite)] * (len(samples) - len(finite)), share)


async def find_most(holds: Callable[[float], Awaitable[bool]], start: float, precision: float) -> float:
    """The highest rate found to hold, to within `precision` of one that does not. Raises ProcessFailed for none."""
    low, high, rate = 0.0, math.inf, start
    for _ in range(_MOST_STEPS):
        if await holds(rate):
            low, rate = rate, rate * _STEP
        else:
            high, rate = rate, rate / _STEP
        if low and high < math.inf:
            break
    else:
        raise ProcessFailed(f"no limit was found between {low:.3g} and {high:.3g} requests per s")
    while high / low > 1.0 + precision:
        middle = math.sqrt(low * high)
        if await holds(middle):
            low = middle
        else:
            high = middle
    return low


class Replica:
    """One engine, what is required of it, and what the command states of it."""

    def __init__(self, address: Address, options: argparse.Namespace) -> None:
        self._address = address
        self._options = options
        self._prompts = Prompts(options.model.resolve(), options.seed)
        self.slo = Slo(ttft_s=options.ttft_p95_ms / 1e3, tpot_s=options.tpot_ms / 1e3)

    async def predict(self) -> Predicted:
        """Call `penstock capacity`. Raises ProcessFailed with what it states."""
        options = self._options
        targets = {
            "engine": self._address.url,
            "rps": 1,
            "prompt-tokens": options.prompt_tokens,
            "output-tokens": options.output_tokens,
            "ttft-p95-ms": options.ttft_p95_ms,
            "tpot-ms": options.tpot_ms,
        }
        flags = [text for name, value in targets.items() for text in (f"--{name}", str(value))]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "capacity", *flags, "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, complaint = await process.communicate()
        if process.returncode:
            raise ProcessFailed(f"penstock capacity: {complaint.decode(errors='replace').strip()}")
        return Predicted.read(output.decode())

    async def teach(self) -> None:
        """Have it run steps unlike one another: prompts of several lengths, several at once."""
        for count in _TAUGHT_AT_ONCE:
            whole = self._options.prompt_tokens
            prompts = [self._prompts.batch(1, max(1, whole * (1 + place) // count))[0] for place in range(count)]
            streaming = (stream_tokens(self._address, prompt, self._options.output_tokens) for prompt in prompts)
            await asyncio.gather(*streaming)
        await self.offer(_TEACHING_RATE)

    async def offer(self, rate_per_s: float) -> Trial:
        """Requests at this rate for so many seconds, until each has been answered or given up."""
        seconds = max(self._options.seconds, self._options.requests / rate_per_s)
        arrivals = list(poisson_arrivals(rate_per_s, seconds, self._prompts.rng)) or [0.0]
        prompts = self._prompts.batch(len(arrivals), self._options.prompt_tokens)  # before the clock runs
        started_at = clock()
        streams, tasks = [], []
        with Pacer() as pacer:
            for offset, prompt in zip(arrivals, prompts, strict=True):
                await pacer.until(started_at + offset)
                stream = TokenStream(sent_at=started_at + offset)
                streams.append(stream)
                streaming = stream_tokens(self._address, prompt, self._options.output_tokens, seen=stream)
                tasks.append(asyncio.create_task(streaming))
        await self._drain(tasks)
        settled_at = started_at + _SETTLE_SHARE * seconds
        return Trial.of(rate_per_s, [stream for stream in streams if stream.sent_at >= settled_at] or streams)

    async def _drain(self, tasks: Sequence[asyncio.Task[TokenStream]]) -> None:
        whole_s = _DRAIN_TARGETS * (self.slo.ttft_s + self._options.output_tokens * self.slo.tpot_s)
        done, late = await asyncio.wait(tasks, timeout=whole_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in done:
            task.result()  # an engine that fails ends the bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One prediction, and what was found."""

    predicted: Predicted
    measured_per_s: float
    trials: tuple[Trial, ...]

    @property
    def ratio(self) -> float:
        """Above 1: a plan by it would have too few replicas."""
        return self.predicted.rate_per_s / self.measured_per_s

    def lines(self) -> list[str]:
        """For people."""
        forecast = self.predicted
        head = (
            f"predicted {forecast.rate_per_s:.2f} per s (bound {forecast.bound}; first token p95 "
            f"{forecast.ttft_p95_s * 1e3:.0f} ms, per token {forecast.tpot_s * 1e3:.1f} ms), "
            f"held {self.measured_per_s:.2f}: ratio {self.ratio:.2f}"
        )
        return [head, *(f"  {trial}" for trial in sorted(self.trials, key=lambda trial: trial.rate_per_s))]


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    raise_fd_limit()
    client_cores, engine_cores = split_cores()
    async with Workbench() as bench:
        flags = ("--num-threads", str(options.threads), "--log-level", "warning")
        waits = ("--max-queue-wait-s", "3600", "--max-batch-wait-s", "3600")  # nothing is refused: it is late instead
        engine = await start_engine(bench, options.model.resolve(), *flags, *waits, cores=engine_cores)
        if client_cores is not None:
            os.sched_setaffinity(0, client_cores)
        replica = Replica(engine.address, options)
        await replica.teach()  # nothing is known of steps that were never run
        predicted = await replica.predict()
        repeats = [await _one_round(replica, predicted.rate_per_s, options.precision) for _ in range(options.repeats)]
    return card(options, repeats)


async def _one_round(replica: Replica, start: float, precision: float) -> Round:
    await replica.offer(start / 2)
    predicted = await replica.predict()
    trials: list[Trial] = []

    async def holds(rate_per_s: float) -> bool:
        trials.append(await replica.offer(rate_per_s))
        return trials[-1].keeps(replica.slo)

    measured = await find_most(holds, predicted.rate_per_s, precision)
    return Round(predicted=predicted, measured_per_s=measured, trials=tuple(trials))


def card(options: argparse.Namespace, repeats: Sequence[Round]) -> Card:
    """Medians over the repeats."""
    results: dict[str, Value] = {
        "predicted_per_s": median(one.predicted.rate_per_s for one in repeats),
        "measured_per_s": median(one.measured_per_s for one in repeats),
        "predicted_over_measured": median(one.ratio for one in repeats),
        "worst_ratio": max((one.ratio for one in repeats), key=lambda ratio: abs(math.log(ratio))),
        "bound": repeats[-1].predicted.bound,
        "repeats": len(repeats),
        "prompt_tokens": options.prompt_tokens,
        "output_tokens": options.output_tokens,
        "ttft_p95_target_ms": options.ttft_p95_ms,
        "tpot_target_ms": options.tpot_ms,
        "threads": options.threads,
    }
    return Card(
        bench="capacity",
        arrivals=f"open loop, Poisson, {options.seconds:g} s or {options.requests} requests a rate",
        results=results,
        notes=tuple(line for one in repeats for line in one.lines()),
    )
