"""How busy the core is, as the front and the gateway see it."""

from __future__ import annotations

import math

from engine.core.block_manager import BlockManager
from engine.core.lanes import LANES
from engine.core.output_forecast import OutputForecast
from engine.core.scheduler import Scheduler
from engine.core.step_time import StepShape, StepTimeModel
from engine.core.wait_forecast import Backlog, Pace, forecast_wait_s
from engine.messages import Lane, LaneLoad, Load

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
        lanes = self._lanes()
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
            forecast_wait_s=lanes["interactive"].forecast_wait_s,
            num_kv_tokens=sum(seq.num_computed_tokens for seq in running),
            lanes=lanes,
        )

    def _lanes(self) -> dict[Lane, LaneLoad]:
        backlogs = self._scheduler.backlogs()
        return {
            lane: LaneLoad(
                num_running=backlogs[lane].num_running,
                num_waiting=backlogs[lane].num_waiting,
                waiting_prompt_tokens=backlogs[lane].num_tokens,
                forecast_wait_s=forecast_wait_s(lane, backlogs, self._pace(lane, backlogs)),
            )
            for lane in LANES
        }

    def _pace(self, lane: Lane, backlogs: dict[Lane, Backlog]) -> Pace:
        """How fast the core works, for a prompt of this lane."""
        num_running = self._scheduler.num_running
        num_tokens = sum(backlog.num_tokens for backlog in backlogs.values())
        room = max(1, min(self._budget - num_running, self._scheduler.prompt_limit(lane)))
        num_context = self._blocks.block_size * (self._blocks.num_blocks - self._blocks.num_free)
        decode_step_s = self._step_time.predict(StepShape(num_running, 0, num_context))
        mean_output = max(1.0, self._forecast.mean_tokens(lane))
        return Pace(
            num_step_tokens=room,
            step_s=self._step_time.predict(
                StepShape(num_running, min(room, num_tokens), num_context, num_chunks=min(1, num_tokens))
            ),
            num_free_rows=0 if self._scheduler.is_short_of_blocks else self._scheduler.max_num_rows - num_running,
            ends_per_s=num_running / (mean_output * decode_step_s) if decode_step_s else 0.0,
        )
