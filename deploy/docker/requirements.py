"""Dependencies of the project that one image installs, one a line.

    python requirements.py gateway pyproject.toml              its dependencies
    python requirements.py engine pyproject.toml               its dependencies
    python requirements.py weights pyproject.toml X.lock       weights alone, locked, without what they ask for
    python requirements.py constraints X.lock                  versions of a lock, without hashes

The images use the project's own extras: the gateway `learning`, the engine `engine`. The extra `embeddings` holds
weights alone but asks for torch; `weights` lists it, to be installed without its dependencies.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

Image = Literal["gateway", "engine", "weights"]

EXTRAS: Final[Mapping[Image, str]] = {"gateway": "learning", "engine": "engine", "weights": "embeddings"}
_ENTRY: Final = re.compile(
    r"^(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;\\]+).*?(?=^\S|\Z)", re.MULTILINE | re.DOTALL
)


def requirements(image: Image, project: Mapping[str, Any]) -> list[str]:
    """Return the dependencies of an image; `project` is that table of pyproject.toml."""
    base = [] if image == "weights" else [str(line) for line in project["dependencies"]]
    extra = project["optional-dependencies"][EXTRAS[image]]
    return [*base, *map(str, extra)]


def constraints(lock: str) -> list[str]:
    """Return `name==version` of every entry of a lock."""
    return [f"{found['name']}=={found['version']}" for found in _ENTRY.finditer(lock)]


def locked_weights(project: Mapping[str, Any], lock: str) -> list[str]:
    """Return the entries of a lock, hashes and all, that hold the weights."""
    names = {re.split(r"[<>=!~ \[;]", line)[0] for line in requirements("weights", project)}
    return list(_without_origins(found.group() for found in _ENTRY.finditer(lock) if found["name"] in names))


def _without_origins(entries: Iterator[str]) -> Iterator[str]:
    for entry in entries:
        yield "\n".join(line for line in entry.splitlines() if not line.lstrip().startswith("#"))


def main(arguments: Sequence[str]) -> int:
    """Print them; 2 when the arguments are none of the four above."""
    texts = [Path(name).read_text() for name in arguments[1:]]
    match arguments[:1], texts:
        case (["gateway" | "engine" as image], [project]):
            lines = requirements(image, tomllib.loads(project)["project"])
        case (["weights"], [project, lock]):
            lines = locked_weights(tomllib.loads(project)["project"], lock)
        case (["constraints"], [lock]):
            lines = constraints(lock)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
