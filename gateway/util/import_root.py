"""The folder from which Python imports this package: a checkout, or site-packages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

IMPORT_ROOT: Final = Path(__file__).resolve().parents[2]
