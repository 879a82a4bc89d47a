"""guidellm: a short benchmark of chat completions."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cells import MODEL, URL, cell, run
from programs import ran


@cell("chat")
def benchmark() -> None:
    """A few requests, one after the other."""
    tokenizer = os.environ["PENSTOCK_TOKENIZER"]
    with tempfile.TemporaryDirectory() as name:
        ran(
            [
                *("guidellm", "benchmark", "--target", URL, "--model", MODEL, "--profile", "synchronous"),
                *("--max-requests", "4", "--processor", tokenizer, "--data", "prompt_tokens=32,output_tokens=8"),
                *("--output-dir", name, "--disable-console-interactive"),
            ],
            Path(name),
            {"HF_HUB_OFFLINE": "1"},
        )


run()
