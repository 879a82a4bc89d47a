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
                *("guidellm", "run", "--backend", f"kind=openai_http,target={URL},model={MODEL}"),
                *("--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=4"),
                *("--tokenizer", f"kind=hf_auto,model={tokenizer}"),
                *("--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8"),
                *("--output", f"kind=json,path={name}/report.json", "--disable-console-interactive"),
            ],
            Path(name),
            {"HF_HUB_OFFLINE": "1"},
        )


run()
