"""How busy the core is, as the front and the gateway see it."""

from __future__ import annotations

import math

from engine.core.block_manager import BlockManager
from engine.core.output_forecast import OutputForecast
from engine.core.scheduler import Scheduler
from engine.core.step_time import StepShape, StepTimeModel
from engine.messages import Load

_RATE_WINDOW_S = 5.0


class LoadMeter:
    """Keeps the recent drain rate and forecasts the wait of a request that would arrive now."""

    def __init__(
        self,
        scheduler: Scheduler,
        blocks: BlockManager,
        step_time: StepTimeModel,
        forecast: OutputForecast,
        step_token_budget: int,
    ) -> None:
        self._scheduler = scheduler
        self._blocks = blocks
        self._step_time = step_time
        self._forecast = forecast
        self._budget = step_token_budget
        self._recent_tokens = 0.0
        self._recent_s = 0.0
        self._step_s = 0.0
        self._num_step_tokens = 0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step; idle time does not count, so the rate is what the core does when it is asked to."""
        self._step_s = seconds
        self._num_step_tokens = num_tokens
        kept = math.exp(-seconds / _RATE_WINDOW_S)
        self._recent_tokens = kept * self._recent_tokens + num_tokens
        self._recent_s = kept * self._recent_s + seconds

    def load(self) -> Load:
        """The load after the last step."""
        running = self._scheduler.running()
        return Load(
            num_running=len(running),
            num_waiting=self._scheduler.num_waiting,
            num_blocks_total=self._blocks.num_blocks,
            num_blocks_free=self._blocks.num_free,
            num_blocks_cached=self._blocks.num_cached,
            num_blocks_leaked=max(0, self._blocks.num_leaked(running)),
            step_s=self._step_s,
            num_step_tokens=self._num_step_tokens,
            waiting_prompt_tokens=self._scheduler.num_prefill_tokens,
            drain_tokens_per_s=self._recent_tokens / self._recent_s if self._recent_s else 0.0,
            forecast_wait_s=self._forecast_wait_s(),
        )

    def _forecast_wait_s(self) -> float:
        """Time until a short request that arrives now gets its first chunk.

        1. nothing runs or waits: none;
        2. rows are free: the steps that the prompt tokens ahead of it fill, or the one that runs;
        3. rows or blocks are short: besides, as many ends as stand between it and a row, at the rate the rows finish.
        """
        num_running, num_waiting = self._scheduler.num_running, self._scheduler.num_waiting
        if not num_running and not num_waiting:
            return 0.0
        num_tokens = self._scheduler.num_prefill_tokens
        room = max(1, self._budget - num_running)
        num_context = self._blocks.block_size * (self._blocks.num_blocks - self._blocks.num_free)
        full_step_s = self._step_time.predict(StepShape(num_running, min(room, num_tokens), num_context))
        wait_s = max(1, math.ceil(num_tokens / room)) * full_step_s
        num_free_rows = 0 if self._scheduler.is_short_of_blocks else self._scheduler.max_num_rows - num_running
        num_ends = num_waiting + 1 - num_free_rows
        if num_ends > 0 and num_running:
            decode_step_s = self._step_time.predict(StepShape(num_running, 0, num_context))
            mean_output = self._forecast.mean_tokens("interactive")
            wait_s += num_ends * mean_output / num_running * decode_step_s
        return wait_s
