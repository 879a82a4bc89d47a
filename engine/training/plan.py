"""Schedule of a training: learning rate, data mix and end."""

from dataclasses import dataclass

from engine.training.data.generator import MIXES, Mix

MATRIX_LR = 0.012
OTHER_LR = 3e-3
PHASES = (("warmup", 1950), ("shared", 5000))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """Settings that determine a training's weights on a given machine."""

    model: str
    phases: tuple[tuple[str, int], ...] = PHASES
    seed: int = 7
    steps: int = 10_000
    hours: float | None = None
    step_tokens: int = 4096
    rate_ratio: float = 1.0
    warmup_steps: int = 100
    decay_ratio: float = 0.3

    def lr_factor(self, step: int, elapsed_s: float) -> float:
        """Return the warm-up to `rate_ratio` and the linear decay to zero; a time limit may start the decay earlier."""
        progress = step / self.steps
        if self.hours is not None:
            progress = max(progress, elapsed_s / (self.hours * 3600))
        decline = max(0.0, 1.0 - progress) / self.decay_ratio
        return self.rate_ratio * min(1.0, (step + 1) / self.warmup_steps, decline)

    def mix_at(self, step: int) -> Mix:
        """Return the mix of the step's phase; after the last phase, the model's own mix."""
        return MIXES[next((mix for mix, until in self.phases if step < until), self.model)]

    def is_done(self, step: int, elapsed_s: float) -> bool:
        """Return whether steps or hours are used up."""
        return step >= self.steps or (self.hours is not None and elapsed_s >= self.hours * 3600)
