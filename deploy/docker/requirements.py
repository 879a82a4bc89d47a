"""`python requirements.py gateway pyproject.toml`: what one image installs of the project's dependencies, one a line.

The images use the project's own extras: the gateway `learning`, the engine `engine`. The extra `embeddings` holds
weights alone but asks for torch; `weights` lists it, to be installed without its dependencies.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

Image = Literal["gateway", "engine", "weights"]

_EXTRAS: Final[Mapping[Image, str]] = {"gateway": "learning", "engine": "engine", "weights": "embeddings"}


def requirements(image: Image, project: Mapping[str, Any]) -> list[str]:
    """Return the dependencies of an image; `project` is that table of pyproject.toml."""
    base = [] if image == "weights" else [str(line) for line in project["dependencies"]]
    extra = project["optional-dependencies"][_EXTRAS[image]] if image in _EXTRAS else []
    return [*base, *map(str, extra)]


def main(arguments: Sequence[str]) -> int:
    """Print them; 2 when the arguments are not an image and a pyproject.toml."""
    found: Image | None = next((image for image in get_args(Image) if arguments[:1] == [image]), None)
    if len(arguments) != 2 or found is None:
        print(__doc__, file=sys.stderr)
        return 2
    project = tomllib.loads(Path(arguments[1]).read_text())["project"]
    print("\n".join(requirements(found, project)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
