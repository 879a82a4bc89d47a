"""Command `python -m tests.gateway.embedding.exported_folder SOURCE TARGET`: a model's folder with its ONNX graph."""

from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path
from typing import Any


def export(source: Path, target: Path) -> None:
    """Copy a folder without its weights, and write the graph of its model as hubs ship it."""
    import torch
    from transformers import AutoModel

    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    (target / "onnx").mkdir()
    model = AutoModel.from_pretrained(source).eval()
    names = ["input_ids", "attention_mask", "token_type_ids"]

    class TokenVectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            return self.model(**dict(zip(names, given, strict=True))).last_hidden_state

    ones = torch.ones((2, 8), dtype=torch.int64)
    torch.onnx.export(
        TokenVectors(),
        (ones, ones, torch.zeros_like(ones)),
        target / "onnx" / "model.onnx",
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "texts", 1: "tokens"} for name in (*names, "last_hidden_state")},
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    export(Path(sys.argv[1]), Path(sys.argv[2]))
