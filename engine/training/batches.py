"""Padded token batches of conversations, with the loss on assistant tokens only."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.training.data.example import Example
from engine.training.data.generator import Mix, draw_example
from engine.training.tokenizer import END_OF_TEXT, IM_END, IM_START, token_id

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LENGTH_BANDS = (48, 80, 128, 208, 336, 560, 960, 4096)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Right-padded token ids, and the positions that predict an assistant token."""

    ids: torch.Tensor
    is_target: torch.Tensor


def render_conversation(example: Example, *, with_answer: bool) -> str:
    """Return the conversation in the chat template's form."""
    turns = "".join(f"{IM_START}{m['role']}\n{m['content']}{IM_END}\n" for m in example.messages)
    return f"{turns}{IM_START}assistant\n" + (f"{example.answer}{IM_END}" if with_answer else "")


class Encoder:
    """Encoder of examples into token ids and target masks."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._start = token_id(tokenizer, IM_START)
        self._end = token_id(tokenizer, IM_END)
        self._assistant = tokenizer.encode("assistant").ids
        self.pad = token_id(tokenizer, END_OF_TEXT)

    def encode(self, examples: Sequence[Example]) -> list[tuple[list[int], list[bool]]]:
        """Return the ids of each conversation, and True where the next token is one of the assistant's."""
        encodings = self._tokenizer.encode_batch(
            [render_conversation(example, with_answer=True) for example in examples]
        )
        return [(encoding.ids, self._targets(encoding.ids)) for encoding in encodings]

    def _targets(self, ids: list[int]) -> list[bool]:
        targets = [False] * len(ids)
        header = len(self._assistant) + 2
        position = 0
        while position < len(ids):
            if ids[position] == self._start and ids[position + 1 : position + header - 1] == self._assistant:
                position += header - 1
                while position + 1 < len(ids) and ids[position] != self._end:
                    targets[position] = True
                    position += 1
            position += 1
        return targets


class Batches:
    """Training data of each optimizer step, a pure function of seed and step."""

    def __init__(self, encoder: Encoder, mix_at: Callable[[int], Mix], seed: int, step_tokens: int) -> None:
        self._encoder = encoder
        self._mix_at = mix_at
        self._seed = seed
        self._step_tokens = step_tokens

    def at(self, step: int) -> list[MicroBatch]:
        """Return the micro-batches of one step, each with similar lengths."""
        rng = random.Random(f"{self._seed}:{step}")
        rows: list[tuple[list[int], list[bool]]] = []
        num_tokens = 0
        mix = self._mix_at(step)
        while num_tokens < self._step_tokens:
            fresh = self._encoder.encode([draw_example(rng, "train", mix) for _ in range(8)])
            rows += fresh
            num_tokens += sum(len(ids) for ids, _ in fresh)
        rows.sort(key=lambda row: len(row[0]))
        bands: dict[int, list[tuple[list[int], list[bool]]]] = {}
        for row in rows:
            bands.setdefault(next(band for band in LENGTH_BANDS if len(row[0]) <= band), []).append(row)
        return [self._pad(band) for band in bands.values()]

    def _pad(self, rows: list[tuple[list[int], list[bool]]]) -> MicroBatch:
        width = max(len(ids) for ids, _ in rows)
        ids = torch.full((len(rows), width), self._encoder.pad, dtype=torch.long)
        is_target = torch.zeros((len(rows), width), dtype=torch.bool)
        for index, (row, targets) in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
            is_target[index, : len(row)] = torch.tensor(targets)
        return MicroBatch(ids, is_target)
