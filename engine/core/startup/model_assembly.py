"""The models of a core at its start: the one that it serves, with adapters and what proposes draft tokens for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config import CoreConfig, EngineConfigError
from engine.core.startup.adapter_assembly import Adapters, load_adapters
from engine.core.startup.draft_assembly import load_draft_model, load_heads
from engine.lora.adapter_table import AdapterRead
from engine.models.decoder import Model
from engine.models.families.registry import read_model_config
from engine.models.loading.loader import load_model
from engine.models.raw_weights import WeightPacker
from engine.protocol import CpuKernels
from engine.runner.cpu_steps import PackerChoice, choose_packer, cpu_kernels, with_compiled_steps
from engine.runner.machine import Machine, find_machine
from engine.tensor_parallel.rank_group import RankGroup, end_core

if TYPE_CHECKING:
    from engine.spec_decode.proposers.medusa import MedusaProposer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModels:
    """The served model on its machine, and what stands beside it."""

    machine: Machine
    model: Model
    kernels: CpuKernels | None
    """Computation of the steps on a CPU; None on a GPU."""
    heads: MedusaProposer | None
    draft_model: Model | None
    adapters: Adapters
    max_model_len: int
    """Longest sequence by settings and model, in tokens; the pool may shorten it."""


def load_models(deliver: Callable[[AdapterRead], None], config: CoreConfig, failure: str) -> LoadedModels:
    """Load everything that has weights.

    Args:
        deliver: Receiver of what becomes of adapters that are loaded later.
        config: Settings of the core.
        failure: Why compiled code cannot be had; empty where it was not tried yet.

    Raises:
        CompileError: Compiled code cannot be had.
        EngineConfigError: The settings and a model do not go together.
        ModelConfigError: A model is of a kind that the engine does not compute.
        CheckpointError: The files of a model are damaged or do not fit it.
    """
    machine = find_machine(config)
    packing = choose_packer(
        config, machine, read_model_config(config.model_dir).quantized_as(config.compute.quantization)
    )
    if failure:
        packing = PackerChoice(None, failure)
    model = _model(config, machine, packing.packer)
    if (kernels := cpu_kernels(model, machine, packing)) is not None:
        logger.info(kernels.summary())
    heads, draft_model = _draft_models(config, model, machine)
    return LoadedModels(
        machine=machine,
        model=model,
        kernels=kernels,
        heads=heads,
        draft_model=draft_model,
        adapters=load_adapters(config, model, machine, deliver),
        max_model_len=_model_len(config, model),
    )


def _model(config: CoreConfig, machine: Machine, packer: WeightPacker | None) -> Model:
    """Return the model, alone or as the leader of a tensor-parallel group."""
    if read_model_config(config.model_dir).traits.recurrent is not None:
        _check_recurrent(config)
    rank_group = RankGroup.start(config, machine.device) if config.compute.tensor_parallel > 1 else None
    model: Model = load_model(
        config.model_dir,
        dtype=machine.dtype,
        device=machine.device,
        backend=machine.backend,
        quantization=config.compute.quantization,
        split=None if rank_group is None else rank_group.split,
        max_model_len=config.batch.max_model_len,
        packer=packer,
    )
    if rank_group is not None:
        model = rank_group.lead(model)
        rank_group.watch(end_core)
    return with_compiled_steps(config, model, machine.backend, packer)


def _check_recurrent(config: CoreConfig) -> None:
    """Raise EngineConfigError for settings under which recurrent layers are not computed."""
    if config.compute.tensor_parallel > 1:
        raise EngineConfigError("tensor_parallel: recurrent layers are computed by one process only")
    if config.compute.overlap == "on":
        raise EngineConfigError("overlap: recurrent layers need each step's end; use auto or off")
    if config.drafting.speculation != "off":
        raise EngineConfigError("speculation: rejected tokens cannot leave a recurrent state again; use off")
    if config.adapters.num_places:
        raise EngineConfigError("max_loras: adapters of models with recurrent layers are not served; start without any")


def _draft_models(config: CoreConfig, model: Model, machine: Machine) -> tuple[MedusaProposer | None, Model | None]:
    """Return the model's Medusa heads, or else its draft model: heads predict as well at a lower cost."""
    heads = load_heads(config, model, machine)
    if heads is None:
        return None, load_draft_model(config, model, machine)
    if config.drafting.draft_model_dir is not None:
        logger.info("the model has Medusa heads: its draft model is used with --speculation draft only")
    return heads, None


def _model_len(config: CoreConfig, model: Model) -> int:
    longest = model.config.max_position_embeddings
    if config.batch.max_model_len > longest:
        raise EngineConfigError(f"max_model_len: the model reaches {longest} tokens, got {config.batch.max_model_len}")
    return config.batch.max_model_len or model.config.usual_model_len
