"""Over a real (tiny) model: whatever is drafted, answers are those without drafts."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.attention.base import KVCache
from engine.forecast.step_cost import StepCosts
from engine.models.decoder import Decoder
from engine.models.loading.loader import load_model
from engine.models.multi_step import MultiStep
from engine.models.prediction_heads import PredictionHeads
from engine.runner.runner import ModelRunner
from engine.sampling.sampler import Sampler
from engine.spec_decode.controller import Proposers, SpeculationController
from engine.spec_decode.multi_step import MultiStepPlanner
from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
from engine.spec_decode.proposers.draft_model import DraftModelProposer
from engine.spec_decode.proposers.medusa import MedusaProposer
from engine.spec_decode.proposers.ngram import NgramProposer
from engine.step.drafting import Drafter, DraftRequest
from engine.step.sample_rows import SampleRows
from engine.step.sequence import Sequence
from tests.engine.core.checkpoints import MAX_MODEL_LEN, VOCAB_SIZE
from tests.engine.core.drafters import RandomDrafter
from tests.engine.core.tiny_core import BLOCK_SIZE, CPU, PROMPTS, TinyCore
from tests.engine.models.made_up_heads import made_up_heads

PARAMS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": {"temperature": 1.0, "seed": 11},
    "truncation": {"temperature": 0.8, "seed": 5, "top_p": 0.9, "top_k": 20},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.2},
    "seeded penalties": {"temperature": 0.9, "seed": 3, "frequency_penalty": 0.7},
    "bias": {"logit_bias": {3: 4.0, 17: -50.0}},
    "min_tokens": {"min_tokens": 9, "stop_token_ids": tuple(range(0, VOCAB_SIZE, 5))},
    "stop": {"stop_token_ids": tuple(range(0, VOCAB_SIZE, 7))},
}


class FixedCosts(StepCosts):
    """Costs that stay what they are given first, whatever the machine does."""

    def observe(self, num_seqs: int, num_drafts: int, seconds: float) -> None:
        """Nothing is learned."""


def free_drafts(core: TinyCore) -> StepCosts:
    """Costs that make every draft worth its while."""
    costs = FixedCosts()
    for num_seqs in range(1, core.num_seqs + 1):
        costs.observe_plain(num_seqs, 1.0)
        costs.observe_verification(num_seqs, num_seqs, 1.0001)
        costs.observe_drafting(num_seqs, 1, 0, 0.0001)
    return costs


def controller(
    costs: StepCosts,
    *,
    lookup: bool = True,
    heads: bool = False,
    multi_step: MultiStep | None = None,
    model: DraftModelProposer | None = None,
) -> SpeculationController:
    """What decides about at most four draft tokens a sequence."""
    stats = AcceptanceStats()
    ngram = NgramProposer(stats) if lookup else None
    planner = None
    if multi_step is not None and ngram is not None:
        planner = MultiStepPlanner(multi_step, ngram, stats, costs)
    clock = itertools.count(0.0, 1e-6).__next__
    return SpeculationController(
        Proposers(ngram, heads, planner, model), stats, costs, num_speculative_tokens=4, clock=clock
    )


def draft_model(core: TinyCore, folder: Path) -> DraftModelProposer:
    """A draft model over the core's blocks."""
    model = load_model(folder, dtype=torch.float32, device=CPU, backend=core.backend)
    caches: list[KVCache] = [
        core.backend.allocate(core.num_blocks, BLOCK_SIZE, spec, torch.float32) for spec in model.attention_specs
    ]
    runner = ModelRunner(
        model,
        Sampler(),
        caches,
        sample_rows=SampleRows(CPU),
        device=CPU,
        block_size=BLOCK_SIZE,
        max_tokens=core.budget,
        max_num_seqs=core.num_seqs,
        max_blocks=MAX_MODEL_LEN // BLOCK_SIZE,
    )
    return DraftModelProposer(
        runner, num_blocks=core.num_blocks, block_size=BLOCK_SIZE, max_tokens=core.budget, reach=MAX_MODEL_LEN
    )


def speculator(
    folder: Path, *, with_lookup: bool = False, models: list[DraftModelProposer] | None = None
) -> Callable[[TinyCore], Drafter]:
    """Drafts from the model in the folder, which is added to `models`."""

    def make(core: TinyCore) -> Drafter:
        model = draft_model(core, folder)
        if models is not None:
            models.append(model)
        return controller(free_drafts(core), lookup=with_lookup, model=model)

    return make


@dataclass
class Known:
    """Answers known beforehand, by prompt."""

    answers: dict[bytes, list[int]]

    def __call__(self, request: DraftRequest) -> list[int]:
        seq = request.seq
        answer = self.answers[seq.token_ids[: seq.num_prompt_tokens].tobytes()]
        return answer[seq.num_output_tokens : seq.num_output_tokens + request.num_speculative_tokens]


def known_drafts(prompts: list[list[int]], answers: list[list[int]], seed: int) -> Callable[[TinyCore], Drafter]:
    """Partly right drafts."""
    known = Known({array("q", p).tobytes(): answer for p, answer in zip(prompts, answers, strict=True)})
    return lambda core: RandomDrafter(known, random.Random(seed), vocab_size=VOCAB_SIZE)


@pytest.mark.parametrize("name", PARAMS)
def test_partly_right_drafts_change_no_answer(checkpoint: Path, name: str) -> None:
    plain = TinyCore(checkpoint).answers(PROMPTS, **PARAMS[name])
    core = TinyCore(checkpoint, drafter=known_drafts(PROMPTS, plain, seed=1))
    assert core.answers(PROMPTS, **PARAMS[name]) == plain
    assert core.tally.accepted_tokens > 0
    assert core.tally.accepted_tokens < core.tally.drafted_tokens


class KnowingHeads(PredictionHeads):
    """Heads that state what they know of the answers, and something else in one place of four."""

    def __init__(self, core: TinyCore, answers: list[list[int]]) -> None:
        assert isinstance(core.model, Decoder)
        super().__init__(made_up_heads(core.model.config.hidden_size), core.model)
        self._answers = answers
        self._rng = random.Random(2)
        self.num_calls = 0

    def predict_logits(self, hidden: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        logits = 0.1 * super().predict_logits(hidden, token_ids)
        self.num_calls += 1
        for chunk, token_id in enumerate(token_ids.tolist()):
            for answer in self._answers:
                for place in (index for index, token in enumerate(answer) if token == token_id):
                    for head, following in enumerate(answer[place + 1 : place + 1 + self.num_heads]):
                        logits[chunk, head, following if self._rng.random() < 0.75 else 5] = 50.0
        return logits


@pytest.mark.parametrize("name", PARAMS)
def test_prediction_heads_change_no_answer(checkpoint: Path, name: str) -> None:
    plain = TinyCore(checkpoint)
    expected = plain.answers(PROMPTS, **PARAMS[name])
    heads: list[KnowingHeads] = []

    def make(core: TinyCore) -> Drafter:
        heads.append(KnowingHeads(core, expected))
        core.runner.heads = MedusaProposer(heads[0])
        return controller(free_drafts(core), heads=True)

    core = TinyCore(checkpoint, drafter=make)
    assert core.answers(PROMPTS, **PARAMS[name]) == expected
    assert heads[0].num_calls > 0
    assert core.tally.accepted_tokens > 0


@pytest.mark.parametrize("name", PARAMS)
def test_a_draft_model_changes_no_answer(checkpoint: Path, name: str) -> None:
    plain = TinyCore(checkpoint)
    expected = plain.answers(PROMPTS, **PARAMS[name])
    core = TinyCore(checkpoint, drafter=speculator(checkpoint))
    assert core.answers(PROMPTS, **PARAMS[name]) == expected
    # The draft model is the model itself, with the same random numbers, and it sees where answers end.
    assert core.tally.accepted_tokens >= core.tally.drafted_tokens - len(PROMPTS)
    assert core.tally.steps < plain.tally.steps


def test_a_poor_draft_model_changes_no_answer(checkpoint: Path, other_checkpoint: Path) -> None:
    plain = TinyCore(checkpoint).answers(PROMPTS, temperature=0.7, seed=4)
    core = TinyCore(checkpoint, drafter=speculator(other_checkpoint, with_lookup=True))
    assert core.answers(PROMPTS, temperature=0.7, seed=4) == plain
    assert core.tally.drafted_tokens > 0


@pytest.mark.parametrize("budget", [16, 48])
def test_preemption_and_shared_prefixes_change_no_answer(checkpoint: Path, budget: int) -> None:
    prompts = PROMPTS + [PROMPTS[3] + [5] * n for n in range(1, 4)]
    plain = TinyCore(checkpoint).answers(prompts)
    core = TinyCore(checkpoint, num_blocks=26, budget=budget, drafter=speculator(checkpoint))
    for _ in range(2):
        assert core.answers(prompts) == plain
    assert core.tally.preemptions > 0
    assert core.tally.prefix_hit_tokens > 0
    assert core.tally.accepted_tokens == core.tally.drafted_tokens > 0


def test_logprobs_of_accepted_drafts_are_those_of_single_steps(checkpoint: Path) -> None:
    plain = TinyCore(checkpoint)
    plain.answers(PROMPTS[:1], num_top_logprobs=3)
    core = TinyCore(checkpoint, drafter=speculator(checkpoint))
    core.answers(PROMPTS[:1], num_top_logprobs=3)
    expected = [found for output in plain.outputs for found in output.logprobs or []]
    found = [found for output in core.outputs for found in output.logprobs or []]
    assert len(found) == len(expected) == 16
    assert len(core.outputs) < 16
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        assert [token_id for token_id, _ in ours.top] == [token_id for token_id, _ in theirs.top]


def test_several_choices_of_one_prompt_differ_and_equal_those_without_drafts(checkpoint: Path) -> None:
    def choices(core: TinyCore) -> list[list[int]]:
        return [core.answers([PROMPTS[0]], temperature=1.0, seed=seed)[0] for seed in range(3)]

    plain = choices(TinyCore(checkpoint))
    assert choices(TinyCore(checkpoint, drafter=speculator(checkpoint, with_lookup=True))) == plain
    assert len({tuple(text) for text in plain}) == 3


def test_the_draft_model_reads_a_shared_prefix_once(checkpoint: Path) -> None:
    models: list[DraftModelProposer] = []
    core = TinyCore(checkpoint, drafter=speculator(checkpoint, models=models))
    core.answers([PROMPTS[3]])
    missing: list[int] = []
    original = models[0].num_missing_tokens

    def spy(seq: Sequence) -> int:
        missing.append(original(seq))
        return missing[-1]

    models[0].num_missing_tokens = spy  # type: ignore[method-assign]
    core.answers([PROMPTS[3]])
    assert missing[0] <= BLOCK_SIZE + 1


def test_a_draft_model_that_fails_is_done_without(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: DraftModelProposer, places: object) -> list[int]:
        raise RuntimeError("no memory")

    monkeypatch.setattr(DraftModelProposer, "draft", fail)
    plain = TinyCore(checkpoint).answers(PROMPTS)
    core = TinyCore(checkpoint, drafter=speculator(checkpoint))
    assert core.answers(PROMPTS) == plain
    assert core.tally.drafted_tokens == 0


@pytest.mark.parametrize("name", PARAMS)
def test_predictions_change_no_answer(checkpoint: Path, name: str) -> None:
    """Right ones, wrong ones and near ones, many sequences at once."""
    plain = TinyCore(checkpoint)
    expected = plain.answers(PROMPTS, **PARAMS[name])
    rng = random.Random(3)
    near = [[rng.randrange(VOCAB_SIZE) if rng.random() < 0.2 else token for token in answer] for answer in expected]
    for predictions in (expected, near, expected[::-1]):
        core = TinyCore(checkpoint, drafter=lambda core: controller(free_drafts(core)))
        assert core.answers(PROMPTS, predictions=predictions, **PARAMS[name]) == expected
        counts = [output.stages for output in core.outputs if output.stages is not None]
        num_accepted = sum(stages.num_accepted_prediction_tokens for stages in counts)
        num_rejected = sum(stages.num_rejected_prediction_tokens for stages in counts)
        assert num_accepted + num_rejected <= core.tally.drafted_tokens
        if predictions is expected:
            assert num_accepted > 0
            assert core.tally.steps < plain.tally.steps


def test_predictions_and_earlier_answers_work_together(checkpoint: Path) -> None:
    """What one source knows of an answer does not keep the other from the rest."""
    expected = TinyCore(checkpoint).answers(PROMPTS, max_tokens=24)
    core = TinyCore(checkpoint, drafter=lambda core: controller(free_drafts(core)))
    halves = [answer[:12] for answer in expected]
    for _ in range(3):
        assert core.answers(PROMPTS, predictions=halves, max_tokens=24) == expected
        assert core.drafter is not None
        core.drafter.rest()
    last = [output.stages for output in core.outputs if output.stages is not None][-len(PROMPTS) :]
    assert sum(stages.num_accepted_tokens for stages in last) > sum(
        stages.num_accepted_prediction_tokens for stages in last
    )
