"""Cost of quantization: perplexity and task accuracy of a model beside the unquantized model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.attention.torch_attention import TorchAttention
from engine.config import KVDtype, Quantization
from engine.models.loading.loader import load_model
from engine.selftest.text_model import ScoredText, TextModel
from engine.training.batches import Encoder, render_conversation
from engine.training.data.example import Example
from engine.training.data.grade import is_right
from engine.training.tokenizer import IM_END, read_tokenizer

_MAX_ANSWER_TOKENS = 160
_CHUNK_TOKENS = 512


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
    """Measure one variant on the CPU, in float32 where it is not quantized; answers are greedy."""
    device, dtype = torch.device("cpu"), torch.float32
    backend = TorchAttention(device, has_int8_kv=variant.kv_dtype == "int8")
    if variant.kv_dtype == "bfloat16":
        backend.head_major = torch.bfloat16
    model = load_model(
        variant.model_dir, dtype=dtype, device=device, backend=backend, quantization=variant.quantization
    )
    text_model = TextModel(model, backend, dtype, device)
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


def task_texts(model_dir: Path, tasks: Sequence[Example]) -> list[ScoredText]:
    """Return conversations in which only assistant tokens count."""
    return [ScoredText(ids, targets) for ids, targets in Encoder(read_tokenizer(model_dir)).encode(tasks)]


def file_texts(model_dir: Path, path: Path, max_tokens: int) -> list[ScoredText]:
    """Return a text file in pieces of 512 tokens, up to `max_tokens`; all tokens but each piece's first count."""
    ids = read_tokenizer(model_dir).encode(path.read_text(encoding="utf-8"), add_special_tokens=False).ids[:max_tokens]
    pieces = [ids[start : start + _CHUNK_TOKENS] for start in range(0, len(ids), _CHUNK_TOKENS)]
    return [ScoredText(piece, [True] * (len(piece) - 1) + [False]) for piece in pieces if len(piece) > 1]
