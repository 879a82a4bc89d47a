"""Recall of facts hidden in meetings: the gateway's selection against BM25 over windows, at equal tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from gateway.embedding.encoder import TextEncoder
from gateway.embedding.installed import InstalledEncoder
from gateway.trimming.conversation import Conversation
from gateway.trimming.passages import PassageSelection
from gateway.trimming.similarity import MAX_WINDOWS
from loadtests.harness.card import Value
from loadtests.trimming.baseline import bm25_passages
from loadtests.trimming.meetings import meeting, needle

PLACES = ("after", "before", "later")
SHARES = (0.3, 0.5, 0.7)
_MEETING_BYTES = 12_000
_ORDER = "Answer in one short sentence."

Similarity = Callable[[PassageSelection], Mapping[int, float]]


def needle_results(num_samples: int, seed: int, similarity: Similarity | None = None) -> dict[str, Value]:
    """Return the share of facts and of instructions that stay, by words of the question, its place and the budget.

    Args:
        num_samples: Meetings per figure.
        seed: Seed of the meetings.
        similarity: Comparison by an encoder; None for words alone.
    """
    results: dict[str, Value] = {}
    num_orders = num_all = 0
    for wording in ("same", "other"):
        for place in PLACES:
            for share in SHARES:
                hits = base = 0
                rng = Random(seed)
                for sample in range(num_samples):
                    found = needle(rng)
                    text = meeting(rng, _MEETING_BYTES, [found.fact], is_labelled=sample % 2 == 0)
                    question = found.question if wording == "same" else found.paraphrase
                    after = _selected(_messages(text, question, place), share, similarity)
                    hits += found.fact.rstrip(".") in after
                    num_orders += _ORDER in after and question in after
                    num_all += 1
                    base += found.fact.rstrip(".") in bm25_passages(text, question, int(len(text.encode()) * share))
                name = f"{wording}_words_{place}_{share:.0%}".rstrip("%")
                results[f"recall_{name}"] = hits / num_samples
                results[f"bm25_{name}"] = base / num_samples
    return {**results, "orders_retained": num_orders / num_all}


async def encoder_similarity(folder: Path) -> Similarity:
    """Return the comparison by the packaged encoder, whose graph is stored in `folder`."""
    loop_thread = ThreadPoolExecutor(1)
    encoder: TextEncoder = await InstalledEncoder(folder, "int8").load(loop_thread)
    await asyncio.to_thread(loop_thread.shutdown)

    def compared(selection: PassageSelection) -> Mapping[int, float]:
        windows = selection.windows(MAX_WINDOWS)
        vectors = encoder.encode([selection.question.text, *(text for text, _ in windows)])
        cosines = vectors[1:] @ vectors[0]
        return {number: float(cosines[place]) for place, (_, numbers) in enumerate(windows) for number in numbers}

    return compared


def _messages(text: str, question: str, place: str) -> list[dict[str, Any]]:
    if place == "after":
        return [{"role": "user", "content": f"{_ORDER}\n\n{text}\n\n{question}"}]
    if place == "before":
        return [{"role": "user", "content": f"{question}\n\n{text}\n\n{_ORDER}"}]
    return [
        {"role": "user", "content": f"Here is what we discussed. {_ORDER}\n\n{text}"},
        {"role": "assistant", "content": "Thank you. What would you like to know?"},
        {"role": "user", "content": question},
    ]


def _selected(messages: list[dict[str, Any]], share: float, similarity: Similarity | None) -> str:
    conversation = Conversation(messages)
    selection = PassageSelection(conversation, int(conversation.num_prompt_bytes * share))
    similarities = similarity(selection) if similarity is not None else None
    return "\n".join(message["content"] for message in selection.conversation(similarities).messages)
