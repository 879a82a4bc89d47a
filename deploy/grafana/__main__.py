"""`python -m deploy.grafana`: write every dashboard into `deploy/grafana/dashboards`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from deploy.grafana.dashboards import DASHBOARDS

FOLDER = Path(__file__).resolve().parent / "dashboards"


def rendered() -> dict[Path, str]:
    """Every file and its text."""
    return {FOLDER / f"{board.uid}.json": json.dumps(board.as_json(), indent=1) + "\n" for board in DASHBOARDS}


def main() -> int:
    """Write them all."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in rendered().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
