"""Clients of the matrix, the environments that they run in, and one run of each against a product."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
ENVIRONMENTS: Final = ROOT / ".clients"
"""Folder of the clients' environments; git ignores it."""
TOKENIZER: Final = ROOT / "engine" / "bundled" / "models" / "penstock-small"
_INSTALL_TIMEOUT_S: Final = 1800.0
_RUN_TIMEOUT_S: Final = 600.0
_CELL: Final = "CELL "
_PACKAGE: Final = re.compile(r"^((?:@[\w.-]+/)?[\w.-]+)")


class MatrixClient(msgspec.Struct, frozen=True):
    """One client: its name for people, its script and the packages that it needs."""

    name: str
    script: str
    packages: tuple[str, ...]
    """Requirements, the client's own package first."""

    @property
    def is_node(self) -> bool:
        """Return whether the script runs in Node.js."""
        return self.script.endswith(".mjs")

    @property
    def environment(self) -> Path:
        """Return the folder of the client's own environment."""
        return ENVIRONMENTS / Path(self.script).stem


class CellResult(msgspec.Struct, frozen=True):
    """Outcome of one cell."""

    surface: str
    cell: str
    error: str | None
    seconds: float = 0.0


CLIENTS: Final = (
    MatrixClient("openai-python", "python/openai_python.py", ("openai",)),
    MatrixClient("anthropic (Python)", "python/anthropic_python.py", ("anthropic",)),
    MatrixClient("litellm", "python/litellm_client.py", ("litellm",)),
    MatrixClient("langchain-openai", "python/langchain_client.py", ("langchain-openai",)),
    MatrixClient(
        "llama-index",
        "python/llama_index_client.py",
        ("llama-index-llms-openai-like", "llama-index-embeddings-openai-like"),
    ),
    MatrixClient("pydantic-ai", "python/pydantic_ai_client.py", ("pydantic-ai-slim[openai,anthropic]",)),
    MatrixClient("instructor", "python/instructor_client.py", ("instructor",)),
    MatrixClient("openai-agents (Python)", "python/openai_agents_client.py", ("openai-agents",)),
    MatrixClient("smolagents", "python/smolagents_client.py", ("smolagents[openai]",)),
    MatrixClient("haystack", "python/haystack_client.py", ("haystack-ai",)),
    MatrixClient("semantic-kernel", "python/semantic_kernel_client.py", ("semantic-kernel",)),
    MatrixClient("dspy", "python/dspy_client.py", ("dspy",)),
    MatrixClient("llm", "python/llm_client.py", ("llm",)),
    MatrixClient("aider", "python/aider_client.py", ("aider-chat",)),
    MatrixClient("guidellm", "python/guidellm_client.py", ("guidellm",)),
    MatrixClient("lm-eval", "python/lm_eval_client.py", ("lm-eval[api]",)),
    MatrixClient("openai-node", "node/openai_node.mjs", ("openai",)),
    MatrixClient("openai-agents (JavaScript)", "node/openai_agents_js.mjs", ("@openai/agents", "openai", "zod")),
    MatrixClient(
        "AI SDK",
        "node/ai_sdk.mjs",
        ("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic", "zod"),
    ),
    MatrixClient("anthropic (JavaScript)", "node/anthropic_node.mjs", ("@anthropic-ai/sdk",)),
    MatrixClient("codex CLI", "node/codex_cli.mjs", ("@openai/codex",)),
    MatrixClient("Claude Code", "node/claude_code.mjs", ("@anthropic-ai/claude-code",)),
)


def install(client: MatrixClient) -> str:
    """Install the client's current release unless it is there, and return its version.

    Raises:
        RuntimeError: The installation failed.
    """
    folder = client.environment
    marker = folder / "installed.json"
    if not marker.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if client.is_node:
            command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder)]
            _checked([*command, *(f"{package}@latest" for package in client.packages)], folder)
        else:
            _checked([sys.executable, "-m", "venv", str(folder)], folder)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _checked([*pip, *client.packages], folder)
        marker.write_text(json.dumps({"version": _version(client)}))
    found: dict[str, str] = json.loads(marker.read_text())
    return found["version"]


def run_cells(client: MatrixClient, product: Mapping[str, str]) -> list[CellResult]:
    """Run the client's script against a product.

    Args:
        client: An installed client.
        product: Environment variables that say where the product is; see `python/cells.py`.
    """
    script = HERE / client.script
    if client.is_node:
        for source in script.parent.glob("*.mjs"):  # a module resolves packages from its own folder
            shutil.copy(source, client.environment / source.name)
        command = ["node", str(client.environment / script.name)]
    else:
        command = [str(client.environment / "bin" / "python"), str(script)]
    environment = {**os.environ, **product, "PENSTOCK_TOKENIZER": str(TOKENIZER), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    try:
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_RUN_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return [CellResult("-", "script", f"did not end within {_RUN_TIMEOUT_S:.0f} s")]
    lines = [line for line in ran.stdout.splitlines() if line.startswith(_CELL)]
    results = [msgspec.json.decode(line.removeprefix(_CELL), type=CellResult) for line in lines]
    return results or [CellResult("-", "script", (ran.stdout + ran.stderr)[-3000:] or "printed nothing")]


def table(rows: Mapping[str, tuple[str, list[CellResult]]]) -> str:
    """Return the matrix as a Markdown table: a client a row, a surface a column."""
    surfaces = sorted({result.surface for _, results in rows.values() for result in results})
    lines = ["| client | version | " + " | ".join(surfaces) + " |", "|---" * (len(surfaces) + 2) + "|"]
    for name, (version, results) in rows.items():
        cells = [_shown([result for result in results if result.surface == surface]) for surface in surfaces]
        lines.append(f"| {name} | {version} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shown(results: list[CellResult]) -> str:
    """Return how many of these cells passed, and the names of the others."""
    if not results:
        return ""
    failed = [result.cell for result in results if result.error is not None]
    passed = f"{len(results) - len(failed)} of {len(results)}"
    return f"{passed} (not: {', '.join(failed)})" if failed else passed


def _version(client: MatrixClient) -> str:
    found = _PACKAGE.match(client.packages[0])
    assert found is not None, "packages are named"
    package = found[1]
    if client.is_node:
        document: dict[str, Any] = json.loads(
            (client.environment / "node_modules" / package / "package.json").read_text()
        )
        return str(document["version"])
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return _checked([str(client.environment / "bin" / "python"), "-c", code], client.environment).strip()


def _checked(command: list[str], folder: Path) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command[:6])} … failed:\n{(ran.stdout + ran.stderr)[-2000:]}")
    return ran.stdout


def selected(names: list[str]) -> Iterator[MatrixClient]:
    """Yield the clients of these names, in any case; all of them for no name."""
    for client in CLIENTS:
        if not names or any(name.lower() in client.name.lower() for name in names):
            yield client
