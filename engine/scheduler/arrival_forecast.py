"""Forecast for a request that arrives now: the work ahead of it, the rate of that work, the resulting wait."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.forecast.output_forecast import OutputForecast
from engine.forecast.step_time import StepShape, StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.protocol import Lane, LaneLoad
from engine.scheduler.lanes import LANES
from engine.scheduler.prompt_budget import PromptBudget
from engine.scheduler.sequence_table import SequenceTable
from engine.scheduler.wait_forecast import Backlog, SequenceReleases, ServiceRate, forecast_wait_s, sequence_ends
from engine.step.sequence import Sequence


@dataclass(slots=True)
class _Sums:
    """One lane's running sequences, while they are counted."""

    num_running: int = 0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0


class ArrivalForecaster:
    """Forecaster over the sequence table and the models of time and length.

    Sequences whose grammars are being compiled do not count.
    """

    def __init__(
        self,
        sequence_table: SequenceTable,
        blocks: BlockManager,
        prompts: PromptBudget,
        forecast: OutputForecast,
        step_time: StepTimeModel,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
    ) -> None:
        self._sequence_table = sequence_table
        self._blocks = blocks
        self._prompts = prompts
        self._forecast = forecast
        self._step_time = step_time
        self._max_num_seqs = max_num_seqs
        self._budget = max_num_batched_tokens
        self.now = 0.0
        """The scheduler's last instant."""
        self.is_short_of_blocks = False
        """True if the last step left a sequence waiting for want of blocks; room in the batch is of no use then."""

    def lanes(self) -> dict[Lane, LaneLoad]:
        """Return the load and the forecast of every lane."""
        remaining = self._remaining()
        backlogs = self._backlogs(remaining)
        releases = self._releases(remaining)
        paces = self._paces()
        rates = self._sequence_table.arrivals.rates(self.now)
        loads: dict[Lane, LaneLoad] = {}
        for lane in LANES:
            pace, backlog = paces[lane], backlogs[lane]
            loads[lane] = LaneLoad(
                num_running=backlog.num_running,
                num_waiting=backlog.num_waiting,
                waiting_prompt_tokens=backlog.num_prompt_tokens,
                expected_output_tokens=backlog.num_output_tokens,
                forecast_wait_s=forecast_wait_s(lane, backlogs, rates, pace, releases),
                prefill_tokens_per_s=pace.num_step_tokens / pace.full_step_s if pace.full_step_s else 0.0,
            )
        return loads

    def first_token_s(self, seq: Sequence) -> float:
        """Return the seconds until the first token of the sequence that its lane queued last; 0 without a step time."""
        remaining = self._remaining()
        backlogs = self._backlogs(remaining)
        own, num_uncached = backlogs[seq.lane], seq.num_expected_uncached_tokens
        backlogs[seq.lane] = replace(
            own, num_waiting=own.num_waiting - 1, num_prompt_tokens=own.num_prompt_tokens - num_uncached
        )
        pace = self._paces()[seq.lane]
        rates = self._sequence_table.arrivals.rates(self.now)
        wait_s = forecast_wait_s(seq.lane, backlogs, rates, pace, self._releases(remaining))
        return wait_s + pace.prefill_s(num_uncached)

    def _remaining(self) -> dict[int, int]:
        """Return the expected remaining tokens of each running sequence, by id."""
        return {seq.seq_id: self._expected(seq) for seq in self._sequence_table.running.values()}

    def _expected(self, seq: Sequence) -> int:
        return self._forecast.expected_tokens(seq.lane, seq.num_output_tokens, seq.params.max_tokens)

    def _backlogs(self, remaining: dict[int, int]) -> dict[Lane, Backlog]:
        """Return the backlog of each lane."""
        sums = {lane: _Sums() for lane in LANES}
        for seq in self._sequence_table.running.values():
            lane_sums, num_uncomputed = sums[seq.lane], seq.num_uncomputed_tokens
            lane_sums.num_running += 1
            lane_sums.num_output_tokens += remaining[seq.seq_id]
            if num_uncomputed > 1:
                lane_sums.num_prompt_tokens += num_uncomputed
        waiting = self._sequence_table.waiting
        return {
            lane: Backlog(
                num_running=sums[lane].num_running,
                num_waiting=len(waiting.of(lane)),
                num_prompt_tokens=sums[lane].num_prompt_tokens + waiting.of(lane).num_uncached_tokens,
                num_started_tokens=sums[lane].num_prompt_tokens,
                num_output_tokens=sums[lane].num_output_tokens + self._waiting_output_tokens(lane),
            )
            for lane in LANES
        }

    def _waiting_output_tokens(self, lane: Lane) -> int:
        """Return the expected output tokens of the lane's waiting sequences, ignoring each one's own maximum."""
        queue = self._sequence_table.waiting.of(lane)
        return min(int(len(queue) * self._forecast.mean_tokens(lane)), queue.max_output_tokens)

    def _releases(self, remaining: dict[int, int]) -> SequenceReleases:
        """Return the times at which running sequences end and make room for waiting ones."""
        num_running = len(remaining)
        num_free = 0 if self.is_short_of_blocks else self._max_num_seqs - num_running
        num_ends = len(self._sequence_table.waiting) + 1 - num_free
        if num_ends <= 0:
            return SequenceReleases(num_free=num_free, end_steps=(), steps_per_end=0.0)
        ends, steps_per_end = sequence_ends(list(remaining.values()), self._mean_waiting_output(), num_ends)
        return SequenceReleases(num_free=num_free, end_steps=ends, steps_per_end=steps_per_end)

    def _mean_waiting_output(self) -> float:
        """Return the expected tokens of a sequence that follows one that ended."""
        num_waiting = len(self._sequence_table.waiting)
        if not num_waiting:
            return max(1.0, self._forecast.mean_tokens("interactive"))
        return max(1.0, sum(self._waiting_output_tokens(lane) for lane in LANES) / num_waiting)

    def _paces(self) -> dict[Lane, ServiceRate]:
        """Return the core's service rate for a prompt of each lane."""
        decoding = [seq for seq in self._sequence_table.running.values() if seq.num_uncomputed_tokens == 1]
        num_context = self._blocks.block_size * (self._blocks.num_blocks - self._blocks.num_free)
        decode_step_s = self._step_time.predict(StepShape(len(decoding), 0, num_context))
        is_crowded = self._sequence_table.is_crowded
        patient = self._room(decoding, is_urgent=False, is_crowded=is_crowded)
        urgent = self._room(decoding, is_urgent=True, is_crowded=is_crowded)

        def pace(room: int) -> ServiceRate:
            shape = StepShape(len(decoding), room, num_context + room, room * room, num_chunks=1)
            return ServiceRate(
                decode_step_s=decode_step_s,
                num_step_tokens=room,
                num_patient_tokens=patient,
                prompt_token_s=(self._step_time.predict(shape) - decode_step_s) / room,
            )

        patient_pace = pace(patient)
        return dict.fromkeys(LANES, patient_pace) | {"interactive": patient_pace if urgent == patient else pace(urgent)}

    def _room(self, decoding: list[Sequence], *, is_urgent: bool, is_crowded: bool) -> int:
        """Return the number of prompt tokens that a step can hold beside these sequences."""
        room = self._budget - len(decoding)
        limit = self._prompts.limit(decoding, 0, is_urgent=is_urgent, is_crowded=is_crowded)
        return max(1, room if limit is None else min(room, limit))
