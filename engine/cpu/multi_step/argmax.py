"""The likeliest token of each of many rows of logits, and how sure they are of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cpu.gemm.arithmetic import exp
from engine.cpu.jit.compiler import compiled

SURENESSES = 10
"""Told apart by how often the doubt is halved."""


@compiled
def _share(logits: Any, highest: Any) -> Any:
    """Of the highest one in all probability."""
    total = np.float32(0.0)
    for i in range(logits.size):
        total += exp(logits[i] - highest)
    return np.float32(1.0) / total


@compiled
def largest(logits: Any) -> int:
    """The first of the highest ones; -1 where they are no numbers."""
    token, highest = -1, np.float32(-np.inf)
    for i in range(logits.size):
        if logits[i] > highest:
            token, highest = i, logits[i]
    return token


@compiled
def likeliest(logits: Any, tokens: Any, kinds: Any) -> None:
    """Of float32 logits [N, heads, vocab] into `tokens` and `kinds` [N, heads]: SURENESSES kinds for each head.

    Logits that are no numbers say nothing: their token is -1.
    """
    for row in range(logits.shape[0]):
        for head in range(logits.shape[1]):
            of_head = logits[row, head]
            token = largest(of_head)
            doubt = np.float32(1.0)
            if token >= 0:
                doubt -= _share(of_head, of_head[token])
            sureness = 0
            while sureness < SURENESSES - 1 and doubt <= np.float32(0.5):
                doubt *= np.float32(2.0)
                sureness += 1
            tokens[row, head] = token
            kinds[row, head] = SURENESSES * head + sureness


def prepare() -> None:
    """Have it compiled, or read from disk; takes seconds the first time on a machine."""
    told = np.zeros((1, 1), np.int64)
    likeliest(np.zeros((1, 1, 1), np.float32), told, told.copy())
