"""Rendering of the Helm chart by Helm's own library, without a cluster and without a `helm` program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import helm_python
import yaml

FOLDER: Final = Path(__file__).parent
CHART: Final = FOLDER / "chart"
COPIES: Final[Mapping[str, Path]] = {
    "alerts.yaml": FOLDER.parent / "prometheus" / "alerts.yaml",
    "recording.yaml": FOLDER.parent / "prometheus" / "recording.yaml",
    "serve.yaml": FOLDER.parent / "ray" / "app.yaml",
}
"""Files that a packaged chart must hold itself, with the place that each is copied from."""

Key = tuple[str, str, str]
"""API version, kind and name of an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedObject:
    """One object: the text with its comments, and the template that it comes from, such as `engines.yaml`."""

    template: str
    text: str
    value: dict[str, Any]

    @property
    def key(self) -> Key:
        """Return what tells this object from every other."""
        return self.value["apiVersion"], self.value["kind"], self.value["metadata"]["name"]


def profiles() -> list[str]:
    """Return the names of the values files in `chart/profiles`, one an overlay."""
    return sorted(path.stem for path in (CHART / "profiles").glob("*.yaml"))


def profile_values(name: str) -> dict[str, Any]:
    """Return the values of a profile."""
    found: dict[str, Any] = yaml.safe_load((CHART / "profiles" / f"{name}.yaml").read_text())
    return found


def render(values: Mapping[str, Any]) -> list[RenderedObject]:
    """Return every object of a release with these values, in the order of template and text.

    Raises:
        helm_python.HelmError: The values break the chart's schema, or a template fails.
    """
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(dict(values))
        rendered = chart.render(dict(values), name="penstock", namespace="penstock")
    return [
        RenderedObject(template=Path(name).name, text=document.strip() + "\n", value=value)
        for name, text in sorted(rendered.items())
        for document in f"\n{text}".split("\n---\n")
        if (value := yaml.safe_load(document)) is not None
    ]
