"""`python -m tests.docs.reference`: write the pages of `docs/reference/` and the engine's field table anew."""

from __future__ import annotations

from pathlib import Path

import engine.frontend.fields.table as engine_table
import gateway.chat.fields.table as gateway_table
from tests.docs.reference import FOLDER, PAGES

TABLE = "fields.json"


def main() -> None:
    """Write every page and name those that changed."""
    source, copy = (Path(module.__file__ or "").with_name(TABLE) for module in (gateway_table, engine_table))
    copy.write_bytes(source.read_bytes())
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"docs/reference/{name}: written")


if __name__ == "__main__":
    main()
