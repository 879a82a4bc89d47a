"""Batched greedy decoding of a model folder."""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from engine.training import tokenizer as tokenizer_module
from engine.training.batches import render_conversation
from engine.training.data.example import Example

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BATCH_TOKENS = 12_000
MAX_ANSWER_TOKENS = 160


class Reply(NamedTuple):
    """One greedy answer with the log probability of each of its tokens.

    The end token is left out, because no stream reports it.
    """

    text: str
    logprobs: list[float]
    margins: list[float]
    """Difference to the log probability of the second choice, for each token."""


class GreedyDecoder:
    """Checkpoint run by transformers in float32, as the engine runs it on a CPU."""

    def __init__(self, folder: Path) -> None:
        try:
            from transformers import DynamicCache, Qwen3ForCausalLM
        except ImportError as error:
            raise ImportError("evaluation needs transformers: pip install 'penstock[train]'") from error
        self._model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._make_cache = DynamicCache
        # The argument has this name from version 5.24 on.
        is_renamed = "cache" in inspect.signature(self._model.forward).parameters
        self._cache_argument = "cache" if is_renamed else "past_key_values"
        self._tokenizer: Tokenizer = tokenizer_module.read_tokenizer(folder)
        self._end = tokenizer_module.token_id(self._tokenizer, tokenizer_module.IM_END)
        self._pad = tokenizer_module.token_id(self._tokenizer, tokenizer_module.END_OF_TEXT)

    def answers(self, examples: Sequence[Example]) -> list[str]:
        """Return one greedy answer for each example, in order."""
        return [reply.text for reply in self.replies(examples)]

    def replies(self, examples: Sequence[Example]) -> list[Reply]:
        """Return one greedy answer for each example, in order, with log probabilities."""
        texts = [render_conversation(example, with_answer=False) for example in examples]
        prompts = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        replies = [Reply("", [], [])] * len(examples)
        for batch in _batches(prompts):
            for index, reply in zip(batch, self._generate([prompts[i] for i in batch]), strict=True):
                ids, logprobs, margins = reply
                replies[index] = Reply(self._tokenizer.decode(ids), logprobs, margins)
        return replies

    @torch.inference_mode()
    def _generate(self, prompts: Sequence[list[int]]) -> list[tuple[list[int], list[float], list[float]]]:
        width = max(map(len, prompts))
        ids = torch.tensor([[self._pad] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        replies: list[tuple[list[int], list[float], list[float]]] = [([], [], []) for _ in prompts]
        rows = torch.arange(len(prompts))
        cache = self._make_cache()
        retained = {self._cache_argument: cache}
        for _ in range(MAX_ANSWER_TOKENS):
            output = self._model(
                input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1, **retained
            )
            best, ranked = torch.log_softmax(output.logits[:, -1], -1).topk(2)
            chosen = ranked[:, 0]
            is_open = chosen != self._end
            for row, token, (first, second) in zip(rows.tolist(), chosen.tolist(), best.tolist(), strict=True):
                if token != self._end:
                    tokens, logprobs, margins = replies[row]
                    tokens.append(token)
                    logprobs.append(first)
                    margins.append(first - second)
            if not is_open.any():
                break
            if not is_open.all():  # a few long answers must not keep the whole batch running
                unfinished = is_open.nonzero().flatten()
                cache.batch_select_indices(unfinished)
                rows, chosen, positions, mask = (
                    rows[unfinished],
                    chosen[unfinished],
                    positions[unfinished],
                    mask[unfinished],
                )
            ids, positions = chosen[:, None], positions[:, -1:] + 1
            mask = torch.cat((mask, torch.ones_like(ids)), dim=1)
        return replies


def _batches(prompts: Sequence[list[int]]) -> Iterator[list[int]]:
    """Yield the indices of prompts of similar length, about BATCH_TOKENS padded tokens per batch."""
    batch: list[int] = []
    for index in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        if batch and (len(batch) + 1) * len(prompts[index]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
