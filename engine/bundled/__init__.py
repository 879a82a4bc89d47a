"""The bundled pair of models: where their weights are."""

from pathlib import Path
from typing import Literal

Size = Literal["small", "large"]


def model_dir(size: Size) -> Path:
    """Folder of a shipped model in Hugging Face layout."""
    return Path(__file__).parent / "models" / f"penstock-{size}"
