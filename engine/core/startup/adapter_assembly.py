"""Construction of the adapters: their memory, those to load at start, and the model whose steps use them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from engine.config import CoreConfig, EngineConfigError
from engine.lora.adapter_config import AdapterError
from engine.lora.adapter_file import AdapterFile
from engine.lora.adapter_table import AdapterRead, AdapterTable
from engine.lora.lora_linear import StepAdapters, attach_adapters
from engine.lora.lora_model import LoraModel, TokenSteps
from engine.lora.stacked_weights import StackedWeights, adapter_bytes
from engine.lora.token_adapters import TokenAdapterModel
from engine.models.config.config import ModelConfig
from engine.models.decoder import Decoder, Model
from engine.runner.cuda_graphs import CapturableModel
from engine.runner.machine import Machine

logger = logging.getLogger(__name__)


@runtime_checkable
class ModelWithDecoder(Protocol):
    """Model whose compiled steps stand beside a decoder with the same weights."""

    decoder: Decoder


@dataclass(frozen=True, slots=True)
class Adapters:
    """Adapters of one core."""

    table: AdapterTable
    decoder: Decoder | None
    """Decoder whose projections add the adapters' products; None if the engine serves no adapters."""
    step: StepAdapters
    has_compiled_steps: bool

    def model(self, base: Model, capture: Callable[[CapturableModel], Model]) -> Model:
        """Return the model whose steps may use adapters.

        Args:
            base: Model of steps without any.
            capture: Returns a model whose steps are captured where they can be.
        """
        if self.decoder is None:
            return base
        device, token_steps = self.decoder.embedding.device, None
        if device.type == "cuda":
            # Only GPU builds install Triton.
            from engine.kernels.token_adapters import add_token_products

            adapted = TokenAdapterModel(self.decoder, self.step, add_token_products, device)
            token_steps = TokenSteps(adapted, capture(adapted))
        return LoraModel(
            base, self.decoder, self.step, runs_base_apart=self.has_compiled_steps, token_steps=token_steps
        )


def check_adapters(config: CoreConfig, model: ModelConfig) -> None:
    """Check the adapters to load at start before the model is read.

    Raises:
        EngineConfigError: An adapter cannot be served.
    """
    for name, folder in config.adapters.named():
        try:
            AdapterFile(folder, model, config.adapters.max_lora_rank)
        except AdapterError as error:
            raise EngineConfigError(f"lora: {name}: {error}") from error


def load_adapters(
    config: CoreConfig, model: Model, machine: Machine, deliver: Callable[[AdapterRead], None]
) -> Adapters:
    """Reserve the memory of the adapters, and load those that the settings name.

    Args:
        config: Settings of the core.
        model: Model with compiled steps or without.
        machine: Device and dtype.
        deliver: Receiver of what becomes of later loads; called from other threads.

    Raises:
        EngineConfigError: The memory limit is too low, or an adapter cannot be served.
    """
    settings = config.adapters
    is_compiled = isinstance(model, ModelWithDecoder)
    if not settings.num_places:
        return Adapters(AdapterTable.without_places(), None, StepAdapters(), is_compiled)
    bytes_each = adapter_bytes(model.config, settings.max_lora_rank, machine.dtype)
    num_bytes = settings.num_places * bytes_each
    if settings.lora_memory_bytes and num_bytes > settings.lora_memory_bytes:
        raise EngineConfigError(
            f"lora_memory_bytes: {settings.num_places} adapters of rank {settings.max_lora_rank} take {num_bytes} "
            f"bytes, {settings.lora_memory_bytes} are allowed; lower max_loras or max_lora_rank"
        )
    weights = StackedWeights(
        model.config,
        num_adapters=settings.num_places,
        max_rank=settings.max_lora_rank,
        dtype=machine.dtype,
        device=machine.device,
    )
    decoder = model.decoder if isinstance(model, ModelWithDecoder) else model
    assert isinstance(decoder, Decoder), "the settings refuse adapters beside tensor parallelism"
    step = StepAdapters()
    attach_adapters(decoder, weights, step)
    table = AdapterTable(weights, deliver)
    for name, folder in settings.named():
        try:
            table.load_now(name, folder)
        except AdapterError as error:
            raise EngineConfigError(f"lora: {name}: {error}") from error
    logger.info(
        "%d places for adapters up to rank %d, %d bytes each; %s the sequences that use one%s",
        *(settings.num_places, settings.max_lora_rank, bytes_each),
        "kernels decode" if machine.device.type == "cuda" else "torch computes",
        ", and compiled steps the others" if is_compiled else "",
    )
    return Adapters(table, decoder, step, is_compiled)
