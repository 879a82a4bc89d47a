"""The only place that constructs the core: device, model, KV pool, scheduler and loop, in start-up order."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import torch

from engine.attention.base import KVCache
from engine.config import CoreConfig, EngineConfigError
from engine.core.fault_isolation import FaultIsolation
from engine.core.inbox import Inbox
from engine.core.load_meter import LoadMeter
from engine.core.next_step import NextStep
from engine.core.outbox import Outbox
from engine.core.overlap import OverlappedStepLoop
from engine.core.reporter import Reporter
from engine.core.standby import Standby
from engine.core.startup.adapter_assembly import Adapters, check_adapters, load_adapters
from engine.core.startup.compiled_code import load_with_compiled_code
from engine.core.startup.draft_assembly import load_draft_model, load_heads, make_drafter
from engine.core.startup.fingerprint import answer_fingerprint, model_state, processor_digest
from engine.core.startup.pool_assembly import PoolPlan, max_num_seqs, plan_pool
from engine.core.step_loop import StepLoop
from engine.core.step_observer import StepObserver
from engine.forecast.output_forecast import OutputForecast
from engine.forecast.step_time import StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.kv_cache.kv_pool import reachable_model_len, useful_blocks
from engine.kv_cache.state_slots import StateSlots, num_state_slots
from engine.lora.adapter_table import AdapterRead, AdapterTable
from engine.models.decoder import Decoder, Model
from engine.models.families.registry import read_model_config
from engine.models.loading.loader import load_model
from engine.models.loading.sizes import read_checked_config
from engine.models.raw_weights import WeightPacker
from engine.protocol import CpuKernels, Ready, SamplingParams
from engine.runner.cpu_steps import (
    PackerChoice,
    checkpoint_bytes,
    choose_packer,
    cpu_kernels,
    follow,
    settle_steps,
    with_compiled_steps,
)
from engine.runner.cuda_graphs import CapturableModel, GraphApi, graph_model
from engine.runner.machine import Machine, find_machine
from engine.runner.overlap_runner import OverlapRunner
from engine.runner.runner import ModelRunner
from engine.runner.warm_up import MAX_CONTEXT, made_up_batch, typical_batches, warm_up
from engine.sampling.device_choice import TorchChooser
from engine.sampling.grammar_checker import CheckedCompiler, GrammarChecker
from engine.sampling.grammar_compiler import GrammarCompiler
from engine.sampling.sampler import Sampler
from engine.scheduler.admission import Limits
from engine.scheduler.scheduler import Scheduler
from engine.step.drafting import Drafter
from engine.step.sample_rows import SampleRows
from engine.step.step_output import Runner
from engine.step.tally import CoreTotals
from engine.tensor_parallel.leader import LeaderModel
from engine.tensor_parallel.rank_group import RankGroup, end_core

if TYPE_CHECKING:
    from engine.spec_decode.proposers.medusa import MedusaProposer

logger = logging.getLogger(__name__)

_WARM_UP_S = {"cpu": 0.75, "cuda": 60.0}
"""Warm-up limit in seconds by device type; on a GPU it includes compiling kernels and capturing steps."""
_WARM_UP_CONTEXTS = 4
"""Longest contexts of warm-up sequences that find blocks of their own on a CPU, where unused ones take no memory."""
_TAKE_OVER_WARM_UP_S = 0.5
"""Warm-up limit in seconds on a CPU while clients wait for a core to return; requests then supply the measurements."""
_DRAWN_PARAMS = SamplingParams(max_tokens=1, temperature=1.0, seed=1)


class _Common(TypedDict):
    """Arguments that every kind of step loop takes."""

    reporter: Reporter
    observer: StepObserver
    clock: Callable[[], float]


def build_core(
    config: CoreConfig, sock: socket.socket, outbox: Outbox, clock: Callable[[], float], *, is_standby: bool = False
) -> tuple[StepLoop, Ready]:
    """Return a core ready to run, its phases reported on the way; a standby waits in the middle until it is needed.

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
        config, loaded = load_with_compiled_code(config, partial(_load, inbox.post))
    machine, model, draft_model, adapters = loaded.machine, loaded.model, loaded.draft_model, loaded.adapters
    max_model_len = loaded.max_model_len
    if standby is not None and not has_fast_memory:
        config = standby.wait(config)
    with outbox.phase("kv_pool"):
        num_blocks = config.kv.num_blocks if standby is not None else 0  # a former core's pool needs no measuring
        pool = plan_pool(
            config,
            machine,
            model,
            draft_model,
            max_model_len,
            num_blocks=num_blocks,
            run_largest_steps=partial(_run_largest_steps, config, machine, model, max_model_len),
        )
        num_blocks = pool.num_blocks
        max_model_len = reachable_model_len(max_model_len, num_blocks, config.kv.block_size)
        runner = _runner(config, machine, model, pool, max_model_len, graphs=machine.graphs, adapters=adapters)
    step_time = StepTimeModel()
    with outbox.phase("warm_up"):
        stepper = _stepper(config, machine, model, draft_model, runner, clock)
        is_short = standby is not None and not has_fast_memory
        limit_s = _TAKE_OVER_WARM_UP_S if is_short else _WARM_UP_S[machine.device.type]
        _warm_up(config, stepper, step_time, clock, num_blocks=num_blocks, max_model_len=max_model_len, limit_s=limit_s)
        runner.heads = loaded.heads
        drafter = make_drafter(
            config,
            machine,
            draft_model,
            runner.heads,
            stepper.execute,
            clock,
            num_blocks=num_blocks,
            max_model_len=max_model_len,
        )
        runner.release_pool()
    blocks = BlockManager(
        num_blocks,
        config.kv.block_size,
        enable_prefix_cache=config.kv.enable_prefix_cache,
        windows=pool.windows,
    )
    if model.config.traits.recurrent is not None:
        runner.states = blocks.states = StateSlots(max_num_seqs(config), config.kv.block_size)
    tally = CoreTotals()
    scheduler = _scheduler(
        config,
        model,
        blocks,
        step_time,
        tally,
        max_model_len=max_model_len,
        grammars=grammars,
        drafter=drafter,
        adapters=adapters.table,
    )
    meter = LoadMeter(scheduler, blocks, step_time)
    reporter = Reporter(scheduler, meter, tally, send=outbox.send, clock=clock)
    common = _Common(reporter=reporter, observer=StepObserver(meter, step_time, drafter), clock=clock)
    isolated = FaultIsolation(stepper, scheduler.check_integrity)
    ready = _ready(
        config,
        machine,
        model,
        blocks,
        meter,
        max_model_len=max_model_len,
        speculates=drafter is not None,
        kernels=loaded.kernels,
        adapters=adapters.table,
    )
    if isinstance(runner, OverlapRunner):
        next_step = NextStep(scheduler, blocks, runner)
        return OverlappedStepLoop(scheduler, isolated, inbox, launcher=runner, next_step=next_step, **common), ready
    return StepLoop(scheduler, isolated, inbox, **common), ready


class _Loaded(NamedTuple):
    """What the phase of the weights leaves."""

    machine: Machine
    model: Model
    kernels: CpuKernels | None
    heads: MedusaProposer | None
    draft_model: Model | None
    adapters: Adapters
    max_model_len: int


def _load(deliver: Callable[[AdapterRead], None], config: CoreConfig, failure: str) -> _Loaded:
    """Load the model and all that runs beside it.

    Args:
        deliver: Receiver of what becomes of later loads of adapters.
        config: Settings of the core.
        failure: Why compiled code cannot be had; empty where it was not tried yet.

    Raises:
        CompileError: Compiled code cannot be had.
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
    adapters = load_adapters(config, model, machine, deliver)
    return _Loaded(machine, model, kernels, heads, draft_model, adapters, _model_len(config, model))


def _ready(
    config: CoreConfig,
    machine: Machine,
    model: Model,
    blocks: BlockManager,
    meter: LoadMeter,
    *,
    max_model_len: int,
    speculates: bool,
    kernels: CpuKernels | None,
    adapters: AdapterTable,
) -> Ready:
    return Ready(
        max_model_len=max_model_len,
        block_size=blocks.block_size,
        num_blocks=blocks.num_blocks,
        vocab_size=model.config.vocab_size,
        device=str(machine.device),
        dtype=str(machine.dtype).removeprefix("torch."),
        model_type=model.config.model_type,
        speculates=speculates,
        max_num_batched_tokens=config.batch.max_num_batched_tokens,
        num_threads=torch.get_num_threads() * config.compute.tensor_parallel if machine.device.type == "cpu" else 0,
        cpu_kernels=kernels,
        load=meter.load(),
        max_loras=config.adapters.num_places,
        adapters=adapters.names,
        fingerprint=answer_fingerprint(config, _device_name(machine), str(machine.dtype), kernels),
        model_state=model_state(config, str(machine.dtype), kernels),
        resumes_exactly=kernels is not None and kernels.resumes_exactly,
        processor=processor_digest(kernels),
    )


def _device_name(machine: Machine) -> str:
    if machine.device.type == "cpu":
        return torch.backends.cpu.get_cpu_capability()
    return torch.cuda.get_device_name(machine.device)


def _stepper(
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


def _draft_models(config: CoreConfig, model: Model, machine: Machine) -> tuple[MedusaProposer | None, Model | None]:
    """Return the model's Medusa heads, or else its draft model: heads predict as well at a lower cost."""
    heads = load_heads(config, model, machine)
    if heads is None:
        return None, load_draft_model(config, model, machine)
    if config.drafting.draft_model_dir is not None:
        logger.info("the model has Medusa heads: its draft model is used with --speculation draft only")
    return heads, None


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


def _warm_up(
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


def _grammars(config: CoreConfig, inbox: Inbox, vocab_size: int) -> GrammarCompiler:
    """Return a running grammar compiler; its results go to the inbox."""
    checker = GrammarChecker(config.model_dir, vocab_size)
    grammars = GrammarCompiler(CheckedCompiler(checker, config.model_dir, vocab_size), inbox.post)
    grammars.start()
    return grammars


def _model_len(config: CoreConfig, model: Model) -> int:
    longest = model.config.max_position_embeddings
    if config.batch.max_model_len > longest:
        raise EngineConfigError(f"max_model_len: the model reaches {longest} tokens, got {config.batch.max_model_len}")
    return config.batch.max_model_len or model.config.usual_model_len


def _run_largest_steps(
    config: CoreConfig, machine: Machine, model: Model, max_model_len: int, context_len: int
) -> None:
    """Run the longest chunk of a prompt and the most decoding sequences over a small pool."""
    num_blocks = min(-(-context_len // config.kv.block_size), useful_blocks(config, max_model_len))
    runner = _runner(config, machine, model, PoolPlan(num_blocks, None), context_len)
    batch = partial(made_up_batch, num_blocks=num_blocks, block_size=config.kv.block_size)
    runner.execute(batch(1, min(config.batch.max_num_batched_tokens, context_len), context_len))
    runner.execute(batch(max_num_seqs(config), 1, context_len))


def _runner(
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


def _scheduler(
    config: CoreConfig,
    model: Model,
    blocks: BlockManager,
    step_time: StepTimeModel,
    tally: CoreTotals,
    *,
    max_model_len: int,
    grammars: GrammarCompiler,
    drafter: Drafter | None,
    adapters: AdapterTable,
) -> Scheduler:
    limits = Limits(
        max_model_len=max_model_len,
        vocab_size=model.config.vocab_size,
        max_num_seqs=config.batch.max_num_seqs,
        max_num_batched_tokens=config.batch.max_num_batched_tokens,
        max_waiting=config.batch.max_waiting,
        itl_target_s=config.batch.itl_target_ms / 1000,
        prefill_slack_ratio=config.batch.prefill_slack_ratio,
    )
    return Scheduler(
        limits,
        blocks,
        forecast=OutputForecast(),
        step_time=step_time,
        tally=tally,
        grammars=grammars,
        drafter=drafter,
        adapters=adapters,
    )
