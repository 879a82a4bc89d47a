"""Modes of prompt computation, apart from their code, because Numba takes long to import."""

from __future__ import annotations

from typing import Literal

PromptWay = Literal["torch", "vectors", "matrix unit"]
"""Prompt computation in torch, or compiled for the processor's vector units or its matrix unit."""
