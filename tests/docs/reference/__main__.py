"""`python -m tests.docs.reference`: write the pages of `docs/reference/` anew."""

from __future__ import annotations

from tests.docs.reference import FOLDER, PAGES


def main() -> None:
    """Write every page and name those that changed."""
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"docs/reference/{name}: written")


if __name__ == "__main__":
    main()
