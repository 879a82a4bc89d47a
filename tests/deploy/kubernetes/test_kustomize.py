"""Base and overlays: written from the chart, and the same objects when Kustomize builds them."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deploy.kubernetes.kustomize import json_patch
from tests.deploy.kubernetes.rendering import FOLDER, PROFILES, objects, rendering

_KUSTOMIZE = (["kustomize", "build"] if shutil.which("kustomize") else None) or (
    ["kubectl", "kustomize"] if shutil.which("kubectl") else None
)


def by_key(found: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    keyed = {(item["apiVersion"], item["kind"], item["metadata"]["name"]): item for item in found}
    assert len(keyed) == len(found)
    return keyed


def test_the_files_are_those_that_the_chart_renders() -> None:
    written = {
        str(path.relative_to(FOLDER)): path.read_text()
        for folder in ("base", "overlays")
        for path in (FOLDER / folder).rglob("*")
        if path.is_file()
    }
    assert written == rendering()["files"], "run `python -m deploy.kubernetes`"


@pytest.mark.skipif(_KUSTOMIZE is None, reason="neither kustomize nor kubectl is installed")
@pytest.mark.parametrize("profile", PROFILES)
def test_kustomize_builds_the_objects_that_helm_renders(profile: str) -> None:
    assert _KUSTOMIZE is not None
    folder = FOLDER / ("base" if profile == "base" else f"overlays/{profile}")
    done = subprocess.run([*_KUSTOMIZE, str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert by_key(list(yaml.safe_load_all(done.stdout))) == by_key(objects(profile))


VALUES = st.recursive(
    st.integers() | st.text("a~/", max_size=3) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="ab~/", max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


def apply(value: Any, operations: list[dict[str, Any]]) -> Any:
    """What RFC 6902 makes of the value; `json_patch` yields no operation on an element after it was removed."""
    for operation in operations:
        *parents, last = (
            [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")]
            if operation["path"]
            else [""]
        )
        if not parents:
            value = operation["value"]
            continue
        place = value
        for part in parents[1:]:
            place = place[int(part) if isinstance(place, list) else part]
        name: Any = int(last) if isinstance(place, list) else last
        if operation["op"] == "remove":
            del place[name]
        else:
            place[name] = operation["value"]
    return value


@given(VALUES, VALUES)
def test_a_patch_turns_the_one_into_the_other(old: Any, new: Any) -> None:
    operations = list(json_patch(old, new))
    patched = apply(yaml.safe_load(yaml.safe_dump(old)), operations)
    assert patched == new
    assert bool(operations) == (old != new)
