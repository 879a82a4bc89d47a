"""The only place that constructs the core: device, model, KV pool, scheduler and loop, in start-up order."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TypedDict

import torch

from engine.config import CoreConfig
from engine.core.fault_isolation import FaultIsolation
from engine.core.inbox import Inbox
from engine.core.load_meter import LoadMeter
from engine.core.next_step import NextStep
from engine.core.outbox import Outbox
from engine.core.overlap import OverlappedStepLoop
from engine.core.reporter import Reporter
from engine.core.standby import Standby
from engine.core.startup.adapter_assembly import check_adapters
from engine.core.startup.compiled_code import load_with_compiled_code
from engine.core.startup.draft_assembly import make_drafter
from engine.core.startup.fingerprint import answer_fingerprint, model_state, processor_digest
from engine.core.startup.model_assembly import LoadedModels, load_models
from engine.core.startup.pool_assembly import PoolPlan, max_num_seqs, plan_pool
from engine.core.startup.runner_assembly import make_runner, make_stepper, run_largest_steps, warm_up_steps
from engine.core.step_loop import StepLoop
from engine.core.step_observer import StepObserver
from engine.forecast.output_forecast import OutputForecast
from engine.forecast.step_time import StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.kv_cache.kv_pool import reachable_model_len
from engine.kv_cache.state_slots import StateSlots
from engine.models.decoder import Model
from engine.models.loading.sizes import read_checked_config
from engine.protocol import Load, Ready
from engine.runner.machine import Machine
from engine.runner.overlap_runner import OverlapRunner
from engine.runner.runner import ModelRunner
from engine.sampling.grammar_checker import CheckedCompiler, GrammarChecker
from engine.sampling.grammar_compiler import GrammarCompiler
from engine.scheduler.admission import Limits
from engine.scheduler.scheduler import Scheduler
from engine.step.drafting import Drafter
from engine.step.step_output import Runner
from engine.step.tally import CoreTotals

_WARM_UP_S = {"cpu": 0.75, "cuda": 60.0}
"""Warm-up limit in seconds by device type; on a GPU it includes compiling kernels and capturing steps."""
_TAKE_OVER_WARM_UP_S = 0.5
"""Warm-up limit in seconds on a CPU while clients wait for a core to return; requests then supply the measurements."""


class _Sizes(TypedDict):
    """Bounds of the batches with which the warm-up measures steps."""

    num_blocks: int
    """Blocks of the KV pool."""
    max_model_len: int
    """Tokens of the longest sequence that the pool and the model can hold."""


class _Common(TypedDict):
    """Arguments that every kind of step loop takes."""

    reporter: Reporter
    observer: StepObserver
    clock: Callable[[], float]


def build_core(
    config: CoreConfig,
    sock: socket.socket,
    outbox: Outbox,
    clock: Callable[[], float],
    *,
    is_standby: bool = False,
    compiler_crash: str = "",
) -> tuple[StepLoop, Ready]:
    """Return a core ready to run, its phases reported on the way; a standby waits in the middle until it is needed.

    A `compiler_crash` of an earlier core is the reason to compile nothing.

    Raises EngineConfigError, ModelConfigError or CheckpointError when settings, model and memory do not go together.
    """
    inbox = Inbox(sock, clock)
    inbox.start()
    standby = Standby(inbox, outbox) if is_standby else None
    # First of all, so that it is done before the warm-up measures steps.
    model_config = read_checked_config(config.model_dir)
    check_adapters(config, model_config)
    grammars = _grammars(config, inbox, model_config.vocab_size)
    has_fast_memory = config.compute.device != "cpu" and torch.cuda.is_available()
    if standby is not None and has_fast_memory:  # which is the serving core's alone
        config = standby.wait(config)
    with outbox.phase("weights"):
        config, loaded = load_with_compiled_code(config, partial(load_models, inbox.post), compiler_crash)
    if standby is not None and not has_fast_memory:
        config = standby.wait(config)
    machine, model = loaded.machine, loaded.model
    with outbox.phase("kv_pool"):
        pool = _pool(config, loaded, is_standby=is_standby)
        max_model_len = reachable_model_len(loaded.max_model_len, pool.num_blocks, config.kv.block_size)
        runner = make_runner(
            config, machine, model, pool, max_model_len, graphs=machine.graphs, adapters=loaded.adapters
        )
    step_time = StepTimeModel()
    with outbox.phase("warm_up"):
        limit_s = _TAKE_OVER_WARM_UP_S if is_standby and not has_fast_memory else _WARM_UP_S[machine.device.type]
        sizes = _Sizes(num_blocks=pool.num_blocks, max_model_len=max_model_len)
        stepper, drafter = _warm_up(config, loaded, runner, step_time, clock, sizes, limit_s)
    blocks = _blocks(config, pool, runner, model)
    tally = CoreTotals()
    limits = _limits(config, max_model_len, model.config.vocab_size)
    scheduler = Scheduler(
        limits,
        blocks,
        forecast=OutputForecast(),
        step_time=step_time,
        tally=tally,
        grammars=grammars,
        drafter=drafter,
        adapters=loaded.adapters.table,
    )
    meter = LoadMeter(scheduler, blocks, step_time)
    reporter = Reporter(scheduler, meter, tally, send=outbox.send, clock=clock)
    common = _Common(reporter=reporter, observer=StepObserver(meter, step_time, drafter), clock=clock)
    isolated = FaultIsolation(stepper, scheduler.check_integrity)
    ready = _ready(config, loaded, limits, blocks, meter.load(), speculates=drafter is not None)
    return _step_loop(scheduler, isolated, inbox, blocks, runner, common), ready


def _pool(config: CoreConfig, loaded: LoadedModels, *, is_standby: bool) -> PoolPlan:
    """Return the blocks of the pool: as many as a former core had, or as fit beside the largest step."""
    return plan_pool(
        config,
        loaded.machine,
        loaded.model,
        loaded.draft_model,
        loaded.max_model_len,
        num_blocks=config.kv.num_blocks if is_standby else 0,  # a former core's needs no measuring
        run_largest_steps=partial(run_largest_steps, config, loaded.machine, loaded.model, loaded.max_model_len),
    )


def _warm_up(
    config: CoreConfig,
    loaded: LoadedModels,
    runner: ModelRunner,
    step_time: StepTimeModel,
    clock: Callable[[], float],
    sizes: _Sizes,
    limit_s: float,
) -> tuple[Runner, Drafter | None]:
    """Return what executes steps and what proposes draft tokens, both measured with made-up batches."""
    machine, draft_model = loaded.machine, loaded.draft_model
    stepper = make_stepper(config, machine, loaded.model, draft_model, runner, clock)
    warm_up_steps(config, stepper, step_time, clock, limit_s=limit_s, **sizes)
    runner.heads = loaded.heads
    drafter = make_drafter(config, machine, draft_model, runner.heads, stepper.execute, clock, **sizes)
    runner.release_pool()
    return stepper, drafter


def _blocks(config: CoreConfig, pool: PoolPlan, runner: ModelRunner, model: Model) -> BlockManager:
    """Return the manager of the pool's blocks, and of the recurrent states that the runner shares with it."""
    blocks = BlockManager(
        pool.num_blocks,
        config.kv.block_size,
        enable_prefix_cache=config.kv.enable_prefix_cache,
        windows=pool.windows,
    )
    if model.config.traits.recurrent is not None:
        runner.states = blocks.states = StateSlots(max_num_seqs(config), config.kv.block_size)
    return blocks


def _limits(config: CoreConfig, max_model_len: int, vocab_size: int) -> Limits:
    return Limits(
        max_model_len=max_model_len,
        vocab_size=vocab_size,
        max_num_seqs=config.batch.max_num_seqs,
        max_num_batched_tokens=config.batch.max_num_batched_tokens,
        max_waiting=config.batch.max_waiting,
        itl_target_s=config.batch.itl_target_ms / 1000,
        prefill_slack_ratio=config.batch.prefill_slack_ratio,
    )


def _ready(
    config: CoreConfig,
    loaded: LoadedModels,
    limits: Limits,
    blocks: BlockManager,
    load: Load,
    *,
    speculates: bool,
) -> Ready:
    """Return what the front learns of a core that has started."""
    machine, kernels, adapters = loaded.machine, loaded.kernels, loaded.adapters.table
    return Ready(
        max_model_len=limits.max_model_len,
        block_size=blocks.block_size,
        num_blocks=blocks.num_blocks,
        vocab_size=limits.vocab_size,
        device=str(machine.device),
        dtype=str(machine.dtype).removeprefix("torch."),
        model_type=loaded.model.config.model_type,
        speculates=speculates,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        num_threads=torch.get_num_threads() * config.compute.tensor_parallel if machine.device.type == "cpu" else 0,
        cpu_kernels=kernels,
        load=load,
        max_loras=config.adapters.num_places,
        adapters=adapters.digests,
        fingerprint=answer_fingerprint(config, _device_name(machine), str(machine.dtype), kernels),
        model_state=model_state(config, str(machine.dtype), kernels),
        resumes_exactly=kernels is not None and kernels.resumes_exactly,
        processor=processor_digest(kernels),
    )


def _step_loop(
    scheduler: Scheduler,
    isolated: FaultIsolation,
    inbox: Inbox,
    blocks: BlockManager,
    runner: ModelRunner,
    common: _Common,
) -> StepLoop:
    """Return the loop of the runner's kind."""
    if isinstance(runner, OverlapRunner):
        next_step = NextStep(scheduler, blocks, runner)
        return OverlappedStepLoop(scheduler, isolated, inbox, launcher=runner, next_step=next_step, **common)
    return StepLoop(scheduler, isolated, inbox, **common)


def _device_name(machine: Machine) -> str:
    if machine.device.type == "cpu":
        return torch.backends.cpu.get_cpu_capability()
    return torch.cuda.get_device_name(machine.device)


def _grammars(config: CoreConfig, inbox: Inbox, vocab_size: int) -> GrammarCompiler:
    """Return a running grammar compiler; its results go to the inbox."""
    checker = GrammarChecker(config.model_dir, vocab_size)
    grammars = GrammarCompiler(CheckedCompiler(checker, config.model_dir, vocab_size), inbox.post)
    grammars.start()
    return grammars
