"""Cost of quantization: perplexity and task accuracy of a model beside the unquantized model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from engine.config import ComputeConfig, CoreConfig, KVConfig, KVDtype, Quantization
from engine.cpu.step.prompt_mode import MAX_TOKENS
from engine.models.decoder import Model
from engine.models.families.registry import read_model_config
from engine.models.loading.loader import load_model
from engine.runner.cpu_steps import CompiledSteps, choose_packer, with_compiled_steps
from engine.runner.machine import Machine, find_machine
from engine.selftest.text_model import ScoredText, TextModel
from engine.training.batches import Encoder, render_conversation
from engine.training.data.example import Example
from engine.training.data.grade import is_right
from engine.training.tokenizer import IM_END, read_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MAX_ANSWER_TOKENS = 160
_CHUNK_TOKENS = 512
_ANY_TEXT = "a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Model with its weight quantization and KV dtype."""

    model_dir: Path
    quantization: Quantization = "none"
    kv_dtype: KVDtype = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantQuality:
    """Measured quality of one variant."""

    perplexity: float
    accuracy: float | None
    """Share of right answers in percent; None without tasks."""
    answers: tuple[tuple[int, ...], ...]
    """Token ids of the answers in the order of the tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityLoss:
    """Loss of a quantized variant against the unquantized one; negative for a gain."""

    perplexity: float
    """Relative loss: 0.01 is one percent."""
    accuracy: float | None
    """Loss in percentage points; None without tasks."""

    def excess(self, max_perplexity: float, max_accuracy: float) -> str | None:
        """Return the text of the first exceeded limit, or None."""
        if not self.perplexity <= max_perplexity:
            return f"perplexity loss {self.perplexity:.2%} is above {max_perplexity:.2%}"
        if self.accuracy is not None and not self.accuracy <= max_accuracy:
            return f"accuracy loss of {self.accuracy:.1f} points is above {max_accuracy:.1f}"
        return None


def loss(before: VariantQuality, after: VariantQuality) -> QualityLoss:
    """Return the loss from `before` to `after`; a perplexity of NaN counts as an infinite loss."""
    ratio = after.perplexity / before.perplexity - 1
    accuracy = None
    if before.accuracy is not None and after.accuracy is not None:
        accuracy = before.accuracy - after.accuracy
    return QualityLoss(perplexity=math.inf if math.isnan(ratio) else ratio, accuracy=accuracy)


def measure_quality(variant: Variant, texts: Sequence[ScoredText], tasks: Sequence[Example]) -> VariantQuality:
    """Measure one variant on the CPU by the steps that serve, compiled where they are; answers are greedy.

    An unquantized variant computes in float32, its KV cache too.
    """
    is_exact = variant.quantization == "none" and variant.kv_dtype == "auto"
    config = CoreConfig(
        model_dir=variant.model_dir,
        compute=ComputeConfig(
            device="cpu",
            dtype="float32" if is_exact else "auto",
            num_threads=torch.get_num_threads(),
            quantization=variant.quantization,
        ),
        kv=KVConfig(kv_dtype=variant.kv_dtype),
    )
    machine = find_machine(config)
    model = _served_model(config, machine)
    text_model = TextModel(model, machine.backend, machine.dtype, machine.device)
    perplexity = text_model.perplexity(texts)
    if not tasks:
        return VariantQuality(perplexity=perplexity, accuracy=None, answers=())
    tokenizer = read_tokenizer(variant.model_dir)
    prompts = [
        encoding.ids
        for encoding in tokenizer.encode_batch([render_conversation(task, with_answer=False) for task in tasks])
    ]
    end = tokenizer.token_to_id(IM_END)
    assert end is not None, "tasks are for the bundled tokenizer"
    answers = text_model.answers(prompts, frozenset({end}), _MAX_ANSWER_TOKENS)
    num_right = sum(is_right(tokenizer.decode(ids), task.answer) for ids, task in zip(answers, tasks, strict=True))
    accuracy = 100.0 * num_right / len(tasks)
    return VariantQuality(perplexity=perplexity, accuracy=accuracy, answers=tuple(map(tuple, answers)))


def _served_model(config: CoreConfig, machine: Machine) -> Model:
    """Return the model as a core would serve it on this processor."""
    packer = choose_packer(config, machine, read_model_config(config.model_dir)).packer
    loaded = load_model(
        config.model_dir,
        dtype=machine.dtype,
        device=machine.device,
        backend=machine.backend,
        quantization=config.compute.quantization,
        packer=packer,
    )
    model = with_compiled_steps(config, loaded, machine.backend, packer)
    if isinstance(model, CompiledSteps):
        model.max_tokens, model.prompt_way = MAX_TOKENS, model.prompt_ways[-1]
        model.resize(torch.get_num_threads())
    return model


def task_texts(model_dir: Path, tasks: Sequence[Example]) -> list[ScoredText]:
    """Return conversations in which only assistant tokens count."""
    return [ScoredText(ids, targets) for ids, targets in Encoder(read_tokenizer(model_dir)).encode(tasks)]


def file_texts(model_dir: Path, path: Path, max_tokens: int) -> list[ScoredText]:
    """Return a text file in pieces of 512 tokens, up to `max_tokens`; all tokens but each piece's first count.

    Each piece begins with the special tokens that the tokenizer puts before a text, as requests do.
    """
    tokenizer = read_tokenizer(model_dir)
    ids = tokenizer.encode(path.read_text(encoding="utf-8"), add_special_tokens=False).ids[:max_tokens]
    start_ids = _start_ids(tokenizer)
    size = _CHUNK_TOKENS - len(start_ids)
    pieces = [start_ids + ids[start : start + size] for start in range(0, len(ids), size)]
    return [ScoredText(piece, [True] * (len(piece) - 1) + [False]) for piece in pieces if len(piece) > 1]


def _start_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the special tokens before a text, such as the beginning-of-sequence token."""
    encoding = tokenizer.encode(_ANY_TEXT)
    is_special: list[int] = encoding.special_tokens_mask
    ids: list[int] = encoding.ids
    return ids[: is_special.index(0)]
