"""The models that learn from a step that was computed."""

from __future__ import annotations

from engine.core.load_meter import LoadMeter
from engine.forecast.step_time import StepTimeModel
from engine.step.drafting import Drafter
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import StepOutput


class StepObserver:
    """Observer that passes each step to the models of load, of step time and of speculation."""

    def __init__(self, meter: LoadMeter, step_time: StepTimeModel, drafter: Drafter | None = None) -> None:
        self._meter = meter
        self._step_time = step_time
        self._drafter = drafter

    def observe(self, scheduled: SchedulerOutput, output: StepOutput, seconds: float) -> None:
        """Update all models from a step that took `seconds`, scheduling and drafting included."""
        shape = scheduled.shape()
        if self._drafter is not None:
            self._drafter.observe(scheduled, output, seconds)
        # The model is of steps without drafts: with them a step is longer, but also worth more than one token a
        # sequence.
        if not scheduled.has_drafts:
            self._step_time.observe(shape, seconds - output.later_s)
        self._meter.observe(shape.num_decode_seqs + shape.num_prefill_tokens, seconds)

    def rest(self) -> None:
        """Do what was put off: nothing is to be computed."""
        if self._drafter is not None:
            self._drafter.rest()
