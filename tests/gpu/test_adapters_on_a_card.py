"""Sequences with adapters state on a card what merged weights state on a CPU, decoded by graphs or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from transformers import PreTrainedModel

from engine.protocol import Shutdown
from tests.engine.core.test_process import core_process, greedy_add
from tests.engine.lora.adapters import MODULES, merged, write_adapter
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.families.parity import PROMPT, reference_greedy

NUM_TOKENS = 40
PROMPTS = {1: PROMPT, 2: PROMPT[:5], 3: PROMPT[10:50], 4: PROMPT[3:30], 5: PROMPT[3:30]}
OWNERS = {1: "first", 2: None, 3: "second", 4: "first", 5: "second"}


@pytest.mark.parametrize("cuda_graphs", [True, False], ids=["captured", "eager"])
@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_greedy_text_equals_merged_weights(family: str, cuda_graphs: bool, tmp_path: Path) -> None:
    reference = make_reference(family)
    models: dict[str | None, PreTrainedModel] = {None: reference}
    for seed, (name, modules) in enumerate({"first": MODULES, "second": ("self_attn.q_proj", "mlp.up_proj")}.items()):
        deltas = write_adapter(tmp_path / name, reference, rank=2 + 4 * seed, seed=seed, modules=modules, strength=0.1)
        models[name] = merged(reference, deltas)
    folder = save_checkpoint(reference, tmp_path / "base")
    settings: dict[str, Any] = {"device": "cuda", "dtype": "float32", "cuda_graphs": cuda_graphs, "num_blocks": 96}
    settings |= {"max_num_seqs": 6, "max_num_batched_tokens": 50}
    settings["lora"] = [f"{name}={tmp_path / name}" for name in ("first", "second")]
    with core_process(tmp_path, model_dir=str(folder), **settings) as (front, core):
        front.wait_until_ready()
        for seq_id, prompt in PROMPTS.items():
            front.send(msgspec.structs.replace(greedy_add(seq_id, prompt, NUM_TOKENS), adapter=OWNERS[seq_id]))
        texts, _ = front.ends(*PROMPTS)
        front.send(Shutdown())
        assert core.wait(60) == 0

    assert texts == {
        seq_id: reference_greedy(models[OWNERS[seq_id]], prompt, NUM_TOKENS) for seq_id, prompt in PROMPTS.items()
    }
