"""The tables of `tests/README.md`: every fault and every bad input has a test, and every test that they name exists."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).resolve().parent
TEXT: Final = (HERE / "README.md").read_text()

NUM_FAULTS: Final = 50
NUM_BAD_INPUTS: Final = 57
_ROW: Final = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_TEST: Final = re.compile(r"`([a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


def table(heading: str) -> dict[int, list[tuple[str, str]]]:
    """Row → tests as (file, function)."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = {int(number): _TEST.findall(tests) for number, _, tests in _ROW.findall(section)}
    assert len(rows) == len(_ROW.findall(section)), "a row stands twice"
    return rows


FAULTS: Final = table("Faults")
BAD_INPUTS: Final = table("Bad inputs")


def test_every_fault_has_a_row_and_every_row_a_test() -> None:
    assert list(FAULTS) == list(range(1, NUM_FAULTS + 1))
    assert all(FAULTS.values())


def test_every_bad_input_has_a_row_and_every_row_a_test() -> None:
    assert list(BAD_INPUTS) == list(range(1, NUM_BAD_INPUTS + 1))
    assert all(BAD_INPUTS.values())


def test_every_test_that_a_row_names_is_collected(request: pytest.FixtureRequest) -> None:
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for rows in (FAULTS, BAD_INPUTS):
        for tests in rows.values():
            for file, function in tests:
                wanted[file].add(function)
    collected: defaultdict[str, set[str]] = defaultdict(set)
    for item in request.session.items:
        if HERE in item.path.parents:
            collected[item.path.relative_to(HERE).as_posix()].add(item.name.partition("[")[0])
    missing = {file: functions - collected[file] for file, functions in wanted.items()}
    rest = sorted(file for file, functions in missing.items() if functions)
    if rest:  # this run selected other tests: collect those files alone
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        command += [f"{HERE.name}/{file}" for file in rest]
        found = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False).stdout
        for file in rest:
            names = set(re.findall(rf"{re.escape(file)}::(?:\w+::)?(test_\w+)", found))
            assert missing[file] <= names, f"{file}: {sorted(missing[file] - names)} are not collected\n{found[-2000:]}"
