"""Steps launched before the last one's tokens are known: the same answers, the same ends, the same counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from engine.protocol import Abort, Add, SamplingParams, SeqOutput, StepReport, ToCore
from engine.runner.flight import LaunchedStep
from engine.runner.overlap_runner import ModelFlight, OverlapRunner
from engine.sampling.device_choice import TorchChooser
from engine.sampling.sampler import Sampler
from engine.step.sample_rows import SampleRows
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import SequenceResult, StepOutput
from tests.engine.core.checkpoints import MAX_MODEL_LEN
from tests.engine.core.fakes import FakeClock, FakeCore, greedy, make_add, next_token
from tests.engine.core.test_step_loop import ScriptedInbox
from tests.engine.core.tiny_core import BLOCK_SIZE, CPU, PROMPTS, TinyCore


@dataclass
class FakeFlight:
    """A step of the fake model that is computed when its result is requested."""

    scheduled: SchedulerOutput
    compute: Callable[[], StepOutput]

    def result(self) -> StepOutput:
        """Compute it."""
        return self.compute()


class FakeLauncher:
    """Answers from the text that each sequence will have; states what was launched and awaited, in order."""

    def __init__(self, core: FakeCore) -> None:
        self._core = core
        self.log: list[str] = []
        self.breaks_at: set[int] = set()
        self.num_launched = 0

    def execute(self, scheduled: SchedulerOutput) -> StepOutput:
        """The fake model's results."""
        self.log.append("run")
        self._core.clock.advance(0.01)
        return StepOutput(
            [
                SequenceResult(
                    [next_token(self._text(chunk.seq.token_ids.tolist(), chunk.end))] if chunk.samples else []
                )
                for chunk in scheduled.chunks
            ]
        )

    def can_launch(self, scheduled: SchedulerOutput) -> bool:
        """Sampling sequences only."""
        return all(chunk.samples for chunk in scheduled.chunks)

    def launch(self, scheduled: SchedulerOutput, behind: LaunchedStep | None = None) -> LaunchedStep:
        """A flight that computes when awaited."""
        self.num_launched += 1
        number = self.num_launched
        texts = {chunk.seq.seq_id: self._text(chunk.seq.token_ids.tolist(), chunk.end) for chunk in scheduled.chunks}
        self.log.append(f"launch {number}" + ("" if behind is None else " behind"))

        def compute() -> StepOutput:
            self.log.append(f"await {number}")
            self._core.clock.advance(0.01)
            if number in self.breaks_at:
                raise RuntimeError("launch failed")
            return StepOutput([SequenceResult([next_token(texts[chunk.seq.seq_id])]) for chunk in scheduled.chunks])

        return FakeFlight(scheduled, compute)

    @staticmethod
    def _text(known: list[int], length: int) -> list[int]:
        """The sequence's text up to a position that may not be known yet."""
        while len(known) < length:
            known.append(next_token(known))
        return known[:length]


class Harness:
    """An overlapped loop over a fake core."""

    def __init__(self, script: dict[int, list[ToCore]], **core: Any) -> None:
        self.core = core_ = FakeCore(**core)
        self.reports: list[StepReport] = []
        self.launcher = FakeLauncher(core_)
        self.inbox = ScriptedInbox(core_.clock, script)
        meter = LoadMeter(core_.scheduler, core_.blocks, core_.step_time)
        self.loop = OverlappedStepLoop(
            core_.scheduler,
            FaultIsolation(self.launcher, core_.scheduler.check_integrity),
            self.inbox,
            launcher=self.launcher,
            next_step=NextStep(core_.scheduler, core_.blocks, self.launcher),
            reporter=Reporter(core_.scheduler, meter, core_.tally, send=self._report, clock=core_.clock),
            observer=StepObserver(meter, core_.step_time),
            clock=core_.clock,
        )

    def _report(self, report: StepReport) -> None:
        self.reports.append(report)
        self.core.scheduler.check_integrity()

    def outputs(self) -> list[SeqOutput]:
        """All outputs so far."""
        return [output for report in self.reports for output in report.outputs]

    def text(self, seq_id: int) -> list[int]:
        """Tokens reported for a sequence."""
        return [token for output in self.outputs() if output.seq_id == seq_id for token in output.token_ids]

    def end(self, seq_id: int) -> SeqOutput:
        """The one end reported for a sequence."""
        (end,) = [output for output in self.outputs() if output.seq_id == seq_id and output.finish_reason]
        return end


def test_the_next_step_is_launched_before_this_one_is_awaited() -> None:
    harness = Harness({0: [make_add(1, [1, 2], 4)]})

    harness.loop.run()

    assert harness.text(1) == greedy([1, 2], 4)
    assert harness.launcher.log == [
        *("launch 1", "launch 2 behind", "await 1"),
        *("launch 3 behind", "await 2"),
        *("launch 4 behind", "await 3"),
        "await 4",
    ]
    assert len(harness.reports) == 4
    assert harness.core.blocks.num_free == harness.core.num_blocks


def test_sequences_that_end_by_length_are_left_out_of_the_following_step() -> None:
    harness = Harness({0: [make_add(1, [1], 2), make_add(2, [2], 5)]})

    harness.loop.run()

    assert (harness.text(1), harness.text(2)) == (greedy([1], 2), greedy([2], 5))
    assert harness.launcher.num_launched == 5


def test_a_sequence_that_ends_by_a_token_is_computed_once_too_often_and_no_more() -> None:
    answer = greedy([3], 8)
    stop = answer[2]
    harness = Harness({0: [make_add(1, [3], 8, stop_token_ids=(stop,))]})

    harness.loop.run()

    assert harness.text(1) == answer[: answer.index(stop) + 1]
    assert harness.launcher.num_launched == answer.index(stop) + 2
    assert harness.core.blocks.num_free == harness.core.num_blocks
    assert harness.inbox.num_waits == 2, "a step that nobody waits for keeps no loop awake"


def test_requests_that_come_meanwhile_are_scheduled_when_no_step_is_under_way() -> None:
    harness = Harness({0: [make_add(1, [1], 9)], 3: [make_add(2, [2, 3], 4)], 5: [make_add(3, range(40), 3)]})

    harness.loop.run()

    assert [harness.text(seq_id) for seq_id in (1, 2, 3)] == [greedy([1], 9), greedy([2, 3], 4), greedy(range(40), 3)]
    assert "run" in harness.launcher.log, "a chunk in the middle of a prompt is not launched"


def test_an_abort_with_a_step_under_way_frees_at_once() -> None:
    harness = Harness({0: [make_add(1, [1], 50), make_add(2, [2], 6)], 2: [Abort(seq_ids=[1])]})

    harness.loop.run()

    (report,) = [report for report in harness.reports if report.freed]
    assert report is harness.reports[2]
    assert harness.end(1).abort_state == "decode"
    assert harness.text(2) == greedy([2], 6)
    assert harness.core.blocks.num_free == harness.core.num_blocks


def test_a_full_engine_with_a_queue_keeps_overlapping() -> None:
    harness = Harness({0: [make_add(seq_id, [seq_id], 6) for seq_id in range(6)]}, max_num_seqs=2)

    harness.loop.run()

    assert [harness.text(seq_id) for seq_id in range(6)] == [greedy([seq_id], 6) for seq_id in range(6)]
    assert sum("behind" in entry for entry in harness.launcher.log) >= 12


def test_scarce_blocks_are_left_to_the_scheduler() -> None:
    harness = Harness({0: [make_add(seq_id, range(seq_id, seq_id + 7), 12) for seq_id in range(4)]}, num_blocks=9)

    harness.loop.run()

    assert [harness.text(seq_id) for seq_id in range(4)] == [greedy(range(n, n + 7), 12) for n in range(4)]
    assert harness.core.blocks.num_free == harness.core.num_blocks


def test_a_deadline_ends_a_sequence_that_just_goes_on() -> None:
    harness = Harness({0: [make_add(1, [1], 40, deadline_s=0.1)]})

    harness.loop.run()

    assert harness.end(1).finish_reason == "abort"
    assert 8 <= len(harness.text(1)) <= 12


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_step_that_fails_under_way_is_computed_anew_and_changes_nothing(number: int) -> None:
    harness = Harness({0: [make_add(1, [1], 5), make_add(2, [2], 3)]})
    harness.launcher.breaks_at = {number}

    harness.loop.run()

    assert (harness.text(1), harness.text(2)) == (greedy([1], 5), greedy([2], 3))
    assert harness.launcher.log.count("run") == 1


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
