"""The only place that constructs the core: device, model, KV pool, scheduler and loop, in start-up order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from engine.config import CoreConfig, EngineConfigError
from engine.core.admission import Limits
from engine.core.block_manager import BlockManager
from engine.core.draft_assembly import load_draft_model, make_drafter
from engine.core.drafting import Drafter
from engine.core.grammar_checker import CheckedCompiler, GrammarChecker
from engine.core.grammar_compiler import GrammarCompiler
from engine.core.inbox import Inbox
from engine.core.kv_pool import block_bytes, pool_blocks, reachable_model_len, useful_blocks
from engine.core.load_meter import LoadMeter
from engine.core.machine import Machine, find_machine
from engine.core.outbox import Outbox
from engine.core.output_forecast import OutputForecast
from engine.core.runner import ModelRunner
from engine.core.sample_rows import SampleRows
from engine.core.scheduler import Scheduler
from engine.core.step_loop import StepLoop
from engine.core.step_time import StepTimeModel
from engine.core.tally import Tally
from engine.core.warm_up import made_up_batch, typical_batches, warm_up
from engine.messages import Ready
from engine.models.decoder import Model
from engine.models.families import read_model_config
from engine.models.loader import load_model
from engine.sampling.sampler import Sampler

logger = logging.getLogger(__name__)

_PROBE_CONTEXT_TOKENS = 8192
"""Longest context of the step whose memory is measured; attention works in tiles above it."""
_WARM_UP_S = 3.0


def build_core(config: CoreConfig, inbox: Inbox, outbox: Outbox, clock: Callable[[], float]) -> tuple[StepLoop, Ready]:
    """A core ready to run, its phases reported on the way.

    Raises EngineConfigError, ModelConfigError or CheckpointError when settings, model and memory do not go together.
    """
    # First of all, so that it is done before the warm-up measures steps.
    grammars = _grammars(config, inbox)
    with outbox.phase("weights"):
        machine = find_machine(config)
        model = load_model(
            config.model_dir,
            dtype=machine.dtype,
            device=machine.device,
            backend=machine.backend,
            quantization=config.quantization,
        )
        draft_model = load_draft_model(config, model, machine)
        max_model_len = _model_len(config, model)
    with outbox.phase("kv_pool"):
        num_blocks = _num_blocks(config, machine, model, draft_model, max_model_len)
        max_model_len = reachable_model_len(max_model_len, num_blocks, config.block_size)
        runner = _runner(config, machine, model, num_blocks, max_model_len)
    step_time = StepTimeModel()
    with outbox.phase("warm_up"):
        batches = typical_batches(
            max_rows=_max_rows(config),
            max_tokens=config.step_token_budget,
            max_context=max_model_len,
            num_blocks=num_blocks,
            block_size=config.block_size,
        )
        warm_up(runner.run, batches, step_time, clock, limit_s=_WARM_UP_S)
        drafter = make_drafter(
            config, machine, draft_model, runner.run, clock, num_blocks=num_blocks, max_model_len=max_model_len
        )
    loop = _loop(config, model, runner, inbox, outbox, step_time, clock, num_blocks, max_model_len, grammars, drafter)
    ready = Ready(
        max_model_len=max_model_len,
        block_size=config.block_size,
        num_blocks=num_blocks,
        vocab_size=model.config.vocab_size,
        device=str(machine.device),
        dtype=str(machine.dtype).removeprefix("torch."),
        model_type=model.config.model_type,
        speculates=drafter is not None,
    )
    return loop, ready


def _grammars(config: CoreConfig, inbox: Inbox) -> GrammarCompiler:
    """A compiler of grammars at work; what it finishes comes to the inbox."""
    vocab_size = read_model_config(config.model_dir).vocab_size
    checker = GrammarChecker(config.model_dir, vocab_size)
    grammars = GrammarCompiler(CheckedCompiler(checker, config.model_dir, vocab_size), inbox.post)
    grammars.start()
    return grammars


def _model_len(config: CoreConfig, model: Model) -> int:
    longest = model.config.max_position_embeddings
    if config.max_model_len > longest:
        raise EngineConfigError(f"max_model_len: the model reaches {longest} tokens, got {config.max_model_len}")
    return config.max_model_len or longest


def _max_rows(config: CoreConfig) -> int:
    return min(config.max_num_rows, config.step_token_budget)


def _num_blocks(
    config: CoreConfig, machine: Machine, model: Model, draft_model: Model | None, max_model_len: int
) -> int:
    """Size the pool by what is free beside the largest step, which is run once over a small pool."""
    context_len = min(max_model_len, max(config.step_token_budget, _PROBE_CONTEXT_TOKENS))
    num_probe_blocks = min(-(-context_len // config.block_size), useful_blocks(config, max_model_len))
    runner = _runner(config, machine, model, num_probe_blocks, context_len)
    batch = partial(made_up_batch, num_blocks=num_probe_blocks, block_size=config.block_size)
    machine.memory.start()
    runner.run(batch(1, min(config.step_token_budget, context_len), context_len))
    runner.run(batch(_max_rows(config), 1, context_len))
    transient_bytes = machine.memory.transient_bytes()
    del runner
    free_bytes = machine.memory.free_bytes() - transient_bytes
    specs = model.attention_specs + ([] if draft_model is None else draft_model.attention_specs)
    has_scales = machine.kv_dtype is not None
    bytes_per_block = block_bytes(specs, config.block_size, machine.kv_element_bytes, has_scales=has_scales)
    num_blocks = pool_blocks(config, bytes_per_block, free_bytes, max_model_len)
    logger.info(
        "kv pool: %d blocks of %d bytes; %d bytes were free beside the largest step's %d",
        num_blocks,
        bytes_per_block,
        free_bytes,
        transient_bytes,
    )
    return num_blocks


def _runner(config: CoreConfig, machine: Machine, model: Model, num_blocks: int, max_model_len: int) -> ModelRunner:
    """A runner over a fresh pool."""
    return ModelRunner(
        model,
        Sampler(),
        machine.allocate_pool(model.attention_specs, num_blocks, config.block_size),
        sample_rows=SampleRows(machine.device),
        device=machine.device,
        block_size=config.block_size,
        max_tokens=config.step_token_budget,
        max_rows=_max_rows(config),
        max_blocks=-(-max_model_len // config.block_size),
    )


def _loop(
    config: CoreConfig,
    model: Model,
    runner: ModelRunner,
    inbox: Inbox,
    outbox: Outbox,
    step_time: StepTimeModel,
    clock: Callable[[], float],
    num_blocks: int,
    max_model_len: int,
    grammars: GrammarCompiler,
    drafter: Drafter | None,
) -> StepLoop:
    limits = Limits(
        max_model_len=max_model_len,
        vocab_size=model.config.vocab_size,
        max_num_rows=config.max_num_rows,
        step_token_budget=config.step_token_budget,
        max_waiting=config.max_waiting,
        itl_target_s=config.itl_target_ms / 1000,
        prefill_slack_ratio=config.prefill_slack_ratio,
    )
    blocks = BlockManager(num_blocks, config.block_size, enable_prefix_cache=config.enable_prefix_cache)
    forecast, tally = OutputForecast(), Tally()
    scheduler = Scheduler(
        limits, blocks, forecast=forecast, step_time=step_time, tally=tally, grammars=grammars, drafter=drafter
    )
    return StepLoop(
        scheduler,
        runner,
        inbox,
        send=outbox.send,
        meter=LoadMeter(scheduler, blocks, step_time, forecast, config.step_token_budget),
        step_time=step_time,
        tally=tally,
        clock=clock,
        drafter=drafter,
    )
