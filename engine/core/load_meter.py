"""Load of the core, as reported to the front and the gateway."""

from __future__ import annotations

import math

import msgspec

from engine.forecast.step_time import StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.protocol import Load
from engine.scheduler.scheduler import Scheduler

_RATE_WINDOW_S = 5.0


class LoadMeter:
    """Meter of the core's load: the recent drain rate, with figures of the scheduler and the models."""

    def __init__(self, scheduler: Scheduler, blocks: BlockManager, step_time: StepTimeModel) -> None:
        self._scheduler = scheduler
        self._blocks = blocks
        self._step_time = step_time
        self._recent_tokens = 0.0
        self._recent_s = 0.0
        self._step_s = 0.0
        self._num_step_tokens = 0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Update the drain rate from a step; idle time does not count."""
        self._step_s = seconds
        self._num_step_tokens = num_tokens
        retained = math.exp(-seconds / _RATE_WINDOW_S)
        self._recent_tokens = retained * self._recent_tokens + num_tokens
        self._recent_s = retained * self._recent_s + seconds

    def refreshed(self, last: Load) -> Load:
        """Return the load with only its cheap figures updated since `last`."""
        return msgspec.structs.replace(
            last,
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_blocks_free=self._blocks.num_free,
            step_s=self._step_s,
            num_step_tokens=self._num_step_tokens,
        )

    def load(self) -> Load:
        """Return the load after the last step."""
        running = self._scheduler.running()
        lanes = self._scheduler.wait_forecast.lanes()
        return Load(
            num_running=len(running),
            num_waiting=self._scheduler.num_waiting,
            max_num_seqs=self._scheduler.max_num_seqs,
            num_blocks_total=self._blocks.num_blocks,
            num_blocks_free=self._blocks.num_free,
            num_blocks_cached=self._blocks.num_cached,
            num_blocks_leaked=max(0, self._blocks.num_leaked(running)),
            step_s=self._step_s,
            num_step_tokens=self._num_step_tokens,
            waiting_prompt_tokens=sum(lane.waiting_prompt_tokens for lane in lanes.values()),
            expected_output_tokens=sum(lane.expected_output_tokens for lane in lanes.values()),
            drain_tokens_per_s=self._recent_tokens / self._recent_s if self._recent_s else 0.0,
            forecast_wait_s=lanes["interactive"].forecast_wait_s,
            num_kv_tokens=sum(seq.num_computed_tokens for seq in running),
            step_time=self._step_time.terms(),
            lanes=lanes,
        )
