"""Modes of step computation, apart from their code, because Numba takes long to import."""

from __future__ import annotations

from typing import Final, Literal

MAX_TOKENS: Final = 64
"""Tokens of the largest step of short rows that runs compiled; beyond it rows are computed as prompts are."""
PromptWay = Literal["torch", "vectors", "matrix unit"]
"""Prompt computation in torch, or compiled for the processor's vector units or its matrix unit."""
