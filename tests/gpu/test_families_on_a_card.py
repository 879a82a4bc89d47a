"""Every family's tiny checkpoint states on a card what transformers states on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.protocol import Shutdown
from tests.engine.core.test_process import core_process, greedy_add
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.families.parity import ONE_OF_EACH_FAMILY, PROMPT, reference_greedy

NUM_TOKENS = 40
PROMPTS = {1: PROMPT, 2: PROMPT[:5], 3: PROMPT[10:50], 4: PROMPT[3:30]}


@pytest.mark.parametrize("cuda_graphs", [True, False], ids=["captured", "eager"])
@pytest.mark.parametrize("family", ONE_OF_EACH_FAMILY)
def test_greedy_text_equals_transformers(family: str, cuda_graphs: bool, tmp_path: Path) -> None:
    reference = make_reference(family)
    folder = save_checkpoint(reference, tmp_path / "model")
    settings: dict[str, Any] = {
        "device": "cuda",
        "dtype": "float32",
        "num_blocks": 96,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 50,
    }
    with core_process(tmp_path, model_dir=str(folder), cuda_graphs=cuda_graphs, **settings) as (front, process):
        front.wait_until_ready()
        for seq_id, prompt in PROMPTS.items():
            front.send(greedy_add(seq_id, prompt, NUM_TOKENS))
        texts, _ = front.ends(*PROMPTS)
        front.send(Shutdown())
        assert process.wait(60) == 0

    assert texts == {seq_id: reference_greedy(reference, prompt, NUM_TOKENS) for seq_id, prompt in PROMPTS.items()}
