"""Kustomize base and overlays, as text, from rendered objects: an overlay holds only what differs from the base."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from deploy.kubernetes.chart import Key, RenderedObject

HEADER: Final = "# Written by `python -m deploy.kubernetes` from deploy/kubernetes/chart: change that.\n"
_POLICY: Final[Key] = ("v1", "ConfigMap", "penstock-policy")


def base_files(objects: Sequence[RenderedObject]) -> dict[str, str]:
    """Return the files of the base: one a template, the policy, and the kustomization."""
    files: dict[str, str] = {}
    for found in objects:
        if found.key != _POLICY:
            before = files.get(found.template)
            files[found.template] = f"{before}---\n{found.text}" if before else HEADER + found.text
    kustomization = {"resources": sorted(files), **_policy_generator(objects, behavior="create")}
    return {**files, "policy.yaml": _policy(objects), "kustomization.yaml": _kustomization(kustomization)}


def overlay_files(base: Sequence[RenderedObject], objects: Sequence[RenderedObject]) -> dict[str, str]:
    """Return the files of an overlay that turns the objects of the base into these."""
    old = {found.key: found.value for found in base}
    new = {found.key: found.value for found in objects}
    added = [found.text for found in objects if found.key not in old]
    files = {"added.yaml": HEADER + "---\n".join(added)} if added else {}
    kustomization: dict[str, Any] = {"resources": ["../../base", *files]}
    if _policy(base) != _policy(objects):
        files["policy.yaml"] = _policy(objects)
        kustomization |= _policy_generator(objects, behavior="replace")
    if patches := [*_deletions(old, new), *_changes(old, new)]:
        kustomization["patches"] = patches
    return {**files, "kustomization.yaml": _kustomization(kustomization)}


def json_patch(old: Any, new: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the operations (RFC 6902) that turn one JSON value into another; lists of another length are replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in new:
                yield {"op": "remove", "path": place}
            elif key not in old:
                yield {"op": "add", "path": place, "value": new[key]}
            else:
                yield from json_patch(old[key], new[key], place)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from json_patch(before, after, f"{path}/{index}")
    elif old != new:
        yield {"op": "replace", "path": path, "value": new}


def _changes(old: Mapping[Key, Any], new: Mapping[Key, Any]) -> Iterator[dict[str, Any]]:
    for key in sorted((old.keys() & new.keys()) - {_POLICY}):
        if operations := list(json_patch(old[key], new[key])):
            lines = "".join(f"- {json.dumps(operation)}\n" for operation in operations)
            yield {"target": {"kind": key[1], "name": key[2]}, "patch": lines}


def _deletions(old: Mapping[Key, Any], new: Mapping[Key, Any]) -> Iterator[dict[str, Any]]:
    for version, kind, name in sorted(old.keys() - new.keys()):
        gone = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "$patch": "delete"}
        yield {"patch": f"{json.dumps(gone)}\n"}


def _policy(objects: Sequence[RenderedObject]) -> str:
    (found,) = (found.value["data"]["policy.yaml"] for found in objects if found.key == _POLICY)
    return str(found)


def _policy_generator(objects: Sequence[RenderedObject], *, behavior: str) -> dict[str, Any]:
    (labels,) = (found.value["metadata"]["labels"] for found in objects if found.key == _POLICY)
    # The gateway reads a changed policy by itself: a new name for each version would restart every pod instead.
    options = {"disableNameSuffixHash": True, "labels": labels}
    entry = {"name": _POLICY[2], "behavior": behavior, "files": ["policy.yaml"], "options": options}
    return {"configMapGenerator": [entry]}


def _kustomization(content: Mapping[str, Any]) -> str:
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return HEADER + yaml.dump({**head, **content}, Dumper=_Dumper, sort_keys=False, width=10**6)


class _Dumper(yaml.SafeDumper):
    """Dumper that writes text of several lines as a block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
