"""Random adapters in PEFT's files, and the models that they make when merged into their base."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from engine.lora.adapter_file import AdapterFile
from engine.lora.lora_linear import StepAdapters, attach_adapters
from engine.lora.lora_model import LoraModel, TokenSteps
from engine.lora.stacked_weights import StackedWeights
from engine.models.decoder import Decoder
from tests.engine.models.paged import PagedRunner

CPU = torch.device("cpu")
MAX_RANK = 6
MODULES = (
    *(f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj")),
    *(f"mlp.{name}" for name in ("gate_proj", "up_proj", "gate_up_proj", "down_proj")),
)
ATTENTION = tuple(name for name in MODULES if name.startswith("self_attn"))
Deltas = Mapping[str, torch.Tensor]
"""Sum of an adapter's products with each weight, by the weight's name."""


def config_of(rank: int, **options: Any) -> dict[str, Any]:
    """An adapter's configuration with the options that PEFT writes, off where they are not given."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "bias": "none",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.05,
        "init_lora_weights": True,
        "inference_mode": True,
        "target_modules": ["q_proj", "v_proj"],
        "modules_to_save": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "use_dora": False,
        "use_rslora": False,
        "fan_in_fan_out": False,
        "layers_to_transform": None,
        **options,
    }


def write_adapter(
    folder: Path,
    model: PreTrainedModel,
    *,
    rank: int = 4,
    seed: int = 1,
    modules: Iterable[str] = MODULES,
    dtype: torch.dtype = torch.float32,
    strength: float = 0.3,
    **options: Any,
) -> Deltas:
    """Write a random adapter of these modules of every layer; return what it adds to the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(rank, **options)
    scale = config["lora_alpha"] / (rank**0.5 if config["use_rslora"] else rank)
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    deltas: dict[str, torch.Tensor] = {}
    wanted = set(modules)
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        if len(parts) != 6 or parts[5] != "weight" or ".".join(parts[3:5]) not in wanted or parameter.dim() != 2:
            continue
        out_size, in_size = parameter.shape
        down = (torch.randn(rank, in_size, generator=generator) * strength).to(dtype)
        up = (torch.randn(out_size, rank, generator=generator) * strength).to(dtype)
        prefix = f"base_model.model.{name.removesuffix('.weight')}"
        tensors[f"{prefix}.lora_A.weight"], tensors[f"{prefix}.lora_B.weight"] = down, up
        deltas[name] = scale * up.float() @ down.float()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return deltas


def merged(model: PreTrainedModel, deltas: Deltas) -> PreTrainedModel:
    """A copy of the model with an adapter merged into its weights."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for name, delta in deltas.items():
            changed.get_parameter(name).add_(delta)
    return changed


def attach(
    runner: PagedRunner, num_adapters: int, token_steps: Callable[[Decoder, StepAdapters], TokenSteps] | None = None
) -> StackedWeights:
    """Make places for adapters beside the runner's model; `token_steps` decode if given."""
    base = runner.model
    decoder = base if isinstance(base, Decoder) else base.decoder  # type: ignore[attr-defined]
    assert isinstance(decoder, Decoder)
    dtype = decoder.embedding.dtype
    weights = StackedWeights(base.config, num_adapters=num_adapters, max_rank=MAX_RANK, dtype=dtype, device=CPU)
    step = StepAdapters()
    attach_adapters(decoder, weights, step)
    steps = None if token_steps is None else token_steps(decoder, step)
    runner.model = LoraModel(base, decoder, step, runs_base_apart=base is not decoder, token_steps=steps)
    return weights


def load(weights: StackedWeights, index: int, folder: Path) -> None:
    """Load an adapter at a place."""
    weights.store(index, AdapterFile(folder, weights.config, MAX_RANK))


def with_adapters(
    runner: PagedRunner,
    folders: Iterable[Path],
    token_steps: Callable[[Decoder, StepAdapters], TokenSteps] | None = None,
) -> PagedRunner:
    """Load adapters beside the runner's model; they get the indices 0, 1, …."""
    paths = list(folders)
    weights = attach(runner, len(paths), token_steps)
    for index, folder in enumerate(paths):
        load(weights, index, folder)
    return runner
