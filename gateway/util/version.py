"""The installed version of this package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version


def version() -> str:
    """Return the installed version, or `0+checkout` for a source tree that is not installed."""
    try:
        return package_version("penstock")
    except PackageNotFoundError:
        return "0+checkout"
