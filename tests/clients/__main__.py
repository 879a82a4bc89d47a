"""`python -m tests.clients [NAME …] [--write]`: install current clients, run their cells, print the table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.clients.matrix import ROOT, CellResult, install, run_cells, selected, table
from tests.clients.product import running_product

PAGE: Final = ROOT / "docs" / "clients.md"
BEGIN: Final = "<!-- client matrix: written by `make test-clients` -->\n"
END: Final = "<!-- end of the client matrix -->\n"


def main() -> int:
    """Run the matrix; return the number of red cells."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of clients' names (default: all)")
    parser.add_argument("--write", action="store_true", help="publish the table in docs/clients.md")
    options = parser.parse_args()
    rows: dict[str, tuple[str, list[CellResult]]] = {}
    with tempfile.TemporaryDirectory() as name, running_product(Path(name)) as product:
        for client in selected(options.names):
            version = install(client)
            results = run_cells(client, product)
            rows[client.name] = version, results
            for result in results:
                state = "ok" if result.error is None else "RED"
                print(f"{state:3} {client.name} {version}: {result.surface} {result.cell} {result.seconds:g} s")
                if result.error is not None:
                    print("    " + result.error.replace("\n", "\n    "))
            sys.stdout.flush()
    print(table(rows))
    if options.write:
        publish(table(rows), PAGE)
    red = [result for _, results in rows.values() for result in results if result.error is not None]
    num_cells = sum(len(results) for _, results in rows.values())
    print(json.dumps({"clients": len(rows), "cells": num_cells, "red": len(red)}))
    return min(len(red), 99)


def publish(text: str, page: Path) -> None:
    """Replace the table in a page, between its marks."""
    replace_between(text, page, BEGIN, END)


def replace_between(text: str, page: Path, begin: str, end: str) -> None:
    """Replace what stands between two marks of a page. Raises SystemExit without the marks."""
    before, found_begin, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"{page} has no marks for the table: {begin.strip()} … {end.strip()}")
    page.write_text(f"{before}{begin}{text}\n{end}{after}")


if __name__ == "__main__":
    sys.exit(main())
