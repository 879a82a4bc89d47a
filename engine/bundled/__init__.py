"""The bundled pair of models: its data generator, tokenizer, training, evaluation and weights."""

from pathlib import Path
from typing import Literal

Size = Literal["small", "large"]


def model_dir(size: Size) -> Path:
    """Folder of a shipped model in Hugging Face layout."""
    return Path(__file__).parent / "models" / f"penstock-{size}"
