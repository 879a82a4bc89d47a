"""The wheel: the same bytes from the same commit, whoever builds it, when, and where."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from deploy.supply.locks import ROOT

_SHIPPED: Final = ("engine", "gateway", "routing_policies")
_FILES: Final = ("LICENSE", "README.md", "pyproject.toml")
_EARLIEST: Final = 315532800
"""1980-01-01: the earliest date that a zip file can state."""


def build_wheel(destination: Path) -> Path:
    """Build the wheel of this tree and return it.

    The tree is copied first, with plain modes and without what builds and tests leave, and the umask is fixed. All
    dates are `SOURCE_DATE_EPOCH`, or that of the last commit.

    Raises:
        RuntimeError: The build failed; the message has its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "penstock"
        _copy(source)
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(source_date()), "PYTHONHASHSEED": "0"}
        command = [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"),
            *("--wheel-dir", str(Path(folder) / "out"), str(source)),
        ]
        done = subprocess.run(
            command, env=env, cwd=folder, capture_output=True, text=True, timeout=600, check=False, umask=0o022
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        (built,) = (Path(folder) / "out").glob("*.whl")
        destination.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(built, destination))


def source_date() -> int:
    """Return the date that the wheel's files get, in seconds since 1970."""
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    if stated is None:
        command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        stated = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return max(int(stated), _EARLIEST)


def _copy(target: Path) -> None:
    target.mkdir()
    for name in _FILES:
        shutil.copyfile(ROOT / name, target / name)
    for package in _SHIPPED:
        for path in sorted((ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                place = target / path.relative_to(ROOT)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)
                place.chmod(0o644)
