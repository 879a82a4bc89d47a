"""The runner of a core at its start: over its pool, captured or overlapped by the device, chosen and warmed up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from engine.attention.base import KVCache
from engine.config import CoreConfig
from engine.core.startup.adapter_assembly import Adapters
from engine.core.startup.pool_assembly import PoolPlan, max_num_seqs
from engine.forecast.step_time import StepTimeModel
from engine.kv_cache.kv_pool import useful_blocks
from engine.kv_cache.state_slots import num_state_slots
from engine.models.decoder import Decoder, Model
from engine.protocol import SamplingParams
from engine.runner.cpu_steps import checkpoint_bytes, follow, settle_steps
from engine.runner.cuda_graphs import CapturableModel, GraphApi, graph_model
from engine.runner.machine import Machine
from engine.runner.overlap_runner import OverlapRunner
from engine.runner.runner import ModelRunner
from engine.runner.warm_up import MAX_CONTEXT, made_up_batch, typical_batches, warm_up
from engine.sampling.device_choice import TorchChooser
from engine.sampling.sampler import Sampler
from engine.step.sample_rows import SampleRows
from engine.step.step_output import Runner
from engine.tensor_parallel.leader import LeaderModel

_WARM_UP_CONTEXTS = 4
"""Longest contexts of warm-up sequences that find blocks of their own on a CPU, where unused ones take no memory."""
_DRAWN_PARAMS = SamplingParams(max_tokens=1, temperature=1.0, seed=1)


def make_runner(
    config: CoreConfig,
    machine: Machine,
    model: Model,
    pool: PoolPlan,
    max_model_len: int,
    *,
    graphs: GraphApi | None = None,
    adapters: Adapters | None = None,
) -> ModelRunner:
    """Return a runner over a fresh pool; with `graphs`, its decode and verification steps are captured."""
    if isinstance(model, LeaderModel):
        model.open_pool(pool.num_blocks)
    has_states = model.config.traits.recurrent is not None
    caches = machine.allocate_pool(
        model.attention_specs, pool.num_blocks, config.kv.block_size, num_window_blocks=pool.num_window_blocks
    )
    capture = partial(
        _captured,
        config,
        caches,
        graphs,
        max_model_len=max_model_len,
        device=machine.device,
        num_states=num_state_slots(max_num_seqs(config)) if has_states else 0,
    )
    if isinstance(model, Decoder):
        model = capture(model)
    if adapters is not None:
        model = adapters.model(model, capture)
    make = (
        partial(OverlapRunner, chooser=machine.chooser or TorchChooser())
        if _overlaps(config, machine) and not has_states
        else ModelRunner
    )
    return make(
        model,
        Sampler(machine.chooser),
        caches,
        sample_rows=SampleRows(machine.device),
        device=machine.device,
        block_size=config.kv.block_size,
        max_tokens=config.batch.max_num_batched_tokens,
        max_num_seqs=max_num_seqs(config),
        max_blocks=-(-max_model_len // config.kv.block_size),
        places=None if pool.windows is None else pool.windows.places,
    )


def _captured(
    config: CoreConfig,
    caches: list[KVCache],
    graphs: GraphApi | None,
    model: CapturableModel,
    *,
    max_model_len: int,
    device: torch.device,
    num_states: int,
) -> Model:
    """Return a model whose decode and verification steps are captured, if there is an interface to capture."""
    if graphs is None:
        return model
    return graph_model(
        config, model, caches, graphs, max_model_len=max_model_len, device=device, num_state_slots=num_states
    )


def _overlaps(config: CoreConfig, machine: Machine) -> bool:
    """Return whether a step is launched before the tokens of the previous one have arrived."""
    is_wanted = config.compute.overlap == "on" or (config.compute.overlap == "auto" and machine.device.type == "cuda")
    return is_wanted and config.drafting.speculation == "off"


def run_largest_steps(config: CoreConfig, machine: Machine, model: Model, max_model_len: int, context_len: int) -> None:
    """Run the longest chunk of a prompt and the most decoding sequences over a small pool."""
    num_blocks = min(-(-context_len // config.kv.block_size), useful_blocks(config, max_model_len))
    runner = make_runner(config, machine, model, PoolPlan(num_blocks, None), context_len)
    batch = partial(made_up_batch, num_blocks=num_blocks, block_size=config.kv.block_size)
    runner.execute(batch(1, min(config.batch.max_num_batched_tokens, context_len), context_len))
    runner.execute(batch(max_num_seqs(config), 1, context_len))


def make_stepper(
    config: CoreConfig,
    machine: Machine,
    model: Model,
    draft_model: Model | None,
    runner: ModelRunner,
    clock: Callable[[], float],
) -> Runner:
    """Return what executes steps: on a CPU a runner that chooses among the ways to do so."""
    if machine.device.type != "cpu" or isinstance(runner, OverlapRunner):
        return runner
    stepper = settle_steps(
        model,
        runner,
        num_speculative_tokens=config.drafting.num_speculative_tokens,
        num_weight_bytes=checkpoint_bytes(config.model_dir),
        clock=clock,
    )
    follow(draft_model, model)
    return stepper


def warm_up_steps(
    config: CoreConfig,
    runner: Runner,
    step_time: StepTimeModel,
    clock: Callable[[], float],
    *,
    num_blocks: int,
    max_model_len: int,
    limit_s: float,
) -> None:
    """Touch every path of the runner and learn what steps take."""
    if config.compute.device == "cpu" or not torch.cuda.is_available():
        num_blocks = min(num_blocks, _WARM_UP_CONTEXTS * -(-MAX_CONTEXT // config.kv.block_size))
    batches = typical_batches(
        max_num_seqs=max_num_seqs(config),
        max_tokens=config.batch.max_num_batched_tokens,
        max_context=max_model_len,
        num_blocks=num_blocks,
        block_size=config.kv.block_size,
    )
    warm_up(runner.execute, batches, step_time, clock, limit_s=limit_s)
    if isinstance(runner, OverlapRunner):
        batch = made_up_batch(1, 1, 1, num_blocks=num_blocks, block_size=config.kv.block_size, params=_DRAWN_PARAMS)
        runner.launch(batch).result()
