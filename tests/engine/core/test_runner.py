"""Scheduler and runner over a real (tiny) model: how a sequence was computed never shows in its tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.attention.base import KVCache
from engine.attention.torch_attention import TorchAttention
from engine.core.admission import Limits
from engine.core.block_manager import BlockManager
from engine.core.output_forecast import OutputForecast
from engine.core.runner import ModelRunner
from engine.core.sample_rows import SampleRows
from engine.core.scheduler import Scheduler
from engine.core.step_time import StepTimeModel
from engine.core.tally import Tally
from engine.messages import Add, SamplingParams, SeqOutput
from engine.models.decoder import Model
from engine.models.loader import load_model
from engine.sampling.sampler import Sampler
from tests.engine.core.checkpoints import MAX_MODEL_LEN, VOCAB_SIZE, transformers_greedy

_CPU = torch.device("cpu")
_BLOCK_SIZE = 8
PROMPTS = [[(7 * n * n + k * n + 3) % VOCAB_SIZE for n in range(20 + 9 * k)] for k in range(4)]
"""Four prompts of different lengths."""
SHARED = [PROMPTS[3] + tail for tail in ([1, 2, 3], [1, 2, 4], [9] * 12, [9] * 13)]
"""Four prompts with one long prefix."""


class TinyCore:
    """A real model behind a real scheduler, without process or socket."""

    def __init__(
        self, folder: Path, *, num_blocks: int = 128, budget: int = 512, rows: int = 8, prefix_cache: bool = True
    ) -> None:
        backend = TorchAttention(_CPU)
        self.model: Model = load_model(folder, dtype=torch.float32, device=_CPU, backend=backend)
        caches: list[KVCache] = [
            backend.allocate(num_blocks, _BLOCK_SIZE, spec, torch.float32) for spec in self.model.attention_specs
        ]
        self.runner = ModelRunner(
            self.model,
            Sampler(),
            caches,
            sample_rows=SampleRows(_CPU),
            device=_CPU,
            block_size=_BLOCK_SIZE,
            max_tokens=budget,
            max_rows=rows,
            max_blocks=MAX_MODEL_LEN // _BLOCK_SIZE,
        )
        self.tally = Tally()
        limits = Limits(
            max_model_len=min(MAX_MODEL_LEN, num_blocks * _BLOCK_SIZE),
            vocab_size=VOCAB_SIZE,
            max_num_rows=rows,
            step_token_budget=budget,
            max_waiting=100,
        )
        self.scheduler = Scheduler(
            limits,
            BlockManager(num_blocks, _BLOCK_SIZE, enable_prefix_cache=prefix_cache),
            forecast=OutputForecast(prior_tokens=1.0),
            step_time=StepTimeModel(),
            tally=self.tally,
        )
        self.outputs: list[SeqOutput] = []
        self._num_sequences = 0

    def answers(self, prompts: list[list[int]], **params: float | int) -> list[list[int]]:
        """Token ids of the answers, all prompts at once."""
        first = self._num_sequences
        for prompt in prompts:
            sampling = SamplingParams(**({"max_tokens": 16, "temperature": 0.0} | params))  # type: ignore[arg-type]
            self.scheduler.add(Add(seq_id=self._num_sequences, prompt_token_ids=prompt, params=sampling), 0.0)
            self._num_sequences += 1
        texts: dict[int, list[int]] = {}
        while self.scheduler.has_work:
            batch = self.scheduler.schedule(0.0)
            self.scheduler.complete(batch, self.runner.run(batch), 0.0)
            self.scheduler.check_integrity()
            for output in self.scheduler.take_outputs():
                assert output.error is None
                self.outputs.append(output)
                texts.setdefault(output.seq_id, []).extend(output.token_ids)
        return [texts[seq_id] for seq_id in range(first, self._num_sequences)]


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[list[int]]:
    """What transformers answers to PROMPTS, greedily."""
    return [transformers_greedy(checkpoint, prompt, 16) for prompt in PROMPTS]


def test_answers_are_those_of_transformers(checkpoint: Path, expected: list[list[int]]) -> None:
    assert TinyCore(checkpoint).answers(PROMPTS) == expected


@pytest.mark.parametrize("budget", [8, 13, 31])
def test_chunked_prompts_give_the_answers_of_whole_ones(
    checkpoint: Path, expected: list[list[int]], budget: int
) -> None:
    assert TinyCore(checkpoint, budget=budget).answers(PROMPTS) == expected


def test_rows_alone_give_the_answers_of_rows_together(checkpoint: Path, expected: list[list[int]]) -> None:
    assert TinyCore(checkpoint, rows=1).answers(PROMPTS) == expected


def test_preempted_sequences_give_the_same_answers(checkpoint: Path, expected: list[list[int]]) -> None:
    core = TinyCore(checkpoint, num_blocks=23)
    assert core.answers(PROMPTS) == expected
    assert core.tally.preemptions > 0


def test_the_prefix_cache_changes_no_answer(checkpoint: Path) -> None:
    without = TinyCore(checkpoint, prefix_cache=False)
    plain = [without.answers(SHARED), without.answers(SHARED[::-1])]
    core = TinyCore(checkpoint, budget=64)
    assert [core.answers(SHARED), core.answers(SHARED[::-1])] == plain
    assert core.tally.prefix_hit_tokens > 6 * len(PROMPTS[3]) // 2
    assert without.tally.prefix_hit_tokens == 0


def test_the_prefix_cache_under_pressure_changes_no_answer(checkpoint: Path) -> None:
    plain = TinyCore(checkpoint, prefix_cache=False).answers(SHARED + PROMPTS)
    core = TinyCore(checkpoint, num_blocks=24, budget=40)
    for _ in range(3):
        assert core.answers(SHARED + PROMPTS) == plain


def test_a_seeded_answer_depends_on_nothing_but_its_seed(checkpoint: Path) -> None:
    alone = [TinyCore(checkpoint).answers([prompt], temperature=1.0, seed=11)[0] for prompt in PROMPTS]
    core = TinyCore(checkpoint, num_blocks=23, budget=13)
    assert core.answers(PROMPTS, temperature=1.0, seed=11) == alone
    assert core.answers(PROMPTS, temperature=1.0, seed=12) != alone


def test_penalties_survive_preemption(checkpoint: Path) -> None:
    plain = TinyCore(checkpoint).answers(PROMPTS, repetition_penalty=1.3, frequency_penalty=0.5)
    core = TinyCore(checkpoint, num_blocks=23)
    assert core.answers(PROMPTS, repetition_penalty=1.3, frequency_penalty=0.5) == plain
    assert core.tally.preemptions > 0
    assert plain != TinyCore(checkpoint).answers(PROMPTS)


def test_logprobs_come_with_every_token(checkpoint: Path) -> None:
    core = TinyCore(checkpoint)
    core.answers(PROMPTS[:1], num_top_logprobs=2)
    assert len(core.outputs) == 16
    for output in core.outputs:
        assert output.logprobs is not None
        (found,) = output.logprobs
        assert found.top[0][0] == output.token_ids[0]
        assert found.top[0][1] == pytest.approx(found.logprob)
        assert len(found.top) == 2


def test_logits_that_are_not_numbers_end_the_sequence_with_an_error(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = TinyCore(checkpoint)
    monkeypatch.setattr(core.model, "logits", lambda hidden: torch.full((len(hidden), VOCAB_SIZE), float("nan")))
    core.scheduler.add(Add(seq_id=0, prompt_token_ids=[1], params=SamplingParams(max_tokens=3)), 0.0)
    batch = core.scheduler.schedule(0.0)
    core.scheduler.complete(batch, core.runner.run(batch), 0.0)
    (output,) = core.scheduler.take_outputs()
    assert output.finish_reason == "error"
    assert "not numbers" in (output.error or "")
