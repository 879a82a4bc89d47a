"""Paths of the two bundled models."""

from pathlib import Path
from typing import Literal

Size = Literal["small", "large"]


def model_dir(size: Size) -> Path:
    """Return the folder of a bundled model in Hugging Face layout."""
    return Path(__file__).parent / "models" / f"penstock-{size}"
