"""A scheduler in front of a machine with stated step times, in virtual time: forecasts beside what happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from engine.forecast.output_forecast import OutputForecast
from engine.forecast.step_time import StepShape, StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.protocol import Add, Lane, SamplingParams
from engine.scheduler.admission import Limits
from engine.scheduler.scheduler import Scheduler
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.step_output import SequenceResult, StepOutput
from engine.step.tally import CoreTotals

_END = 1
_WORD = 2
_VOCAB_SIZE = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One arrival; `num_output_tokens` is known to the machine alone."""

    at: float
    prompt: list[int]
    num_output_tokens: int
    lane: Lane = "interactive"
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What was forecast at an arrival, and what it became."""

    at: float
    lane: Lane
    forecast_s: float
    real_s: float


def step_seconds(shape: StepShape) -> float:
    """The machine: about what the bundled large model takes on two cores."""
    return 1.5e-3 + 2.5e-4 * shape.num_decode_seqs + 1.2e-4 * shape.num_prefill_tokens + 2e-7 * shape.num_context_tokens


class ModelledEngine:
    """Runs a trace of requests to its end."""

    def __init__(self, *, num_blocks: int = 4096, max_num_seqs: int = 16, max_num_batched_tokens: int = 256) -> None:
        self._step_time = StepTimeModel()
        self._blocks = BlockManager(num_blocks, 16)
        limits = Limits(
            max_model_len=4096,
            vocab_size=_VOCAB_SIZE,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_waiting=100_000,
        )
        self.scheduler = Scheduler(
            limits, self._blocks, forecast=OutputForecast(), step_time=self._step_time, tally=CoreTotals()
        )
        self.now = 0.0
        self.num_prompt_tokens = 0
        """Computed, cached ones not among them."""
        self.errors: dict[int, str] = {}
        self._lengths: dict[int, int] = {}
        self._forecasts: dict[int, tuple[float, Lane, float]] = {}
        self._ids = count()
        self._warm_up()

    def run(self, requests: list[Request]) -> list[Wait]:
        """Serve all of them; forecast beside real wait for each that started."""
        waits: list[Wait] = []
        coming = list(reversed(requests))
        while coming or self.scheduler.has_work:
            if not self.scheduler.has_work:
                self.now = max(self.now, coming[-1].at)
            while coming and coming[-1].at <= self.now:
                self._add(coming.pop())
            waits.extend(self._step())
        self.scheduler.check_integrity()
        return waits

    def _warm_up(self) -> None:
        for num_seqs in (0, 1, 4, 16):
            for num_tokens in (0, 16, 64, 256):
                for num_context in (100, 10_000):
                    shape = StepShape(num_seqs, num_tokens, num_context, num_tokens**2, min(1, num_tokens))
                    self._step_time.observe(shape, step_seconds(shape))

    def _add(self, request: Request) -> None:
        seq_id = next(self._ids)
        self._lengths[seq_id] = request.num_output_tokens
        forecast_s = self.scheduler.wait_forecast.lanes()[request.lane].forecast_wait_s
        # It came while a step ran and is taken in now; the forecast speaks of what is left.
        self._forecasts[seq_id] = (request.at, request.lane, forecast_s + self.now - request.at)
        params = SamplingParams(max_tokens=512, stop_token_ids=(_END,))
        add = Add(
            seq_id=seq_id,
            prompt_token_ids=request.prompt,
            params=params,
            lane=request.lane,
            deadline_s=request.deadline_s,
        )
        self.scheduler.add(add, request.at)

    def _step(self) -> Iterator[Wait]:
        batch = self.scheduler.schedule(self.now)
        seconds = step_seconds(batch.shape()) if batch.chunks else 1e-3
        self.now += seconds
        if batch.chunks:
            self._step_time.observe(batch.shape(), seconds)
        self.num_prompt_tokens += batch.shape().num_prefill_tokens
        self.scheduler.update_from_output(batch, self._output(batch), self.now)
        for output in self.scheduler.take_outputs():
            if output.finish_reason in ("stop", "length") and output.stages is not None:
                at, lane, forecast_s = self._forecasts[output.seq_id]
                yield Wait(at=at, lane=lane, forecast_s=forecast_s, real_s=output.stages.queue_s)
            elif output.finish_reason is not None:
                self.errors[output.seq_id] = output.error or ""

    def _output(self, batch: SchedulerOutput) -> StepOutput:
        return StepOutput(
            [SequenceResult([self._next_token(chunk)] if chunk.samples else []) for chunk in batch.chunks]
        )

    def _next_token(self, chunk: ScheduledChunk) -> int:
        is_last = chunk.seq.num_output_tokens + 1 >= self._lengths[chunk.seq.seq_id]
        return _END if is_last else _WORD


def conversation(
    rng: Random, *, per_second: float, seconds: float, num_shared_tokens: int = 400, mean_output: float = 60.0
) -> list[Request]:
    """Poisson arrivals of short prompts, most of them behind one of three shared beginnings; some long, some batch."""
    requests: list[Request] = []
    at = 0.0
    while (at := at + rng.expovariate(per_second)) < seconds:
        kind = rng.random()
        lane: Lane = "interactive" if kind < 0.8 else "long" if kind < 0.9 else "batch"
        num_own = rng.randint(1100, 1800) if lane == "long" else rng.randint(10, 120)
        shared = [rng.randrange(3) + 10] * num_shared_tokens if rng.random() < 0.8 else []
        own = [rng.randrange(100, _VOCAB_SIZE) for _ in range(num_own)]
        length = max(1, min(500, round(rng.expovariate(1 / mean_output))))
        requests.append(Request(at=at, prompt=shared + own, num_output_tokens=length, lane=lane))
    return requests
