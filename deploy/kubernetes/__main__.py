"""`python -m deploy.kubernetes`: write the Kustomize base and overlays, and the chart's copies, from the chart.

With `--show`, print every file that would be written and every object of each profile, as JSON, and write nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from typing import Any

from deploy.kubernetes.chart import CHART, COPIES, FOLDER, profile_values, profiles, render
from deploy.kubernetes.kustomize import base_files, overlay_files


def copy_files() -> None:
    """Bring the files that the chart shares with other folders into it."""
    for name, source in COPIES.items():
        (CHART / "files" / name).write_text(source.read_text())


def rendering() -> dict[str, Any]:
    """Return `files`, by path below this folder, and `objects`, by profile, where `base` is the chart's defaults."""
    base = render({})
    files = {f"base/{name}": text for name, text in base_files(base).items()}
    objects = {"base": [found.value for found in base]}
    for profile in profiles():
        rendered = render(profile_values(profile))
        objects[profile] = [found.value for found in rendered]
        files |= {f"overlays/{profile}/{name}": text for name, text in overlay_files(base, rendered).items()}
    return {"files": files, "objects": objects}


def write() -> None:
    """Replace the folders `base` and `overlays`."""
    copy_files()
    files = rendering()["files"]
    for folder in ("base", "overlays"):
        shutil.rmtree(FOLDER / folder, ignore_errors=True)
    for name, text in files.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kubernetes", description=__doc__)
    parser.add_argument("--show", action="store_true", help="print JSON and write nothing")
    if parser.parse_args(arguments).show:
        print(json.dumps(rendering()))
    else:
        write()


if __name__ == "__main__":
    main()
