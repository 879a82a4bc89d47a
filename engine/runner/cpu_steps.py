"""Execution of steps on a CPU: which ones run compiled, by the processor's features and the model's shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from engine.attention.base import AttentionBackend
from engine.attention.torch_attention import TorchAttention
from engine.config import CoreConfig
from engine.cpu.jit.failure import reported_as_compile_error
from engine.cpu.step.prompt_mode import MAX_TOKENS, PromptWay
from engine.models.config.config import ModelConfig
from engine.models.decoder import Decoder, Model
from engine.models.raw_weights import WeightPacker
from engine.protocol import CpuKernels
from engine.runner.adaptive_runner import AdaptiveRunner
from engine.runner.machine import Machine
from engine.runner.runner import ModelRunner


@runtime_checkable
class CompiledSteps(Protocol):
    """A model some of whose steps can run compiled."""

    max_tokens: int
    """Maximum number of tokens of a compiled step whose sequences have few tokens each."""
    prompt_way: PromptWay
    """Execution path of steps with more tokens."""
    max_verified: int
    """Tokens of a sequence whose drafts are verified: such sequences are computed as those that decode."""

    @property
    def products(self) -> dict[str, int]:
        """Number of projections by the kind of their products."""
        ...

    @property
    def prompt_ways(self) -> list[PromptWay]:
        """Ways to compute prompts, "torch" first, the fastest by the processor's features last."""
        ...

    def computes(self, num_tokens: int) -> bool:
        """Return whether a step of `num_tokens` tokens runs compiled."""
        ...

    def resize(self, num_threads: int) -> None:
        """Use `num_threads` threads for these steps from now on."""
        ...


@dataclass(frozen=True, slots=True)
class PackerChoice:
    """Packer of a model's weights for compiled steps, or the reason why no step runs compiled."""

    packer: WeightPacker | None
    reason: str = ""


def choose_packer(config: CoreConfig, machine: Machine, model_config: ModelConfig) -> PackerChoice:
    """Return the packer of the weights for compiled steps, or why none runs compiled.

    What the settings, the processor and the model's config prevent is found out here, before a weight is read.

    Raises:
        CompileError: Compiled code cannot be had.
    """
    reason = _reason_against(config, machine)
    if reason is not None:
        return PackerChoice(None, reason)
    with reported_as_compile_error("numba"):
        # Numba takes its time to import, and other machines need none of it.
        from engine.cpu.execution.model_records import NotCompilable, check_compilable
        from engine.cpu.execution.thread_pool import prepare
        from engine.cpu.gemm.records import RecordMemory
        from engine.cpu.gemm.tiles import LANES
        from engine.cpu.jit.compiler import keep_compiled_code

    if config.kv.block_size % LANES:
        return PackerChoice(None, f"block_size is {config.kv.block_size}, no multiple of {LANES}")
    try:
        check_compilable(model_config)
    except NotCompilable as error:
        return PackerChoice(None, str(error))
    keep_compiled_code()
    prepare()
    # A set dtype of float32 asks for exact inputs; codes of the checkpoint are then multiplied as float32.
    is_exact = config.compute.dtype == "float32" and config.compute.quantization == "none"
    pairs_inputs = model_config.dtype == torch.bfloat16 and config.compute.dtype == "auto"
    return PackerChoice(RecordMemory(rounds_inputs=not is_exact, pairs_inputs=pairs_inputs))


def _reason_against(config: CoreConfig, machine: Machine) -> str | None:
    """Return the setting that prevents compiled steps, if any."""
    if machine.device.type != "cpu":
        return "the device is no CPU"
    if not config.compute.compiled_steps:
        return "compiled_steps is off"
    if machine.dtype != torch.float32:
        return f"dtype is {config.compute.dtype}; compiled steps compute in float32"
    if config.compute.quantization not in ("none", "int8", "int8_dynamic", "int4"):
        return f"quantization is {config.compute.quantization}"
    if config.compute.tensor_parallel > 1:
        return "tensor_parallel divides the model"
    return None if machine.kv_dtype is None else f"kv_dtype is {config.kv.kv_dtype}"


def checkpoint_bytes(folder: Path) -> int:
    """Return the bytes of a checkpoint's weight files."""
    return sum(path.stat().st_size for ending in ("safetensors", "gguf") for path in folder.glob(f"*.{ending}"))


def with_compiled_steps(
    config: CoreConfig, model: Model, backend: AttentionBackend, packer: WeightPacker | None
) -> Model:
    """Return the model with its compiled steps ready but unused, or the model itself if its weights are not packed."""
    if packer is None or not isinstance(model, Decoder):
        return model
    # Numba takes its time to import, and other machines need none of it.
    from engine.cpu.execution.model import CompiledModel

    assert isinstance(backend, TorchAttention)
    kv_dtype = torch.bfloat16 if _may_round_kv(config, model) else torch.float32
    return CompiledModel(model, backend, kv_dtype)


def cpu_kernels(model: Model, machine: Machine, choice: PackerChoice) -> CpuKernels | None:
    """Return how steps are computed, for the log and the metrics; None on a GPU."""
    if machine.device.type != "cpu":
        return None
    head_major = machine.backend.head_major if isinstance(machine.backend, TorchAttention) else None
    kv_dtype = str(machine.kv_dtype or head_major or machine.dtype).removeprefix("torch.")
    num_threads = torch.get_num_threads()
    if not isinstance(model, CompiledSteps):
        return CpuKernels(steps="torch", reason=choice.reason, kv_dtype=kv_dtype, num_threads=num_threads)
    products = ", ".join(f"{count} by {kind}" for kind, count in model.products.items())
    return CpuKernels(
        steps="compiled",
        products=products,
        kv_dtype=kv_dtype,
        num_threads=num_threads,
        processor=_processor(),
        uses_matrix_unit=model.prompt_ways[-1] == "matrix unit",
    )


def _processor() -> str:
    """Return the target of compiled code: triple, processor and features."""
    # Numba takes its time to import, and other machines need none of it.
    from engine.cpu.jit.compiler import target

    return target()


def _may_round_kv(config: CoreConfig, model: Model) -> bool:
    """Return whether the KV pool may hold bfloat16: by the checkpoint's own dtype, or by the setting."""
    is_narrow = model.config.dtype in (torch.bfloat16, torch.float16)
    is_own = is_narrow and config.compute.dtype == config.kv.kv_dtype == "auto"
    return is_own or config.kv.kv_dtype == "bfloat16"


def settle_steps(
    model: Model, runner: ModelRunner, *, num_speculative_tokens: int, num_weight_bytes: int, clock: Callable[[], float]
) -> AdaptiveRunner:
    """Return the runner that chooses the threads of each step.

    The start measures nothing: it may happen beside other work. Steps run compiled wherever the model can, prompts on
    the fastest unit that the processor has. The unit never changes, for another one would round a prompt differently:
    the same request could get another answer. The runner corrects its threads by what steps take while serving.
    """
    num_threads = torch.get_num_threads()
    if isinstance(model, CompiledSteps):
        model.max_tokens = MAX_TOKENS
        model.prompt_way = model.prompt_ways[-1]
        model.max_verified = num_speculative_tokens + 1
        model.resize(num_threads)
    return AdaptiveRunner(
        runner,
        _Settings(num_threads, model if isinstance(model, CompiledSteps) else None),
        num_threads=num_threads,
        num_weight_bytes=num_weight_bytes,
        clock=clock,
    )


def follow(model: Model | None, other: Model) -> None:
    """Compile the steps of a draft model as far as those of the other model are compiled, on one thread."""
    if isinstance(model, CompiledSteps) and isinstance(other, CompiledSteps):
        model.max_tokens, model.prompt_way, model.max_verified = other.max_tokens, other.prompt_way, other.max_verified


class _Settings:
    """Number of threads of compiled steps and of torch."""

    def __init__(self, num_threads: int, compiled: CompiledSteps | None) -> None:
        """Record `num_threads` as the present setting of torch and of compiled steps."""
        self._compiled = compiled
        self._of_torch = self._of_compiled = num_threads

    @property
    def max_tokens(self) -> int:
        """Tokens up to which a step of short sequences runs compiled."""
        return 0 if self._compiled is None else self._compiled.max_tokens

    def use_threads(self, num_threads: int, num_tokens: int, *, in_torch: bool = False) -> None:
        """Use `num_threads` threads for a step of `num_tokens` tokens, which torch computes if `in_torch`."""
        of_torch = num_threads
        if not in_torch and self._compiled is not None and self._compiled.computes(num_tokens):
            # Torch has little left to do then, for which it would have its threads wait for each other.
            of_torch = 1
            if num_threads != self._of_compiled:
                self._compiled.resize(num_threads)
                self._of_compiled = num_threads
        if of_torch != self._of_torch:
            torch.set_num_threads(of_torch)
            self._of_torch = of_torch
