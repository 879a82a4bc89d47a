"""Steps of a real model launched one behind the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core.fault_isolation import FaultIsolation
from engine.core.load_meter import LoadMeter
from engine.core.next_step import NextStep
from engine.core.overlap import OverlappedStepLoop
from engine.core.reporter import Reporter
from engine.core.step_loop import StepLoop
from engine.core.step_observer import StepObserver
from engine.forecast.step_time import StepTimeModel
from engine.protocol import Add, SamplingParams, StepReport, ToCore
from engine.runner.flight import LaunchedStep
from engine.runner.overlap_runner import ModelFlight, OverlapRunner
from engine.sampling.device_choice import TorchChooser
from engine.sampling.sampler import Sampler
from engine.step.sample_rows import SampleRows
from engine.step.scheduler_output import SchedulerOutput
from tests.engine.core.checkpoints import MAX_MODEL_LEN
from tests.engine.core.fakes import FakeClock
from tests.engine.core.test_step_loop import ScriptedInbox
from tests.engine.core.tiny_core import BLOCK_SIZE, CPU, PROMPTS, TinyCore


def real_loop(folder: Path, script: dict[int, list[ToCore]], *, overlaps: bool) -> tuple[list[StepReport], int]:
    """Reports of a loop over a tiny model, and how many steps were launched behind another."""
    core = TinyCore(folder)
    clock = FakeClock()
    reports: list[StepReport] = []
    meter = LoadMeter(core.scheduler, core.blocks, StepTimeModel())
    common: dict[str, Any] = {
        "reporter": Reporter(core.scheduler, meter, core.tally, send=reports.append, clock=clock),
        "observer": StepObserver(meter, StepTimeModel()),
        "clock": clock,
    }
    inbox = ScriptedInbox(clock, script)
    if not overlaps:
        isolated = FaultIsolation(core.runner, core.scheduler.check_integrity)
        StepLoop(core.scheduler, isolated, inbox, **common).run()
        return reports, 0
    runner = CountingRunner(
        core.model,
        Sampler(),
        [
            core.backend.allocate(core.num_blocks, BLOCK_SIZE, spec, torch.float32)
            for spec in core.model.attention_specs
        ],
        chooser=TorchChooser(),
        sample_rows=SampleRows(CPU),
        device=CPU,
        block_size=BLOCK_SIZE,
        max_tokens=core.budget,
        max_num_seqs=core.num_seqs,
        max_blocks=MAX_MODEL_LEN // BLOCK_SIZE,
    )
    next_step = NextStep(core.scheduler, core.blocks, runner)
    isolated = FaultIsolation(runner, core.scheduler.check_integrity)
    OverlappedStepLoop(core.scheduler, isolated, inbox, launcher=runner, next_step=next_step, **common).run()
    return reports, runner.num_behind


class CountingRunner(OverlapRunner):
    """Knows how many steps it launched behind another."""

    num_behind = 0

    def launch(self, scheduled: SchedulerOutput, behind: LaunchedStep | None = None) -> ModelFlight:
        """Count, then launch."""
        self.num_behind += behind is not None
        return super().launch(scheduled, behind)


def requests(**params: Any) -> dict[int, list[ToCore]]:
    """Two requests at once, two while these run; one of them in need of the host."""
    adds = [
        Add(seq_id=n, prompt_token_ids=prompt, params=SamplingParams(**({"max_tokens": 12 + n} | params)))
        for n, prompt in enumerate(PROMPTS)
    ]
    penalised = SamplingParams(**({"max_tokens": 5, "frequency_penalty": 0.5} | params))
    return {0: [*adds[:2]], 4: [adds[2]], 9: [adds[3], Add(seq_id=9, prompt_token_ids=[5], params=penalised)]}


@pytest.mark.parametrize(
    ("params", "num_behind_expected"),
    [
        ({"temperature": 0.0}, range(11, 60)),
        ({"temperature": 1.0, "seed": 5}, range(11, 60)),
        ({"temperature": 1.0, "seed": 5, "top_p": 0.9}, range(11, 60)),
        # So hot that most of the vocabulary survives, more than is checked without waiting: once, then no more.
        ({"temperature": 50.0, "seed": 5, "top_p": 0.9}, range(1, 4)),
    ],
    ids=["greedy", "seeded", "truncated", "undecided"],
)
def test_answers_of_a_real_model_are_the_same_with_and_without_overlap(
    checkpoint: Path, params: Any, num_behind_expected: range
) -> None:
    texts: list[dict[int, list[int]]] = []
    for overlaps in (False, True):
        reports, num_behind = real_loop(checkpoint, requests(**params), overlaps=overlaps)
        assert (num_behind in num_behind_expected) == overlaps
        texts.append({})
        for output in [output for report in reports for output in report.outputs]:
            assert output.error is None
            texts[-1].setdefault(output.seq_id, []).extend(output.token_ids)

    assert texts[0] == texts[1]
    assert sorted(map(len, texts[0].values())) == [5, 12, 13, 14, 15]


def test_logits_that_are_not_numbers_end_the_sequence_with_an_error(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: TorchChooser, logits: torch.Tensor, *others: Any) -> Any:
        return choose(self, torch.full_like(logits, torch.nan), *others)

    choose = TorchChooser.choose
    monkeypatch.setattr(TorchChooser, "choose", broken)
    add = Add(seq_id=0, prompt_token_ids=[1], params=SamplingParams(max_tokens=3, temperature=0.0))

    reports, _ = real_loop(checkpoint, {0: [add]}, overlaps=True)

    (output,) = [output for report in reports for output in report.outputs]
    assert output.finish_reason == "error"
    assert "not numbers" in (output.error or "")
