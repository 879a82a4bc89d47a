"""Two processes that share every layer state what one states."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.attention.torch_attention import TorchAttention
from engine.config import CoreConfig
from engine.models.loading.loader import load_model
from engine.runner.runner import ModelRunner
from engine.sampling.sampler import Sampler
from engine.step.sample_rows import SampleRows
from engine.step.step_output import Runner
from engine.tensor_parallel.leader import LeaderModel, RankGroupBrokenError
from engine.tensor_parallel.rank_group import RankGroup
from tests.engine.core.checkpoints import MAX_MODEL_LEN, write_checkpoint
from tests.engine.core.tiny_core import BLOCK_SIZE, PROMPTS, TinyCore
from tests.engine.models.checkpoints import make_reference, save_checkpoint

CPU = torch.device("cpu")


@contextmanager
def two_ranks(folder: Path, num_blocks: int) -> Iterator[tuple[RankGroup, LeaderModel, Runner]]:
    """Yield two ranks over a checkpoint, their model, and its runner."""
    config = CoreConfig.of(model_dir=folder, device="cpu", num_threads=1, block_size=BLOCK_SIZE, tensor_parallel=2)
    ranks = RankGroup.start(config, CPU)
    try:
        backend = TorchAttention(CPU)
        part = load_model(folder, dtype=torch.float32, device=CPU, backend=backend, split=ranks.split)
        model = ranks.lead(part)
        model.open_pool(num_blocks)
        runner = ModelRunner(
            model,
            Sampler(),
            [backend.allocate(num_blocks, BLOCK_SIZE, spec, torch.float32) for spec in model.attention_specs],
            sample_rows=SampleRows(CPU),
            device=CPU,
            block_size=BLOCK_SIZE,
            max_tokens=512,
            max_num_seqs=8,
            max_blocks=MAX_MODEL_LEN // BLOCK_SIZE,
        )
        yield ranks, model, runner
    finally:
        ranks.close()


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dense")
    write_checkpoint(folder)
    return folder


def test_greedy_and_seeded_answers_are_those_of_one_process(dense: Path) -> None:
    alone = TinyCore(dense)
    expected = [alone.answers(PROMPTS), alone.answers(PROMPTS[:2], temperature=0.7, seed=3)]
    core: Any = TinyCore(dense, budget=23)
    with two_ranks(dense, core.num_blocks) as (_, model, runner):
        core.runner = runner
        assert [core.answers(PROMPTS), core.answers(PROMPTS[:2], temperature=0.7, seed=3)] == expected
        assert [spec.num_kv_heads for spec in model.attention_specs] == [1, 1]


def test_norms_over_all_heads_and_a_padded_vocabulary(tmp_path: Path) -> None:
    shape = {"num_attention_heads": 4, "vocab_size": 97, "max_position_embeddings": MAX_MODEL_LEN}
    folder = save_checkpoint(make_reference("olmo2", **shape), tmp_path)
    prompts = [[token % 97 for token in prompt] for prompt in PROMPTS[:2]]
    expected = TinyCore(folder).answers(prompts, max_tokens=8)
    core: Any = TinyCore(folder)
    with two_ranks(folder, core.num_blocks) as (_, _, runner):
        core.runner = runner
        assert core.answers(prompts, max_tokens=8) == expected


def test_experts_are_split_by_their_inner_width(tmp_path: Path) -> None:
    shape = {"num_attention_heads": 4, "vocab_size": 97, "max_position_embeddings": MAX_MODEL_LEN}
    folder = save_checkpoint(make_reference("qwen2_moe", **shape), tmp_path)
    prompts = [[token % 97 for token in prompt] for prompt in PROMPTS[:2]]
    expected = TinyCore(folder).answers(prompts, max_tokens=8)
    core: Any = TinyCore(folder)
    with two_ranks(folder, core.num_blocks) as (ranks, model, runner):
        core.runner = runner
        assert core.answers(prompts, max_tokens=8) == expected
        lost: list[str] = []
        is_lost = threading.Event()

        def note(reason: str) -> None:
            lost.append(reason)
            is_lost.set()

        ranks.watch(note)
        ranks._processes[0].kill()
        assert is_lost.wait(10)
        assert lost == ["rank 1 of the group ended with exit status -9"]
        with pytest.raises(RuntimeError):
            model.logits(torch.zeros(1, 48))
        with pytest.raises(RankGroupBrokenError, match="an earlier step failed"):
            model.logits(torch.zeros(1, 48))
