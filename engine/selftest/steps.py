"""Measure decode steps on this device against its memory bandwidth: `penstock engine steps`.

Every step reads all weights and the sequences' keys and values; the time for this at the measured copy bandwidth is
a lower bound. Three modes separate the host's share: queued (launched without waiting, so that the device never
idles), overlapped (one step ahead, as on a GPU) and awaited (one by one).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.attention.base import AttentionSpec, ForwardContext, KVCache
from engine.config import CoreConfig, EngineConfigError
from engine.kv_cache.kv_pool import block_bytes
from engine.lora.adapter_file import LowRankWeights
from engine.lora.lora_linear import StepAdapters, attach_adapters
from engine.lora.lora_model import LoraModel, TokenSteps
from engine.lora.stacked_weights import StackedWeights
from engine.lora.token_adapters import TokenAdapterModel
from engine.models.config.checkpoint import CheckpointError
from engine.models.config.config_reader import ModelConfigError
from engine.models.decoder import Decoder, Model
from engine.models.loading.loader import load_model
from engine.quantization.float8 import QuantizationError
from engine.runner.cpu_steps import checkpoint_bytes
from engine.runner.cuda_graphs import CapturableModel, graph_model
from engine.runner.flight import LaunchedStep
from engine.runner.machine import Machine, find_machine
from engine.runner.overlap_runner import OverlapRunner
from engine.runner.warm_up import PLAIN_PARAMS, made_up_batch
from engine.sampling.device_choice import TorchChooser
from engine.sampling.sampler import Sampler
from engine.step.sample_rows import SampleRows
from engine.step.scheduler_output import SchedulerOutput

_COPY_BYTES = {"cuda": 4 << 30, "cpu": 64 << 20}
_COPY_REPEATS = 10
_WARM_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """Step times, in milliseconds, of one number of sequences with one context length."""

    num_seqs: int
    context: int
    queued_ms: float
    overlapped_ms: float
    awaited_ms: float
    bound_ms: float
    bound_share: float
    """Ratio of the bound to the queued time."""


def main(argv: Sequence[str]) -> int:
    """Measure and print the results, with JSON as the last line.

    Returns:
        0, or 2 if the model or a setting is wrong.
    """
    options = _parser().parse_args(argv)
    try:
        shapes = options.shape or [(1, 128)]
        results = measure_steps(_config(options), shapes, options.steps, time.perf_counter, options.adapters)
    except (EngineConfigError, ModelConfigError, CheckpointError, QuantizationError) as error:
        print(f"engine steps: {error}", file=sys.stderr)
        return 2
    if not options.json:
        print("\n".join(f"{name:<14} {value}" for name, value in results.items() if name != "shapes"))
        print("\n".join(f"{shape}" for shape in results["shapes"]))
    print(json.dumps(results))
    return 0


def measure_steps(
    config: CoreConfig,
    shapes: Sequence[tuple[int, int]],
    num_steps: int,
    clock: Callable[[], float],
    num_adapters: int = 0,
) -> dict[str, Any]:
    """Measure each (sequences, context) and describe the device.

    Args:
        config: Settings of the core.
        shapes: Sequences of a step and their context.
        num_steps: Steps of each kind.
        clock: Seconds.
        num_adapters: Adapters with random weights that the sequences use in turn; 0: none.

    Raises:
        EngineConfigError: A setting is wrong, or the model has recurrent layers.
        CheckpointError, ModelConfigError, QuantizationError: The model cannot be loaded.
    """
    machine = find_machine(config)
    copy_bytes_s = copy_bandwidth(machine.device, clock)
    model = load_model(
        config.model_dir,
        dtype=machine.dtype,
        device=machine.device,
        backend=machine.backend,
        quantization=config.compute.quantization,
    )
    if model.config.traits.recurrent is not None:
        raise EngineConfigError("model: steps of recurrent layers are not measured; use penstock bench engine_gpu")
    weight_bytes = _weight_bytes(config, machine, model)
    adapters = _RandomAdapters(config, machine, model, num_adapters) if num_adapters else None
    figures = []
    runners = []  # all stay: graphs of one pool cannot be captured once earlier ones of it are gone
    for num_seqs, context in shapes:
        batch = made_up_batch(
            num_seqs,
            1,
            context,
            num_blocks=_num_blocks(config, num_seqs, context),
            block_size=config.kv.block_size,
            params=PLAIN_PARAMS,
        )
        runner = _runner(config, machine, model, num_seqs, context, adapters)
        runners.append(runner)
        bound_s = (weight_bytes + _kv_bytes(machine, model.attention_specs, num_seqs * context)) / (copy_bytes_s)
        figures.append(_figures(runner, batch, context, num_steps, bound_s, machine.device, clock))
    return {
        "card": torch.cuda.get_device_name(machine.device) if machine.device.type == "cuda" else "cpu",
        "num_threads": torch.get_num_threads() if machine.device.type == "cpu" else 0,
        "torch": torch.__version__,
        "dtype": str(machine.dtype).removeprefix("torch."),
        "quantization": config.compute.quantization,
        "adapters": num_adapters,
        "copy_gb_s": round(copy_bytes_s / 1e9, 1),
        "weight_gb": round(weight_bytes / 1e9, 3),
        "shapes": [asdict(figure) for figure in figures],
    }


def copy_bandwidth(device: torch.device, clock: Callable[[], float]) -> float:
    """Return the bytes per second that a plain copy reads and writes, the best of several runs."""
    source = torch.zeros(_COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best_s = float("inf")
    for _ in range(_COPY_REPEATS):
        _wait(device)
        started_at = clock()
        target.copy_(source)
        _wait(device)
        best_s = min(best_s, clock() - started_at)
    return 2 * source.nbytes / best_s


def _figures(
    runner: OverlapRunner,
    batch: SchedulerOutput,
    context: int,
    num_steps: int,
    bound_s: float,
    device: torch.device,
    clock: Callable[[], float],
) -> StepFigures:
    seconds = []
    for depth in (num_steps, 1, 0):
        _run(runner, batch, _WARM_STEPS, depth)
        _wait(device)
        started_at = clock()
        _run(runner, batch, num_steps, depth)
        _wait(device)
        seconds.append((clock() - started_at) / num_steps)
    return StepFigures(
        num_seqs=len(batch.chunks),
        context=context,
        queued_ms=1e3 * seconds[0],
        overlapped_ms=1e3 * seconds[1],
        awaited_ms=1e3 * seconds[2],
        bound_ms=1e3 * bound_s,
        bound_share=bound_s / seconds[0],
    )


def _run(runner: OverlapRunner, batch: SchedulerOutput, num_steps: int, depth: int) -> None:
    """So many steps, each launched when at most `depth` before it are still awaited."""
    under_way: list[LaunchedStep] = []
    last: LaunchedStep | None = None
    for _ in range(num_steps):
        last = runner.launch(batch, last)
        under_way.append(last)
        while len(under_way) > depth:
            under_way.pop(0).result()
    for flight in under_way:
        flight.result()


class _RandomAdapters:
    """Adapters with random weights; sequence i of a step uses adapter i modulo their number."""

    def __init__(self, config: CoreConfig, machine: Machine, decoder: Decoder, num_adapters: int) -> None:
        rank = config.adapters.max_lora_rank
        weights = StackedWeights(
            decoder.config, num_adapters=num_adapters, max_rank=rank, dtype=machine.dtype, device=machine.device
        )
        for projections in weights.layers:
            for places in projections.values():
                in_size = places.projection.in_size
                parts = [
                    LowRankWeights(module, torch.randn(rank, in_size) / in_size, torch.randn(module.size, rank) / rank)
                    for module in places.projection.modules
                ]
                for adapter in range(num_adapters):
                    places.store(adapter, parts)
        self._num_adapters = num_adapters
        self._decoder = decoder
        self._step = StepAdapters()
        self._device = machine.device
        attach_adapters(decoder, weights, self._step)

    def model(self, capture: Callable[[CapturableModel], Model]) -> Model:
        """Return a model whose sequences all use adapters."""
        token_steps = None
        if self._device.type == "cuda":
            # Only GPU builds install Triton.
            from engine.kernels.token_adapters import add_token_products

            adapted = TokenAdapterModel(self._decoder, self._step, add_token_products, self._device)
            token_steps = TokenSteps(adapted, capture(adapted))
        lora = LoraModel(self._decoder, self._decoder, self._step, runs_base_apart=False, token_steps=token_steps)
        return _AllAdapted(lora, self._num_adapters)


class _AllAdapted:
    """Model that gives every sequence of a step an adapter."""

    def __init__(self, model: Model, num_adapters: int) -> None:
        self.config, self.attention_specs = model.config, model.attention_specs
        self._model = model
        self._num_adapters = num_adapters

    def forward(self, token_ids: torch.Tensor, context: ForwardContext, caches: list[KVCache]) -> torch.Tensor:
        """Compute a step whose sequence i uses adapter i modulo their number."""
        adapters: list[int | None] = [seq % self._num_adapters for seq in range(len(context.context_lens))]
        return self._model.forward(token_ids, replace(context, adapters=adapters), caches)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, float32 [N, vocab], of hidden states [N, hidden]."""
        return self._model.logits(hidden)


def _runner(
    config: CoreConfig,
    machine: Machine,
    model: Decoder,
    num_seqs: int,
    context: int,
    adapters: _RandomAdapters | None,
) -> OverlapRunner:
    num_blocks = _num_blocks(config, num_seqs, context)
    caches = machine.allocate_pool(model.attention_specs, num_blocks, config.kv.block_size)

    def capture(plain: CapturableModel) -> Model:
        if machine.graphs is None:
            return plain
        return graph_model(config, plain, caches, machine.graphs, max_model_len=context, device=machine.device)

    run_model = capture(model) if adapters is None else adapters.model(capture)
    return OverlapRunner(
        run_model,
        Sampler(machine.chooser),
        caches,
        chooser=machine.chooser or TorchChooser(),
        sample_rows=SampleRows(machine.device),
        device=machine.device,
        block_size=config.kv.block_size,
        max_tokens=num_seqs,
        max_num_seqs=num_seqs,
        max_blocks=-(-context // config.kv.block_size),
    )


def _num_blocks(config: CoreConfig, num_seqs: int, context: int) -> int:
    return num_seqs * -(-context // config.kv.block_size)


def _kv_bytes(machine: Machine, specs: Sequence[AttentionSpec], num_positions: int) -> int:
    has_scales = machine.kv_dtype is not None
    return num_positions * block_bytes(specs, 1, machine.kv_element_bytes, has_scales=has_scales)


def _weight_bytes(config: CoreConfig, machine: Machine, model: Decoder) -> int:
    """Return the bytes that a step reads: all weights except an untied embedding, of which it reads a few rows."""
    if machine.device.type == "cuda":
        held = torch.cuda.memory_allocated(machine.device)
    else:
        held = checkpoint_bytes(config.model_dir)
    shape = model.config
    embedding = 0 if shape.tie_word_embeddings else shape.vocab_size * shape.hidden_size * machine.dtype.itemsize
    return held - embedding


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _config(options: argparse.Namespace) -> CoreConfig:
    num_seqs = max(num_seqs for num_seqs, _ in options.shape or [(1, 128)])
    return CoreConfig.of(
        model_dir=options.model.resolve(),
        device=options.device,
        quantization=options.quantization,
        kv_dtype=options.kv_dtype,
        num_threads=options.threads,
        cuda_graphs=not options.no_graphs,
        max_num_seqs=num_seqs,
        max_num_batched_tokens=max(num_seqs, 512),
    )


def _shape(text: str) -> tuple[int, int]:
    num_seqs, _, context = text.partition("x")
    if not (num_seqs.isdigit() and context.isdigit() and int(num_seqs) and int(context)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected sequences x context, such as 64x1024")
    return int(num_seqs), int(context)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock engine steps", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="model folder")
    parser.add_argument("--shape", type=_shape, action="append", metavar="ROWSxCONTEXT", help="default 1x128")
    parser.add_argument("--steps", type=int, default=100, help="of each kind (default %(default)s)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--quantization", choices=("none", "int8", "int4", "fp8"), default="none")
    parser.add_argument("--kv-dtype", choices=("auto", "int8", "fp8"), default="auto")
    parser.add_argument("--threads", type=int, default=0, help="of torch on a CPU; 0: every core")
    parser.add_argument("--adapters", type=int, default=0, help="random ones of rank 16 that sequences use in turn")
    parser.add_argument("--no-graphs", action="store_true", help="launch every kernel by itself")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    return parser
