"""Verifying steps that follow a step in the same go: answers are those of single steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cpu.execution.heads import CompiledHeads
from engine.cpu.execution.model import CompiledModel
from engine.forecast.step_cost import StepCosts
from engine.models.prediction_heads import PredictionHeads
from engine.protocol import Add, SamplingParams
from engine.spec_decode.proposers.medusa import MedusaProposer
from engine.step.drafting import Drafter
from engine.step.scheduler_output import SchedulerOutput
from engine.step.step_output import StepOutput
from tests.engine.core.checkpoints import MAX_MODEL_LEN, VOCAB_SIZE
from tests.engine.core.test_speculative_decoding import FixedCosts, controller, free_drafts
from tests.engine.core.tiny_core import PROMPTS, SHARED, TinyCore
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.made_up_heads import made_up_heads

STOPS = tuple(range(0, VOCAB_SIZE, 11))


class Rounding:
    """A compiled core whose steps may be followed by others, and their outputs."""

    def __init__(
        self, folder: Path, num_threads: int, costs_of: Callable[[TinyCore], StepCosts] = free_drafts, **settings: Any
    ) -> None:
        self._costs_of = costs_of
        self.core = TinyCore(folder, compiled_threads=num_threads, drafter=self._drafter, **settings)
        self.outputs: list[tuple[SchedulerOutput, StepOutput]] = []
        execute = self.core.runner.execute

        def noting(scheduled: SchedulerOutput) -> StepOutput:
            output = execute(scheduled)
            self.outputs.append((scheduled, output))
            return output

        self.core.runner.execute = noting  # type: ignore[method-assign]

    @property
    def most_steps(self) -> int:
        """Of one go."""
        return max(output.num_steps for _, output in self.outputs)

    @property
    def were_behind_prompts(self) -> bool:
        """Return whether any steps followed a prompt."""
        return any(
            output.num_steps > 1 and any(chunk.num_tokens > 1 for chunk in scheduled.chunks)
            for scheduled, output in self.outputs
        )

    def _drafter(self, core: TinyCore) -> Drafter:
        model = core.model
        assert isinstance(model, CompiledModel)
        weights = made_up_heads(model.config.hidden_size)
        heads = CompiledHeads(model, PredictionHeads(weights, model.decoder))
        core.runner.heads = MedusaProposer(heads)
        return controller(self._costs_of(core), heads=True, multi_step=heads.multi_step)


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, no round is left out for what those before it took."""
    monkeypatch.setattr("engine.spec_decode.multi_step._MAX_SECONDS", 60.0)


@pytest.fixture
def closing() -> Iterator[list[TinyCore]]:
    """Cores whose threads are sent home in the end."""
    cores: list[TinyCore] = []
    yield cores
    for core in cores:
        core.model.close()  # type: ignore[attr-defined]


def dear_drafts(core: TinyCore) -> StepCosts:
    """Costs by which each draft takes as long as ten steps."""
    costs = FixedCosts()
    for num_seqs in range(1, core.num_seqs + 1):
        costs.observe_plain(num_seqs, 1e-3)
        for num_drafts in range(1, 5):
            costs.observe_verification(num_seqs, num_seqs * num_drafts, 1e-3 + 1e-2 * num_drafts)
    return costs


def plain_answers(folder: Path, prompts: list[list[int]], closing: list[TinyCore], **params: Any) -> list[list[int]]:
    core = TinyCore(folder, compiled_threads=1)
    closing.append(core)
    return core.answers(prompts, **params)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("params", [{}, {"stop_token_ids": STOPS}, {"max_tokens": 7}, {"max_tokens": 3}], ids=str)
def test_multi_step_decoding_changes_no_answer(
    checkpoint: Path, closing: list[TinyCore], num_threads: int, params: dict[str, Any]
) -> None:
    expected = plain_answers(checkpoint, PROMPTS, closing, **params)
    rounding = Rounding(checkpoint, num_threads)
    core = rounding.core
    closing.append(core)
    for _ in range(3):  # what was stated once is known
        for prompt, answer in zip(PROMPTS, expected, strict=True):
            assert core.answers([prompt], **params) == [answer]
        core.drafter.rest()  # type: ignore[union-attr]
        assert core.answers(PROMPTS, **params) == expected
        core.drafter.rest()  # type: ignore[union-attr]
    assert rounding.most_steps > (1 if params.get("max_tokens") == 3 else 2)
    assert rounding.were_behind_prompts
    assert 0 < core.tally.accepted_tokens <= core.tally.drafted_tokens
    assert core.num_leaked == 0


@pytest.mark.parametrize("variant", ["granite", "gpt_oss"])
def test_multi_step_decoding_changes_no_answer_of_other_families(
    variant: str, tmp_path: Path, closing: list[TinyCore]
) -> None:
    sizes = {"hidden_size": 128, "vocab_size": VOCAB_SIZE, "max_position_embeddings": MAX_MODEL_LEN, "head_dim": 16}
    folder = save_checkpoint(make_reference(variant, **sizes), tmp_path)
    expected = TinyCore(folder).answers(PROMPTS)
    rounding = Rounding(folder, 2)
    core = rounding.core
    closing.append(core)
    for _ in range(2):
        assert core.answers(PROMPTS) == expected
        core.drafter.rest()  # type: ignore[union-attr]
    assert rounding.most_steps > 2
    assert 0 < core.tally.accepted_tokens <= core.tally.drafted_tokens
    assert core.num_leaked == 0


def test_an_answer_that_is_known_takes_few_goes(checkpoint: Path, closing: list[TinyCore]) -> None:
    rounding = Rounding(checkpoint, 1)
    closing.append(rounding.core)
    first = rounding.core.answers(PROMPTS[:1], max_tokens=24)
    rounding.core.drafter.rest()  # type: ignore[union-attr]
    rounding.outputs.clear()
    started_at = time.monotonic()
    assert rounding.core.answers(PROMPTS[:1], max_tokens=24) == first
    took_s = time.monotonic() - started_at
    calls = [output for _, output in rounding.outputs]
    assert all((output.later_s > 0.0) == (output.num_steps > 1) for output in calls)
    assert sum(output.later_s for output in calls) < took_s
    # 24 tokens, of which single steps would have stated one each.
    assert len(calls) <= 12
    (stages,) = [output.stages for output in rounding.core.outputs[-1:]]
    assert stages is not None
    assert 0 < stages.num_accepted_tokens <= stages.num_drafted_tokens


def test_further_steps_follow_where_no_draft_is_worth_verifying(checkpoint: Path, closing: list[TinyCore]) -> None:
    (expected,) = plain_answers(checkpoint, PROMPTS[:1], closing, max_tokens=24)
    rounding = Rounding(checkpoint, 1, dear_drafts)
    closing.append(rounding.core)
    assert rounding.core.answers(PROMPTS[:1], max_tokens=24) == [expected]
    assert rounding.were_behind_prompts
    assert rounding.core.tally.drafted_tokens == 0
    begun = next(output for _, output in rounding.outputs if output.results[0].token_ids)
    assert begun.num_steps == len(begun.results[0].token_ids) > 2
    assert begun.results[0].token_ids == expected[: begun.num_steps]


@pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS], ids=["alone", "in company"])
def test_answers_in_which_nothing_is_drafted_are_generated_in_several_steps_too(
    checkpoint: Path, closing: list[TinyCore], monkeypatch: pytest.MonkeyPatch, prompts: list[list[int]]
) -> None:
    monkeypatch.setattr("engine.spec_decode.response_guard.ResponseGuard.is_open", lambda guard, seq, num_seqs: False)
    expected = plain_answers(checkpoint, prompts, closing, max_tokens=40)
    rounding = Rounding(checkpoint, 2)
    core = rounding.core
    closing.append(core)
    for _ in range(3):
        rounding.outputs.clear()
        assert core.answers(prompts, max_tokens=40) == expected
        core.drafter.rest()  # type: ignore[union-attr]
    assert core.tally.drafted_tokens == 0
    assert rounding.were_behind_prompts
    calls = [output for batch, output in rounding.outputs if batch.chunks[0].num_tokens == 1]
    assert max(output.num_steps for output in calls) > 2
    assert all(output.predictions is None for output in calls)
    assert core.num_leaked == 0


@pytest.mark.parametrize("params", [{"temperature": 0.8, "seed": 3}, {"repetition_penalty": 1.3}], ids=str)
def test_no_round_follows_where_tokens_are_not_the_likeliest(
    checkpoint: Path, closing: list[TinyCore], params: dict[str, Any]
) -> None:
    expected = plain_answers(checkpoint, PROMPTS, closing, **params)
    rounding = Rounding(checkpoint, 1)
    closing.append(rounding.core)
    for _ in range(2):
        assert rounding.core.answers(PROMPTS, **params) == expected
        rounding.core.drafter.rest()  # type: ignore[union-attr]
    assert rounding.most_steps == 1


def test_further_steps_in_a_pool_that_is_short_of_blocks_change_no_answer(
    checkpoint: Path, closing: list[TinyCore]
) -> None:
    prompts = PROMPTS + SHARED
    expected = plain_answers(checkpoint, prompts, closing)
    rounding = Rounding(checkpoint, 1, num_blocks=13, budget=32)
    core = rounding.core
    closing.append(core)
    for _ in range(3):
        assert core.answers(prompts) == expected
        core.drafter.rest()  # type: ignore[union-attr]
        assert [core.answers([prompt])[0] for prompt in prompts] == expected
    assert core.tally.preemptions > 0
    assert rounding.most_steps > 1
    assert core.num_leaked == 0


def until_it_fails(core: TinyCore, prompt: list[int]) -> tuple[list[int], str | None]:
    """What a core states before no token can be chosen any more, and how that ends."""
    params = SamplingParams(max_tokens=16, temperature=0.0)
    core.scheduler.add(Add(seq_id=99, prompt_token_ids=prompt, params=params), 0.0)
    emitted: list[int] = []
    while True:
        batch = core.scheduler.schedule(0.0)
        output = core.runner.execute(batch)
        if core.drafter is not None:
            core.drafter.observe(batch, output, 0.001)
        core.scheduler.update_from_output(batch, output, 0.0)
        for part in core.scheduler.take_outputs():
            emitted += part.token_ids
            if part.finish_reason is not None:
                return emitted, part.error


def test_a_round_whose_logits_are_no_numbers_ends_the_go_before_it(checkpoint: Path, closing: list[TinyCore]) -> None:
    plain = TinyCore(checkpoint, compiled_threads=1)
    rounding = Rounding(checkpoint, 1)
    core = rounding.core
    closing += [plain, core]
    (answer,) = plain.answers(PROMPTS[:1])
    assert core.answers(PROMPTS[:1]) == [answer]
    core.drafter.rest()  # type: ignore[union-attr]
    poison = next(token for place, token in enumerate(answer) if place > 5 and token not in PROMPTS[0] + answer[:place])
    for model in (plain.model, core.model):
        assert isinstance(model, CompiledModel)
        with torch.inference_mode():
            model.decoder.embedding.table[poison] = float("nan")
        model.decoder.embedding._is_of_file = False  # the file does not hold what was written to the mapped table
    rounding.outputs.clear()
    emitted, error = until_it_fails(core, PROMPTS[0])
    until_poison, expected_error = until_it_fails(plain, PROMPTS[0])
    assert until_poison == answer[: answer.index(poison) + 1]
    # What a draft left in its block reaches the tokens before it as well, with multi-step decoding as without.
    assert emitted == answer[: len(emitted)]
    assert 0 < len(emitted) <= len(until_poison)
    assert error == expected_error is not None
    assert rounding.most_steps > 1
    assert core.num_leaked == 0


def test_predictions_are_verified_within_a_go_and_change_no_answer(checkpoint: Path, closing: list[TinyCore]) -> None:
    expected = plain_answers(checkpoint, PROMPTS, closing, max_tokens=24)
    changed = [[*answer[:9], 1, *answer[10:]] for answer in expected]
    for predictions in (expected, changed, expected[::-1]):
        rounding = Rounding(checkpoint, 1)
        closing.append(rounding.core)
        assert rounding.core.answers(PROMPTS, predictions=predictions, max_tokens=24) == expected
        assert rounding.most_steps > 2
    rounding = Rounding(checkpoint, 1)
    closing.append(rounding.core)
    assert rounding.core.answers(PROMPTS[:1], predictions=expected[:1], max_tokens=24) == expected[:1]
    (stages,) = [output.stages for output in rounding.core.outputs[-1:]]
    assert stages is not None
    assert stages.num_accepted_prediction_tokens >= 12
    assert stages.num_accepted_prediction_tokens <= stages.num_accepted_tokens
    assert stages.num_rejected_prediction_tokens <= stages.num_drafted_tokens - stages.num_accepted_tokens
