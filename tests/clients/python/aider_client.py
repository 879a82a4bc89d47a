"""aider: one message about one file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cells import AGENT, KEY, V1, cell, run
from programs import ran


@cell("chat")
def message() -> None:
    """A message about a file, streamed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sum.py").write_text("print(3 + 4)\n")
        flags = ["--no-git", "--yes-always", "--no-check-update", "--no-analytics", "--no-show-model-warnings"]
        output = ran(
            ["aider", "--model", f"openai/{AGENT}", *flags, "--message", "What does this print?", "sum.py"],
            folder,
            {"OPENAI_API_BASE": V1, "OPENAI_API_KEY": KEY},
        )
    assert "Hello from the upstream" in output, output[-2000:]


run()
