"""How prompts may be computed; told apart from how that is done, which takes Numba its time to import."""

from __future__ import annotations

from typing import Literal

PromptWay = Literal["torch", "vectors", "matrix unit"]
"""In torch, or compiled for the processor's vector units or its matrix unit."""
