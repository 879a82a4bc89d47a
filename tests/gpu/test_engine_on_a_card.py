"""The whole core on a card states what transformers states on a CPU, captured or not, overlapped or not."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.bundled import model_dir
from engine.config import CoreConfig, Speculation
from engine.protocol import Shutdown
from engine.selftest.speculation import check_speculation
from tests.engine.core.checkpoints import transformers_greedy, write_checkpoint
from tests.engine.core.test_process import core_process, greedy_add

PROMPTS = {1: [3, 14, 15, 92, 65, 35] * 7, 2: [5], 3: list(range(60)), 4: [3, 14, 15, 92, 65, 35] * 7}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3")
    write_checkpoint(folder)
    return folder


def answers(folder: Path, tmp_path: Path, **settings: Any) -> dict[int, list[int]]:
    config: dict[str, Any] = {
        "model_dir": str(folder),
        "device": "cuda",
        "dtype": "float32",
        "num_blocks": 64,
        "max_num_seqs": 4,
    }
    socket_folder = Path(tempfile.mkdtemp(dir=tmp_path))
    with core_process(socket_folder, **(config | settings)) as (front, process):
        front.wait_until_ready()
        for seq_id, prompt in PROMPTS.items():
            front.send(greedy_add(seq_id, prompt, 12))
        texts, _ = front.ends(*PROMPTS)
        front.send(Shutdown())
        assert process.wait(60) == 0
    return texts


@pytest.mark.parametrize("cuda_graphs", [True, False], ids=["captured", "eager"])
@pytest.mark.parametrize("overlap", ["on", "off"])
def test_greedy_answers_are_those_of_transformers(
    checkpoint: Path, tmp_path: Path, cuda_graphs: bool, overlap: str
) -> None:
    found = answers(checkpoint, tmp_path, cuda_graphs=cuda_graphs, overlap=overlap, max_num_batched_tokens=50)
    assert found == {seq_id: transformers_greedy(checkpoint, prompt, 12) for seq_id, prompt in PROMPTS.items()}


@pytest.mark.parametrize("settings", [{"quantization": q} for q in ("int8", "int4", "fp8")] + [{"kv_dtype": "int8"}])
def test_quantized_answers_do_not_depend_on_how_steps_run(
    checkpoint: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    one = answers(checkpoint, tmp_path, cuda_graphs=True, **settings)
    other = answers(checkpoint, tmp_path, cuda_graphs=False, overlap="off", **settings)
    assert {seq_id: len(text) for seq_id, text in one.items()} == dict.fromkeys(PROMPTS, 12)
    assert one == other


@pytest.mark.parametrize("speculation", ["auto", "draft"])
def test_speculation_is_lossless_on_the_bundled_pair(speculation: Speculation) -> None:
    config = CoreConfig.of(
        model_dir=model_dir("large"), draft_model_dir=model_dir("small"), device="cuda", speculation=speculation
    )
    assert check_speculation(config, num_samples=200, seed=1).is_lossless


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_cards_state_what_one_states(checkpoint: Path, tmp_path: Path) -> None:
    assert answers(checkpoint, tmp_path, tensor_parallel=2) == answers(checkpoint, tmp_path)
