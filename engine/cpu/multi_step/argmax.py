"""Most likely token of each of many rows of logits, and its confidence class."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cpu.gemm.arithmetic import exp
from engine.cpu.jit.compiler import compiled
from engine.cpu.jit.failure import reported_as_compile_error

CONFIDENCE_CLASSES = 10
"""Number of confidence classes; each class covers half the doubt of the one before it."""


@compiled
def _share(logits: Any, highest: Any) -> Any:
    """Return the softmax probability of the highest logit, which is `highest`."""
    total = np.float32(0.0)
    for i in range(logits.size):
        total += exp(logits[i] - highest)
    return np.float32(1.0) / total


@compiled
def largest(logits: Any) -> int:
    """Return the index of the first highest logit; -1 if every logit is NaN or -inf."""
    token, highest = -1, np.float32(-np.inf)
    for i in range(logits.size):
        if logits[i] > highest:
            token, highest = i, logits[i]
    return token


@compiled
def likeliest(logits: Any, tokens: Any, kinds: Any) -> None:
    """Write the most likely tokens and their kinds for float32 logits [N, heads, vocab].

    `tokens` and `kinds` [N, heads] receive the results. Each head has CONFIDENCE_CLASSES kinds. The token is -1 where
    the logits are NaN.
    """
    for row in range(logits.shape[0]):
        for head in range(logits.shape[1]):
            of_head = logits[row, head]
            token = largest(of_head)
            doubt = np.float32(1.0)
            if token >= 0:
                doubt -= _share(of_head, of_head[token])
            confidence = 0
            while confidence < CONFIDENCE_CLASSES - 1 and doubt <= np.float32(0.5):
                doubt *= np.float32(2.0)
                confidence += 1
            tokens[row, head] = token
            kinds[row, head] = CONFIDENCE_CLASSES * head + confidence


@reported_as_compile_error("engine.cpu.multi_step.argmax")
def prepare() -> None:
    """Compile the kernel or load it from disk; the first time on a machine takes seconds. Raises CompileError."""
    tokens = np.zeros((1, 1), np.int64)
    likeliest(np.zeros((1, 1, 1), np.float32), tokens, tokens.copy())
