"""Greedy texts of the engine in float32 beside those of `transformers`: how many prompts have the same continuation.

Both sides continue the same token ids. Where the texts part, `transformers` tells how far its best two scores lie
apart: below 1e-4 the rounding of either side may choose, and the prompt counts as a tie.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from loadtests.clients.completions import complete_tokens
from loadtests.harness.card import Card, Value
from loadtests.harness.processes import Workbench
from loadtests.harness.stack import start_engine

_TIE = 1e-4
_INCOMPLETE = "\ufffd"
_OPENINGS = (
    "Write a short letter to a friend about {}.",
    "The history of {} began when",
    "Three facts that everyone should know about {}:\n1.",
    "def describe(topic):\n    # {}\n    return",
    "Q: Why do people care about {}?\nA:",
    "Explain {} to a child of seven years.",
    "| property | value |\n|---|---|\n| topic | {} |\n|",
    "Once upon a time there was a king who loved {} more than",
    '{{"topic": "{}", "summary": "',
    "Zusammenfassung auf Deutsch: {} ist",
)
_TOPICS = (
    *("the tides", "sourdough bread", "prime numbers", "railway stations", "bees"),
    *("the violin", "volcanoes", "contracts", "snow in April", "old maps"),
)


@dataclass(frozen=True, slots=True)
class Continuation:
    """Greedy continuation of one prompt by `transformers`."""

    texts: tuple[str, ...]
    """Text after each token."""
    gaps: tuple[float, ...]
    """Distance between the best two scores, for each token."""

    def gap(self, text: str) -> float | None:
        """Return the distance between the best two scores where another engine's text parts; None: they are equal."""
        if text.rstrip(_INCOMPLETE) == self.texts[-1].rstrip(_INCOMPLETE):
            return None
        pairs = zip(self.texts, self.gaps, strict=True)
        return next((gap for known, gap in pairs if not text.startswith(known.rstrip(_INCOMPLETE))), self.gaps[-1])


class GreedyReference:
    """One checkpoint, a folder or a GGUF file, in transformers in float32 on a CPU."""

    def __init__(self, model: Path, num_threads: int) -> None:
        # Imported here: other benches do not need them, and they take seconds.
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(num_threads)
        self._torch = torch
        source = {"gguf_file": model.name} if model.is_file() else {}
        folder = model.parent if model.is_file() else model
        # Any: the annotations of from_pretrained exclude what its documentation allows.
        network: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **source)
        self._network = network.eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **source)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with the special tokens that the tokenizer adds."""
        return list(self._tokenizer(text)["input_ids"])

    def proceed(self, prompt: Sequence[int], num_tokens: int) -> Continuation:
        """Choose the likeliest token `num_tokens` times."""
        ids, cache, made, gaps = self._torch.tensor([list(prompt)]), None, [], []
        with self._torch.inference_mode():
            for _ in range(num_tokens):
                output = self._network(ids, cache=cache, use_cache=True)
                cache = output.cache
                best = output.logits[0, -1].float().topk(2)
                made.append(int(best.indices[0]))
                gaps.append(float(best.values[0] - best.values[1]))
                ids = self._torch.tensor([[made[-1]]])
        texts = tuple(self._tokenizer.decode(made[:end], skip_special_tokens=True) for end in range(1, num_tokens + 1))
        return Continuation(texts, tuple(gaps))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--model", type=Path, required=True, help="folder or GGUF file")
    parser.add_argument("--prompts", type=int, default=100, help="at most 100 (default %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="of each continuation (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of computing, on either side (default %(default)s)")
    parser.add_argument("--quantization", default="none", help="of the engine's weights (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Continue every prompt on both sides, the engine's in float32."""
    model = options.model.resolve()
    reference = await asyncio.to_thread(GreedyReference, model, options.threads)
    texts = [opening.format(topic) for topic, opening in product(_TOPICS, _OPENINGS)][: options.prompts]
    counts = dict.fromkeys(("equal", "tie", "differs"), 0)
    notes = ["differs  the texts part where the best two scores lie further apart than 1e-4"]
    flags = (
        *("--dtype", "float32", "--kv-dtype", "float32", "--quantization", options.quantization),
        *("--device", "cpu", "--num-threads", str(options.threads), "--log-level", "warning"),
        *("--max-num-seqs", "8", "--max-model-len", "512"),
    )
    async with Workbench() as bench:
        engine = await start_engine(bench, model, *flags)
        for text in texts:
            prompt = reference.encode(text)
            ours = (await complete_tokens(engine.address, prompt, options.tokens)).text
            expected = await asyncio.to_thread(reference.proceed, prompt, options.tokens)
            gap = expected.gap(ours)
            counts["equal" if gap is None else "tie" if gap < _TIE else "differs"] += 1
            if gap is not None:
                notes.append(f"{gap:.2g} apart after {text!r}")
    results: dict[str, Value] = {"model": model.name, "num_prompts": len(texts), "num_tokens": options.tokens}
    for verdict, count in counts.items():
        results[f"num_{verdict}"] = count
    return Card(bench="parity", arrivals="closed: one prompt after the other", results=results, notes=tuple(notes))
