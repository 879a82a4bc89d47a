"""How steps run on a CPU: which of them compiled, and on how many threads, as the machine shows at the start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from engine.attention.base import AttentionBackend
from engine.config import CoreConfig
from engine.cpu.step.prompt_mode import PromptWay
from engine.models.decoder import Decoder, Model
from engine.models.raw_weights import RawWeights
from engine.runner.machine import Machine
from engine.runner.runner import ModelRunner
from engine.runner.step_threads import ThreadedRunner, max_single_rows
from engine.runner.warm_up import PLAIN_PARAMS, Run, made_up_batch
from engine.step.batch import Runner, ScheduledBatch

logger = logging.getLogger(__name__)

_MAX_WEIGHT_BYTES = 1 << 30
"""Of the checkpoint's files: a larger model waits for its weights, whoever multiplies by them."""
_MEASURED_TOKENS = (1, 4, 16, 64)
_REPEATS = 5
_LONGEST_S = 0.1
"""A step that takes longer is measured once."""
_WORTHWHILE = 1.05
"""Compiled steps hold the weights a second time: only where steps of some size take so much less time."""
_TIE = 1.1
"""Up to so many times as long is chance."""
_TYPICAL_CONTEXT_TOKENS = 256


MakeStep = Callable[[int, int], ScheduledBatch]
"""Makes a step of so many rows with so many tokens each."""


@runtime_checkable
class CompiledSteps(Protocol):
    """A model some of whose steps can run compiled."""

    max_tokens: int
    """Of rows of few tokens that do."""
    prompt_way: PromptWay
    """How steps of more tokens are computed."""
    max_verified: int
    """Tokens of a row whose drafts are verified: such rows are computed as those that decode."""

    @property
    def prompt_ways(self) -> list[PromptWay]:
        """That there are, "torch" first."""
        ...

    def computes(self, num_tokens: int) -> bool:
        """Whether steps of so many tokens run compiled."""
        ...

    def resize(self, num_threads: int) -> None:
        """Compute these steps on so many threads from now on."""
        ...

    def release(self) -> None:
        """Give back what these steps hold; none will run compiled."""
        ...


def kept_weights(config: CoreConfig, machine: Machine, folder: Path) -> RawWeights | None:
    """Where the loader puts a model's weights for compiled steps; None where no step of it will run compiled."""
    is_whole = (
        config.compute.compiled_steps
        and config.compute.quantization in ("none", "int8", "int8_dynamic")
        and config.compute.tensor_parallel == 1
    )
    if not is_whole or machine.device.type != "cpu" or machine.dtype != torch.float32 or machine.kv_dtype is not None:
        return None
    num_bytes = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return RawWeights() if num_bytes <= _MAX_WEIGHT_BYTES else None


def with_compiled_steps(config: CoreConfig, model: Model, backend: AttentionBackend, kept: RawWeights | None) -> Model:
    """The model with its compiled steps ready, though none is used yet; the model itself where it cannot have any."""
    if kept is None or not isinstance(model, Decoder):
        return model
    kv_dtype = torch.bfloat16 if _may_round_kv(config, model) else torch.float32
    # Numba takes its time to import, and other machines need none of it.
    from numba.core.errors import NumbaError

    from engine.attention.torch_attention import TorchAttention
    from engine.cpu.execution.model import CompiledModel, NotCompilable
    from engine.cpu.execution.thread_pool import prepare
    from engine.cpu.gemm.tiles import LANES

    if config.kv.block_size % LANES:
        logger.info("steps are not compiled: block_size is %d, no multiple of %d", config.kv.block_size, LANES)
        return model
    assert isinstance(backend, TorchAttention)
    try:
        compiled = CompiledModel(model, backend, kept, kv_dtype)
        prepare()
        return compiled
    except NotCompilable as reason:
        logger.info("steps are not compiled: %s", reason)
    except (NumbaError, RuntimeError, OSError) as error:
        logger.warning("steps are not compiled: %s: %s", type(error).__name__, error)
    return model


def _may_round_kv(config: CoreConfig, model: Model) -> bool:
    """Whether keys and values are kept in bfloat16: as the checkpoint is, unless somebody asks for something else."""
    is_own = model.config.dtype == torch.bfloat16 and config.compute.dtype == config.kv.kv_dtype == "auto"
    return is_own or config.kv.kv_dtype == "bfloat16"


def typical_step(config: CoreConfig, num_blocks: int, max_model_len: int) -> MakeStep:
    """Makes steps over rows of a usual length."""
    return partial(
        made_up_batch,
        context_len=min(_TYPICAL_CONTEXT_TOKENS, max_model_len),
        num_blocks=num_blocks,
        block_size=config.kv.block_size,
        params=PLAIN_PARAMS,
    )


def settle_steps(
    model: Model,
    runner: ModelRunner,
    make_step: MakeStep,
    *,
    max_rows: int,
    prompt_tokens: int,
    max_drafts: int,
    clock: Callable[[], float],
) -> Runner:
    """The runner, with each step compiled or not and on as many threads as is faster."""
    num_threads = torch.get_num_threads()
    threads = _Threads(num_threads, model if isinstance(model, CompiledSteps) else None)
    if isinstance(model, CompiledSteps):
        model.max_verified = max_drafts + 1
        model.resize(num_threads)
        step_of = partial(_step_of, make_step, max_rows)
        choose_compiled_tokens(model, runner.run, step_of, threads.use, clock, num_threads=num_threads)
        if model.max_tokens:
            choose_prompt_way(model, runner.run, make_step(1, prompt_tokens), threads.use, clock, num_threads)
    if num_threads == 1:
        return runner
    found = max_single_rows(
        runner.run,
        partial(_step_of, make_step, max_rows),
        num_threads=num_threads,
        max_rows=max_rows,
        set_threads=threads.use,
        clock=clock,
    )
    logger.info("decode steps of up to %d rows run on one thread of %d", found, num_threads)
    return ThreadedRunner(
        runner,
        num_threads=num_threads,
        max_single_rows=found,
        set_threads=threads.use,
        clock=clock,
        max_compiled_tokens=model.max_tokens if isinstance(model, CompiledSteps) else 0,
    )


def _step_of(make_step: MakeStep, max_rows: int, num_tokens: int) -> ScheduledBatch:
    """A step of some number of tokens, one a row as far as there may be rows."""
    return make_step(min(num_tokens, max_rows), max(1, num_tokens // max_rows))


def follow(model: Model | None, other: Model) -> None:
    """Have steps of a model that drafts for another run compiled as far as those of the other do, on one thread."""
    if isinstance(model, CompiledSteps) and isinstance(other, CompiledSteps):
        model.max_tokens, model.prompt_way, model.max_verified = other.max_tokens, other.prompt_way, other.max_verified
        if not other.max_tokens:
            model.release()


class _Threads:
    """The threads that steps run on: a compiled step's own, or torch's."""

    def __init__(self, num_threads: int, compiled: CompiledSteps | None) -> None:
        """`num_threads`: of torch, and of a compiled step, as they stand now."""
        self._compiled = compiled
        self._of_torch = self._of_compiled = num_threads

    def use(self, num_threads: int, num_tokens: int) -> None:
        """Have steps of so many tokens computed on so many threads."""
        of_torch = num_threads
        if self._compiled is not None and self._compiled.computes(num_tokens):
            # Torch has little left to do then, for which it would have its threads wait for each other.
            of_torch = 1
            if num_threads != self._of_compiled:
                self._compiled.resize(num_threads)
                self._of_compiled = num_threads
        if of_torch != self._of_torch:
            torch.set_num_threads(of_torch)
            self._of_torch = of_torch


def choose_compiled_tokens(
    model: CompiledSteps,
    run: Run,
    step_of: Callable[[int], ScheduledBatch],
    set_threads: Callable[[int, int], None],
    clock: Callable[[], float],
    *,
    num_threads: int,
) -> None:
    """Let steps of up to so many tokens run compiled as are faster for it.

    `step_of` makes a step of some number of tokens, `set_threads` has so many threads ready for one. Compiled steps are
    tried on one thread as well: on a machine that is busy at the moment, threads wait for each other.
    """
    found, is_worthwhile = 0, False
    for num_tokens in _MEASURED_TOKENS:
        batch = step_of(num_tokens)
        seconds: dict[tuple[int, int], list[float]] = {
            (limit, threads): [] for limit, threads in ((0, num_threads), (num_tokens, num_threads), (num_tokens, 1))
        }
        for _ in range(_REPEATS):
            for (limit, threads), times in seconds.items():
                model.max_tokens = limit
                set_threads(threads, num_tokens)
                if not times:
                    run(batch)  # the first one only touches every path, and memory that was just allocated
                times.append(_settled_s(run, batch, clock))
            # The quickest of each counts: what else the machine did meanwhile is not what these steps take.
            torch_s = min(seconds[0, num_threads])
            compiled_s = min(min(times) for (limit, _), times in seconds.items() if limit)
            # Giving up holds for the life of the process, so it takes all the evidence there may be.
            if compiled_s <= torch_s and sum(max(times) for times in seconds.values()) > _LONGEST_S:
                break
        if compiled_s > torch_s * _TIE:
            break
        found = num_tokens
        is_worthwhile = is_worthwhile or compiled_s * _WORTHWHILE <= torch_s
    if not is_worthwhile:
        found = 0
    model.max_tokens = found
    if not found:
        model.release()
    logger.info("steps of up to %d tokens run compiled", found)


def choose_prompt_way(
    model: CompiledSteps,
    run: Run,
    batch: ScheduledBatch,
    set_threads: Callable[[int, int], None],
    clock: Callable[[], float],
    num_threads: int,
) -> None:
    """Let prompts be computed the way that is fastest for this step of one, of those that there are."""
    num_tokens = batch.rows[0].num_tokens
    ways = model.prompt_ways
    seconds: dict[PromptWay, float] = dict.fromkeys(ways, float("inf"))
    for attempt in range(1 + _REPEATS):
        for way in ways:
            model.prompt_way = way
            set_threads(num_threads, num_tokens)
            if not attempt:
                run(batch)  # the first ones only touch every path
                continue
            seconds[way] = min(seconds[way], _settled_s(run, batch, clock))
        if attempt and min(seconds.values()) > _LONGEST_S:
            break
    model.prompt_way = min(ways, key=lambda way: seconds[way])
    logger.info("prompts are computed by %s: %s", model.prompt_way, seconds)


def _settled_s(run: Run, batch: ScheduledBatch, clock: Callable[[], float]) -> float:
    """Seconds of a step that follows one like it: threads of the way before may still look for work on its cores."""
    run(batch)
    started_at = clock()
    run(batch)
    return clock() - started_at
