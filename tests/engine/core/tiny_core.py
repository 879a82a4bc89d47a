"""A real model behind a real scheduler, without process or socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from engine.attention.base import KVCache
from engine.attention.torch_attention import TorchAttention
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.step.prompt_mode import MAX_TOKENS
from engine.forecast.output_forecast import OutputForecast
from engine.forecast.step_time import StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.kv_cache.state_slots import StateSlots
from engine.kv_cache.window_blocks import WindowBlocks
from engine.lora.adapter_table import AdapterTable
from engine.lora.lora_linear import StepAdapters, attach_adapters
from engine.lora.lora_model import LoraModel
from engine.lora.stacked_weights import StackedWeights
from engine.models.decoder import Decoder, Model
from engine.models.loading.loader import load_model
from engine.protocol import Add, SamplingParams, SeqOutput
from engine.runner.runner import ModelRunner
from engine.sampling.grammar_compiler import Grammars
from engine.sampling.sampler import Sampler
from engine.scheduler.admission import Limits
from engine.scheduler.scheduler import Scheduler
from engine.step.drafting import Drafter
from engine.step.sample_rows import SampleRows
from engine.step.tally import CoreTotals
from tests.engine.core.checkpoints import MAX_MODEL_LEN, VOCAB_SIZE
from tests.engine.models.paged import compile_model

CPU = torch.device("cpu")
BLOCK_SIZE = 8
COMPILED_BLOCK_SIZE = 16
PROMPTS = [[(7 * n * n + k * n + 3) % VOCAB_SIZE for n in range(20 + 9 * k)] for k in range(4)]
"""Four prompts of different lengths."""
SHARED = [PROMPTS[3] + tail for tail in ([1, 2, 3], [1, 2, 4], [9] * 12, [9] * 13)]
"""Four prompts with one long prefix."""


class TinyCore:
    """A real model behind a real scheduler, without process or socket."""

    def __init__(
        self,
        folder: Path,
        *,
        num_blocks: int = 128,
        budget: int = 512,
        num_seqs: int = 8,
        prefix_cache: bool = True,
        drafter: Callable[[TinyCore], Drafter] | None = None,
        grammars: Grammars | None = None,
        compiled_threads: int = 0,
        adapters: Mapping[str, Path] | None = None,
        num_window_blocks: int = 0,
    ) -> None:
        """Load the model.

        `compiled_threads`: on which steps run compiled; 0: none does. `adapters`: folders of adapters by name.
        `num_window_blocks`: of layers with a window; 0: as many as of others.
        """
        block_size = COMPILED_BLOCK_SIZE if compiled_threads else BLOCK_SIZE
        self.num_blocks, self.budget, self.num_seqs = num_blocks, budget, num_seqs
        self.backend = backend = TorchAttention(CPU)
        packer = RecordMemory() if compiled_threads else None
        self.model: Model = load_model(folder, dtype=torch.float32, device=CPU, backend=backend, packer=packer)
        if compiled_threads:
            self.model = compiled = compile_model(self.model, backend)
            compiled.resize(compiled_threads)
            compiled.max_tokens, compiled.prompt_way = MAX_TOKENS, "vectors"
        specs = self.model.attention_specs
        longest = max(spec.sliding_window or 0 for spec in specs)
        self.windows = None
        if num_window_blocks:
            self.windows = WindowBlocks(num_blocks, num_window_blocks, window=longest, block_size=block_size)
        self.caches = backend.allocate_layers(
            num_blocks, block_size, specs, torch.float32, num_window_blocks=num_window_blocks
        )
        caches: list[KVCache] = [*self.caches]
        table, model = _adapted(self.model, adapters or {})
        self.runner = ModelRunner(
            model,
            Sampler(),
            caches,
            sample_rows=SampleRows(CPU),
            device=CPU,
            block_size=block_size,
            max_tokens=budget,
            max_num_seqs=num_seqs,
            max_blocks=MAX_MODEL_LEN // block_size,
            places=None if self.windows is None else self.windows.places,
        )
        self.tally = CoreTotals()
        self.drafter = None if drafter is None else drafter(self)
        limits = Limits(
            max_model_len=min(MAX_MODEL_LEN, num_blocks * block_size),
            vocab_size=self.model.config.vocab_size,
            max_num_seqs=num_seqs,
            max_num_batched_tokens=budget,
            max_waiting=100,
        )
        self.blocks = BlockManager(num_blocks, block_size, enable_prefix_cache=prefix_cache, windows=self.windows)
        if self.model.config.traits.recurrent is not None:
            self.runner.states = self.blocks.states = StateSlots(num_seqs, block_size)
        self.scheduler = Scheduler(
            limits,
            self.blocks,
            forecast=OutputForecast(prior_tokens=1.0),
            step_time=StepTimeModel(),
            tally=self.tally,
            drafter=self.drafter,
            grammars=grammars,
            adapters=table,
        )
        self.outputs: list[SeqOutput] = []
        self._num_sequences = 0

    @property
    def num_leaked(self) -> int:
        """Blocks that belong to nobody."""
        return self.blocks.num_leaked(self.scheduler.running())

    def answers(
        self,
        prompts: list[list[int]],
        adapters: list[str | None] | None = None,
        predictions: list[list[int]] | None = None,
        **params: Any,
    ) -> list[list[int]]:
        """Token ids of the answers, all prompts at once; every step is stated to take a millisecond."""
        first = self._num_sequences
        num = len(prompts)
        for prompt, adapter, predicted in zip(
            prompts, adapters or [None] * num, predictions or [[]] * num, strict=True
        ):
            sampling = SamplingParams(**({"max_tokens": 16, "temperature": 0.0} | params))
            add = Add(
                seq_id=self._num_sequences,
                prompt_token_ids=prompt,
                params=sampling,
                adapter=adapter,
                prediction_token_ids=predicted,
            )
            self.scheduler.add(add, 0.0)
            self._num_sequences += 1
        texts: dict[int, list[int]] = {}
        while self.scheduler.has_work:
            batch = self.scheduler.schedule(0.0)
            output = self.runner.execute(batch)
            if self.drafter is not None:
                self.drafter.observe(batch, output, 0.001)
            self.scheduler.update_from_output(batch, output, 0.0)
            self.scheduler.check_integrity()
            for sequence_output in self.scheduler.take_outputs():
                assert sequence_output.error is None
                self.outputs.append(sequence_output)
                texts.setdefault(sequence_output.seq_id, []).extend(sequence_output.token_ids)
        return [texts[seq_id] for seq_id in range(first, self._num_sequences)]


def _adapted(model: Model, folders: Mapping[str, Path]) -> tuple[AdapterTable, Model]:
    """A table with these adapters, and the model whose steps use them."""
    if not folders:
        return AdapterTable.without_places(), model
    decoder = model if isinstance(model, Decoder) else model.decoder  # type: ignore[attr-defined]
    weights = StackedWeights(model.config, num_adapters=len(folders), max_rank=8, dtype=torch.float32, device=CPU)
    step = StepAdapters()
    attach_adapters(decoder, weights, step)
    results: list[object] = []
    table = AdapterTable(weights, results.append)
    for name, folder in folders.items():
        table.load_now(name, folder)
    return table, LoraModel(model, decoder, step, runs_base_apart=decoder is not model)
