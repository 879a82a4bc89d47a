"""Bills of materials: valid CycloneDX, with every locked package and its hashes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.supply.locks import locked
from deploy.supply.sbom import SPECIFICATION, write_sbom


@pytest.mark.parametrize("name", ["learning", "engine"])
def test_a_bill_has_every_locked_package(name: str, tmp_path: Path) -> None:
    bill = json.loads(write_sbom(name, tmp_path).read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", SPECIFICATION)
    assert bill["metadata"]["component"]["name"] == "penstock"
    components = {component["name"]: component for component in bill["components"]}
    assert {package: component["version"] for package, component in components.items()} == locked(name)
    for component in components.values():
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"


def test_two_bills_of_one_lock_are_alike(tmp_path: Path) -> None:
    first, second = (write_sbom("learning", tmp_path / part) for part in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
