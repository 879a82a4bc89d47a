"""Every block of the README and the docs does what the page states, against one running product."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.config.sources import load_config
from routing_policies.check import run_tests
from routing_policies.loading import load_document
from routing_policies.policy.document import Policy
from routing_policies.quality.predictor import Predictors
from tests.docs.blocks import PAGES, ROOT, Block, blocks_of
from tests.docs.product import Product, started

START: Final = "make up\n"
"""The block that the product of this module stands for."""

NOT_RUN: Final[Mapping[str, list[str]]] = {
    "README.md": ["needs a model and a server"],
    "docs/deploy.md": ["needs a Ray cluster", "needs Docker"],
    "docs/extending.md": ["one line of a dictionary"],
    "docs/kubernetes.md": ["needs a Kubernetes cluster", "a kustomization of your own", "needs a Kubernetes cluster"],
    "docs/models.md": ["takes minutes", *["needs an adapter of the model"] * 2, "needs a GPU"],
    "docs/replay.md": ["needs a recorded answer"],
    "docs/resume.md": ["starts two engines in the foreground", "takes minutes"],
    "docs/upgrading.md": ["needs your policy", "installs an environment", "needs a machine with systemd"],
    "docs/routing.md": ["needs a gateway and prompts", "needs the predictor", "needs a gateway and prompts"],
}
"""Every block with a marker, page by page."""

_EXCERPT: Final = re.compile(r"  # (?P<path>(?:gateway|engine|routing_policies|loadtests)/[\w/]+\.py)$")
"""Ends the first line of a block that shows a part of a file."""

_DEPLOYMENTS: Final = ("small", "large", "a", "b", "c", "reserve")
"""What the fragments of policies in the docs call their deployments."""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """One product for all pages."""
    with started(tmp_path_factory.mktemp("docs")) as running:
        yield running


def test_markers_are_listed_here() -> None:
    marked = {page: [block.not_run for block in blocks_of(page) if block.not_run] for page in PAGES}
    assert {page: reasons for page, reasons in marked.items() if reasons} == NOT_RUN


def test_every_block_has_a_language_that_is_checked() -> None:
    known = {"sh", "python", "yaml", "toml", ""}
    assert [block.place for page in PAGES for block in blocks_of(page) if block.language not in known] == []


def test_only_drawings_and_output_have_no_language() -> None:
    commands = re.compile(r"^\s*(\$ |penstock |curl |pip |import |from \w+ import )", re.MULTILINE)
    plain = [block for page in PAGES for block in blocks_of(page) if not block.language]
    assert [block.place for block in plain if commands.search(block.text)] == []


def test_make_up_starts_the_product() -> None:
    command = ["make", "--no-print-directory", "--dry-run", "up"]
    reported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert reported.stdout.splitlines()[-1].endswith("penstock up")


@pytest.mark.e2e
@pytest.mark.parametrize("page", sorted(PAGES, key=lambda page: page == "docs/admin.md"))
def test_every_block_of_a_page_runs(page: str, product: Product, tmp_path: Path) -> None:
    """The admin page is last: from its first key on, every request needs one."""
    (tmp_path / "routing_policies").symlink_to(ROOT / "routing_policies")  # the docs copy presets of a checkout
    for block in blocks_of(page):
        if block.not_run or block.text == START:
            continue
        if block.file_name:
            (tmp_path / block.file_name).write_text(block.text)
        check = {"sh": _run, "python": _run, "yaml": _check_policy, "toml": _check_settings}.get(block.language)
        if check is not None:
            check(block, product, tmp_path)


def _run(block: Block, product: Product, folder: Path) -> None:
    if excerpt := _EXCERPT.search(block.text.partition("\n")[0]):
        _check_excerpt(block, ROOT / excerpt["path"])
    elif block.file_name is None:  # else it is a file of the source, which its own test holds
        product.run(block, folder)


def _check_excerpt(block: Block, source: Path) -> None:
    """Every line of an excerpt stands in its file, in this order; comments may differ."""
    lines = iter(_without_comments(source.read_text()))
    missing = [line for line in _without_comments(block.text) if line not in lines]
    assert missing == [], f"{block.place}: not in {source.relative_to(ROOT)}"


def _without_comments(text: str) -> list[str]:
    return [code for line in text.splitlines() if (code := line.partition("  #")[0].strip())]


def _check_policy(block: Block, product: Product, folder: Path) -> None:
    """A whole policy, or a part of one that is completed with the deployments it names; its tests pass."""
    fragment: dict[str, Any] = yaml.safe_load(block.text)
    cost = {"prompt": 1, "completion": 2}
    deployments = [
        {"id": name, "url": "http://127.0.0.1:9", "model": f"model-{name}", "cost_per_mtok": cost}
        for name in _DEPLOYMENTS
    ]
    first = fragment.get("deployments", deployments)[0]["id"]
    route = {"id": "any", "select": {"candidates": [first]}}
    whole = {"schema_version": 1, "deployments": deployments, "routes": [route], **fragment}
    assert fragment.keys() <= set(Policy.__struct_fields__), f"{block.place}: unknown keys"
    policy, document = load_document(yaml.safe_dump(whole), source=block.place, variables={"runtime_dir": "/run"})
    assert run_tests(policy, document, Predictors()).failures == (), block.place


def _check_settings(block: Block, product: Product, folder: Path) -> None:
    file = folder / (block.file_name or "penstock.toml")
    file.write_text(block.text)
    load_config(file, {}, cwd=folder)
