"""Software bills of materials in CycloneDX, one for each lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.supply.locks import ROOT, names, path_of

SPECIFICATION: Final = "1.6"


def write_sbom(name: str, folder: Path) -> Path:
    """Write the bill of a lock and return the file; the schema of CycloneDX is checked.

    Raises:
        RuntimeError: The lock cannot be read, or the bill breaks the schema.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"penstock-{name}.cdx.json"
    command = [
        *(sys.executable, "-m", "cyclonedx_py", "requirements", str(path_of(name))),
        *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"),
        *("--spec-version", SPECIFICATION, "--output-format", "JSON", "--output-reproducible", "--validate"),
        *("--output-file", str(path)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr.strip()}")
    return path


def write_all(folder: Path) -> list[Path]:
    """Write the bill of every lock."""
    return [write_sbom(name, folder) for name in names()]
