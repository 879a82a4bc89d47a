"""Fingerprint of an engine's answers: its weights, and how they are computed."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Final

from engine.config import CoreConfig
from engine.protocol import CpuKernels

_SAMPLE_BYTES: Final = 4096
_NUM_SAMPLES: Final = 64
"""Samples of each file of weights: a whole file of gigabytes would delay the start."""
_WHOLE_BYTES: Final = 1024 * 1024
_PACKAGES: Final = ("torch", "numba", "llguidance")
_TEMPLATE_FILES: Final = frozenset({"chat_template.json", "tokenizer_config.json"})
"""Files with a chat template, beside those that end in `.jinja`."""
_NAMED_TEMPLATES: Final = "additional_chat_templates/*.jinja"
_STATED_CHARS: Final = 16
"""Characters of each digest that an engine states of its model: enough to tell two models apart."""


def answer_fingerprint(config: CoreConfig, device: str, dtype: str, kernels: CpuKernels | None) -> str:
    """Return a digest that differs for engines whose tokens may differ.

    It covers every file of the model's folder (its size, and the whole or evenly spaced samples), dtypes, quantization,
    the kind of machine and the versions of the libraries. Threads and sizes of batches do not change tokens. The model
    of the processor, which `processor_digest` covers, changes them only at a near tie.

    Args:
        config: Settings of the core.
        device: Device of the model, with its name on a GPU.
        dtype: Dtype of the weights.
        kernels: Computation of the steps on a CPU; None on a GPU.
    """
    compute = config.compute
    how = {
        "device": device,
        "dtype": dtype,
        "quantization": compute.quantization,
        "tensor_parallel": compute.tensor_parallel,
        "kv_dtype": config.kv.kv_dtype if kernels is None else kernels.kv_dtype,
        "kernels": "" if kernels is None else f"{kernels.steps} {kernels.products}",
        "machine": platform.machine(),
        "packages": [_version(name) for name in _PACKAGES],
    }
    digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
    for path in _files(config.model_dir):
        _add_file(digest, path)
    return digest.hexdigest()


def model_state(config: CoreConfig, dtype: str, kernels: CpuKernels | None) -> str:
    """Return what the engine states of its model: `MODEL;QUANTIZATION;TEMPLATE`.

    MODEL is a digest of the model's files without its chat template, TEMPLATE of the files with that. QUANTIZATION
    names the quantization at load, the dtype of the weights and that of the KV pool. Arguments are those of
    `answer_fingerprint`.
    """
    model, template = hashlib.sha256(), hashlib.sha256()
    for path in _files(config.model_dir):
        _add_file(template if path.suffix == ".jinja" or path.name in _TEMPLATE_FILES else model, path)
    kv_dtype = config.kv.kv_dtype if kernels is None else kernels.kv_dtype
    numbers = f"{config.compute.quantization}/{dtype.removeprefix('torch.')}/{kv_dtype}"
    return f"{model.hexdigest()[:_STATED_CHARS]};{numbers};{template.hexdigest()[:_STATED_CHARS]}"


def processor_digest(kernels: CpuKernels | None) -> str:
    """Return a short digest of the processor that steps are compiled for; empty where none are."""
    if kernels is None or not kernels.processor:
        return ""
    return hashlib.sha256(kernels.processor.encode()).hexdigest()[:_STATED_CHARS]


def _files(model_dir: Path) -> list[Path]:
    """Return the files of a model in order, and those of its folder of named chat templates."""
    return [*sorted(path for path in model_dir.iterdir() if path.is_file()), *sorted(model_dir.glob(_NAMED_TEMPLATES))]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _add_file(digest: hashlib._Hash, path: Path) -> None:
    size = path.stat().st_size
    digest.update(f"\0{path.name}\0{size}\0".encode())
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            digest.update(file.read())
            return
        for index in range(_NUM_SAMPLES):
            file.seek((size - _SAMPLE_BYTES) * index // (_NUM_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
