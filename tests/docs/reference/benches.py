"""The page of benchmarks: every bench with every flag."""

from __future__ import annotations

import argparse
import importlib

from loadtests.__main__ import BENCHES, Entry
from tests.docs.reference.commands import flag_rows
from tests.docs.reference.markdown import code, page, section, table

_INTRODUCTION = """
`penstock bench NAME` runs one benchmark from a source checkout, prints a card, and one JSON line last.
[How they measure](../../loadtests/README.md), [what they measured](../benchmarks.md).
"""


def benches_page() -> str:
    """Return the page."""
    return page("Benchmarks: flags", _INTRODUCTION, *(_section(name, entry) for name, entry in BENCHES.items()))


def _section(name: str, entry: Entry) -> str:
    parser = argparse.ArgumentParser(prog=f"penstock bench {name}")
    importlib.import_module(f"loadtests.{entry.module}").add_arguments(parser)
    reported = entry.text[:1].upper() + entry.text[1:] + "."
    return section(code(parser.prog), reported, table(("flag", "value", "meaning"), flag_rows(parser)))
