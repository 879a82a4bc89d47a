"""The copy of the policy that a process keeps beside it."""

from __future__ import annotations

from pathlib import Path

from gateway.policies.local_copy import PolicyCopy
from tests.gateway.policies.test_policy_file import GOOD, NOW_S, OTHER, Watched


def test_a_copy_of_what_was_read_earlier_never_replaces_a_newer_one(tmp_path: Path) -> None:
    old, new = (Watched(tmp_path / name, text).file.load().origin for name, text in (("o", GOOD), ("n", OTHER)))
    copy = PolicyCopy(tmp_path / "copy", wall=lambda: NOW_S)
    copy.write(new, read_at=NOW_S - 1)
    copy.write(old, read_at=NOW_S - 2)
    assert copy.read() == new
    copy.write(old, read_at=NOW_S)
    assert copy.read() == old


def test_a_copy_from_a_clock_that_ran_ahead_does_not_stay_for_ever(tmp_path: Path) -> None:
    old, new = (Watched(tmp_path / name, text).file.load().origin for name, text in (("o", GOOD), ("n", OTHER)))
    copy = PolicyCopy(tmp_path / "copy", wall=lambda: NOW_S)
    copy.write(old, read_at=NOW_S + 3600)
    copy.write(new, read_at=NOW_S)
    assert copy.read() == new


def test_a_copy_that_cannot_be_written_is_reported_and_the_policy_is_served(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    errors: list[OSError] = []
    path = tmp_path / "policy.yaml"
    made = Watched(path, copy=PolicyCopy(tmp_path / "run" / "copy", on_unwritten=errors.append))
    made.file.load()
    assert made.ids == ["a"]
    assert len(errors) == 1
