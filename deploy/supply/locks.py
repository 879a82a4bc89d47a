"""Locks: one for the bare package and one for each extra, with the hash of every file that pip may take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "requirements"
BARE: Final = "base"
PLATFORM: Final = "x86_64-manylinux_2_28"
PYTHON: Final = "3.11"
_VERSION: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)
# Where this machine fetches packages is none of a lock's business.
_IGNORED: Final = ("PIP_", "UV_")


def project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def names() -> list[str]:
    """Return the names of all locks."""
    return [BARE, *project()["optional-dependencies"]]


def path_of(name: str) -> Path:
    """Return the file of a lock."""
    return FOLDER / f"{name}.lock"


def locked(name: str) -> dict[str, str]:
    """Return version by package of a lock."""
    return dict(_VERSION.findall(path_of(name).read_text()))


def stated(name: str) -> Iterator[Requirement]:
    """Yield what pyproject.toml requires for a lock, extras of this project resolved."""
    table = project()
    extras: Mapping[str, list[str]] = table["optional-dependencies"]
    queue = [*table["dependencies"], *([] if name == BARE else extras[name])]
    while queue:
        requirement = Requirement(queue.pop())
        if requirement.name == table["name"]:
            queue += [line for extra in requirement.extras for line in extras[extra]]
        elif requirement.marker is None or requirement.marker.evaluate():
            yield requirement


def resolve(requirements: Iterable[str], *, constraints: Iterable[str] = ()) -> str:
    """Return the text of a lock with the newest versions that these requirements admit.

    Args:
        requirements: Lines of a requirements file.
        constraints: Bounds for whatever package turns up, in the same form.

    Raises:
        RuntimeError: No set of versions fits.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as bounds:
        bounds.write("\n".join(constraints))
        bounds.flush()
        command = [
            *(sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--no-config", "--no-header"),
            *("--generate-hashes", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
            *(f"--python-version={PYTHON}", f"--python-platform={PLATFORM}", f"--constraint={bounds.name}"),
        ]
        text, env = "\n".join(requirements), _environment()
        done = subprocess.run(command, input=text, env=env, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def write() -> None:
    """Resolve every lock and write it; a lock of an extra that is gone is removed.

    All extras are resolved together first, so that every lock has the same version of what it shares with others.
    """
    FOLDER.mkdir(exist_ok=True)
    for stale in FOLDER.glob("*.lock"):
        if stale.stem not in names():
            stale.unlink()
    together = resolve({str(found) for name in names() for found in stated(name)})
    shared = [f"{package}=={version}" for package, version in _VERSION.findall(together)]
    for name in names():
        text = resolve(map(str, stated(name)), constraints=shared)
        path_of(name).write_text(f"# Python {PYTHON}, Linux x86-64. Written by `make locks`.\n{text}")


def newer() -> list[str]:
    """Return one sentence for each package of which an upper bound of pyproject.toml leaves out a newer version."""
    open_ended = dict(_VERSION.findall(resolve(map(_unbounded, stated("dev")))))
    found = []
    for requirement in stated("dev"):
        version = open_ended.get(requirement.name.lower().replace("_", "-"))
        if version is not None and not requirement.specifier.contains(version, prereleases=True):
            found.append(f"{requirement.name} {version} is out; pyproject.toml admits {requirement.specifier}")
    return sorted(set(found))


def _unbounded(requirement: Requirement) -> str:
    lower = [str(bound) for bound in requirement.specifier if bound.operator in (">=", ">", "!=")]
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{','.join(lower)}"


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_IGNORED)}
    certificates = os.environ.get("PIP_CERT")
    return {**({"SSL_CERT_FILE": certificates} if certificates else {}), **kept}
