"""llm: the command, with a model in its own configuration."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from cells import AGENT, KEY, MODEL, PROMPT, V1, cell, run
from programs import ran


def _prompted(*options: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entries = [
            {"model_id": f"penstock-{model}", "model_name": model, "api_base": V1, "supports_schema": True}
            for model in (MODEL, AGENT)
        ]
        (folder / "extra-openai-models.yaml").write_text(json.dumps(entries))
        return ran(["llm", "--no-log", *options, PROMPT], folder, {"LLM_USER_PATH": name, "OPENAI_API_KEY": KEY})


@cell("chat")
def stream() -> None:
    """A prompt, streamed."""
    assert _prompted("-m", f"penstock-{MODEL}").strip()


@cell("chat")
def plain() -> None:
    """A prompt, answered at once."""
    assert _prompted("-m", f"penstock-{MODEL}", "--no-stream").strip()


@cell("chat")
def schema() -> None:
    """A prompt with a schema."""
    assert json.loads(_prompted("-m", f"penstock-{AGENT}", "--schema", "value int"))


run()
