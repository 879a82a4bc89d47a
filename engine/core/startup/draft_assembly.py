"""Construction and measurement of proposers: lookup, prediction heads, a draft model over its own pool."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import CoreConfig, EngineConfigError
from engine.core.startup.pool_assembly import max_num_seqs
from engine.forecast.step_cost import StepCosts
from engine.models.decoder import Decoder, Model
from engine.models.families.registry import read_model_config
from engine.models.loading.loader import load_model
from engine.models.prediction_heads import MedusaHeads, PredictionHeads, read_heads
from engine.runner.cpu_steps import CompiledSteps, choose_packer, with_compiled_steps
from engine.runner.cuda_graphs import graph_model
from engine.runner.machine import Machine
from engine.runner.runner import ModelRunner
from engine.runner.warm_up import PLAIN_PARAMS, Run, made_up_batch, measure_verification
from engine.sampling.sampler import Sampler
from engine.spec_decode.proposers.draft_model import Behind, DraftModelProposer
from engine.step.drafting import Drafter
from engine.step.sample_rows import SampleRows
from engine.step.scheduler_output import SchedulerOutput

if TYPE_CHECKING:
    from engine.spec_decode.proposers.medusa import MedusaProposer

logger = logging.getLogger(__name__)

_LIMIT_S = 1.5
_BATCH_SIZES = (1, 2, 4, 8, 16)
_CONTEXT_TOKENS = 128
"""Context of the steps that show what drafting and verifying cost."""
_REPEATS = 5
_REPEATS_AFTER_READING = 2


def load_heads(config: CoreConfig, model: Model, machine: Machine) -> MedusaProposer | None:
    """Load the prediction heads from the model's folder; None without heads or if the settings do not enable them.

    Raises:
        CheckpointError: The heads do not fit the model.
        CompileError: Compiled code cannot be had.
    """
    heads = _medusa_heads(config, model, machine)
    if heads is None:
        return None
    # Numba takes its time to import, and other machines need none of it.
    from engine.spec_decode.proposers.medusa import MedusaProposer

    return MedusaProposer(heads)


def _medusa_heads(config: CoreConfig, model: Model, machine: Machine) -> MedusaHeads | None:
    if config.drafting.speculation != "auto":
        return None
    weights = read_heads(config.model_dir, model.config.hidden_size, dtype=machine.dtype, device=machine.device)
    if weights is None:
        return None
    if isinstance(model, Decoder):
        return PredictionHeads(weights, model)
    if isinstance(model, CompiledSteps):
        from engine.cpu.execution.heads import CompiledHeads
        from engine.cpu.execution.model import CompiledModel

        assert isinstance(model, CompiledModel)
        return CompiledHeads(model, PredictionHeads(weights, model.decoder))
    logger.info("prediction heads are not used: the model is shared by several processes")
    return None


def load_draft_model(config: CoreConfig, model: Model, machine: Machine) -> Model | None:
    """Load the draft model; None if the settings name none.

    Raises:
        EngineConfigError: The draft model does not fit the model.
        CompileError: Compiled code cannot be had.
    """
    folder = config.drafting.draft_model_dir
    if folder is None or config.drafting.speculation in ("off", "ngram"):
        return None
    if not folder.is_dir():
        raise EngineConfigError(f"draft_model_dir: {folder}: no such folder")
    backend = machine.backend_of_its_own()
    max_model_len = config.batch.max_model_len or model.config.usual_model_len
    packer = choose_packer(config, machine, read_model_config(folder)).packer
    draft_model = load_model(
        folder,
        dtype=machine.dtype,
        device=machine.device,
        backend=backend,
        max_model_len=max_model_len,
        packer=packer,
    )
    if draft_model.config.traits.recurrent is not None:
        raise EngineConfigError(f"draft_model_dir: {folder.name} has recurrent layers, whose states cannot go back")
    ours, theirs = model.config.vocab_size, draft_model.config.vocab_size
    if ours != theirs or _vocabulary(config.model_dir) != _vocabulary(folder):
        raise EngineConfigError(f"draft_model_dir: {folder.name} has another tokenizer than {config.model_dir.name}")
    return with_compiled_steps(config, draft_model, backend, packer)


def make_drafter(
    config: CoreConfig,
    machine: Machine,
    draft_model: Model | None,
    heads: MedusaProposer | None,
    run: Run,
    clock: Callable[[], float],
    *,
    num_blocks: int,
    max_model_len: int,
) -> Drafter | None:
    """Return the proposer of draft tokens with initial costs of verification; None when speculation is off."""
    if config.drafting.speculation == "off":
        return None
    # Numba takes its time to import, and an engine without speculation may need none of it.
    from engine.spec_decode.controller import Proposers, SpeculationController
    from engine.spec_decode.multi_step import MultiStepPlanner
    from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
    from engine.spec_decode.proposers.ngram import NgramProposer

    reach = max_model_len if draft_model is None else min(max_model_len, draft_model.config.max_position_embeddings)
    model = None
    if draft_model is not None:
        model = _draft_model(config, machine, draft_model, num_blocks, max_model_len, reach)
    scheduled_costs, followed_costs = costs = StepCosts(), StepCosts()
    context_len = min(_CONTEXT_TOKENS, reach)
    num_speculative_tokens = min(
        config.drafting.num_speculative_tokens, context_len - 1, config.batch.max_num_batched_tokens - 1
    )
    max_num_seqs = min(config.batch.max_num_seqs, config.batch.max_num_batched_tokens // (num_speculative_tokens + 1))
    num_seqs = [count for count in _BATCH_SIZES if count <= max_num_seqs]
    batch = partial(made_up_batch, num_blocks=num_blocks, block_size=config.kv.block_size, params=PLAIN_PARAMS)
    if num_speculative_tokens > 0:
        batches = (batch(count, 1, context_len) for count in num_seqs)
        measure_verification(
            run, batches, costs, clock, num_speculative_tokens=num_speculative_tokens, limit_s=_LIMIT_S
        )
    if num_speculative_tokens > 0 and model is not None:
        # In turn, so that the first of each, which only touches every path, is soon outnumbered.
        batches = (batch(count, 1, context_len) for _ in range(_REPEATS) for count in num_seqs)
        _measure_drafting(model, batches, scheduled_costs, clock)
    for count in num_seqs:
        plain_s, fixed_s, each_s = scheduled_costs.of_step(count)
        if not plain_s:  # the time for measuring was over before
            continue
        logger.info(
            "a decode step of %d sequences takes %.3f ms; drafts add %.3f ms, and each %.3f ms",
            *(count, 1e3 * plain_s, 1e3 * fixed_s, 1e3 * each_s),
        )
    stats = AcceptanceStats()
    ngram = None if config.drafting.speculation == "draft" else NgramProposer(stats)
    multi_step = None
    if heads is not None and heads.multi_step is not None and ngram is not None:
        multi_step = MultiStepPlanner(heads.multi_step, ngram, stats, followed_costs)
    proposers = Proposers(ngram, heads is not None, multi_step, model)
    return SpeculationController(
        proposers, stats, scheduled_costs, num_speculative_tokens=config.drafting.num_speculative_tokens, clock=clock
    )


def _draft_model(
    config: CoreConfig, machine: Machine, model: Model, num_blocks: int, max_model_len: int, reach: int
) -> DraftModelProposer:
    caches = machine.allocate_pool(model.attention_specs, num_blocks, config.kv.block_size)
    if machine.graphs is not None and isinstance(model, Decoder):
        model = graph_model(config, model, caches, machine.graphs, max_model_len=max_model_len, device=machine.device)
    runner = ModelRunner(
        model,
        Sampler(machine.chooser),
        caches,
        sample_rows=SampleRows(machine.device),
        device=machine.device,
        block_size=config.kv.block_size,
        max_tokens=config.batch.max_num_batched_tokens,
        max_num_seqs=max_num_seqs(config),
        max_blocks=-(-max_model_len // config.kv.block_size),
    )
    return DraftModelProposer(
        runner,
        num_blocks=num_blocks,
        block_size=config.kv.block_size,
        max_tokens=config.batch.max_num_batched_tokens,
        reach=reach,
    )


def _measure_drafting(
    model: DraftModelProposer, batches: Iterator[SchedulerOutput], costs: StepCosts, clock: Callable[[], float]
) -> None:
    """Time reading texts and making two tokens more for each of them, until the limit has passed."""
    deadline_at = clock() + _LIMIT_S
    for batch in batches:
        places = [Behind(chunk.seq, ()) for chunk in batch.chunks]
        for _ in range(_REPEATS_AFTER_READING + 1):
            num_unread = sum(model.num_missing_tokens(place.seq) for place in places)
            started_at = clock()
            model.draft(places)
            costs.observe_drafting(len(places), 1, num_unread, clock() - started_at)
            if clock() >= deadline_at:
                return


def _vocabulary(folder: Path) -> Any:
    """Return the vocabulary and the added tokens, by id, of a tokenizer file; None without a file."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    added = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    return content.get("model", {}).get("vocab"), added
