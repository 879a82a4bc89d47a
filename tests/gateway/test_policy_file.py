"""The policy on disk: first read, changes, and files that are no good."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.policy_file import (
    PolicyFile,
    PolicyFileError,
    PolicyRevision,
    PolicyStatus,
    read_policy,
    revision_of,
)
from routing_policies.document import Policy

GOOD = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n"
OTHER = GOOD.replace("id: a", "id: b")
BAD = GOOD + "rutes: []\n"
FAILING = GOOD + "tests: [{name: t, expect: {route: implied-direct}}]\n"
NOW_S = 1_000_000_000.0


class Watched:
    """A policy file with a clock, and everything it reported."""

    def __init__(self, path: Path, text: str = GOOD) -> None:
        self.path = path
        self.revisions: list[PolicyRevision] = []
        self.statuses: list[PolicyStatus] = []
        self.refusal: str | None = None
        self.refuse_late = False
        self.now_s = NOW_S
        self.write(text)
        self.file = PolicyFile(
            path,
            variables={"runtime_dir": "/run/penstock"},
            accept=self._accept,
            on_revision=self._take,
            on_status=self.statuses.append,
            wall_clock=lambda: self.now_s,
        )

    def write(self, text: str, *, modified_s: float | None = None) -> None:
        self.path.write_text(text)
        at = self.now_s if modified_s is None else modified_s
        os.utime(self.path, (at, at))

    def _accept(self, policy: Policy) -> None:
        if self.refusal and not self.refuse_late:
            raise ValueError(self.refusal)

    def _take(self, revision: PolicyRevision) -> None:
        if self.refusal:
            raise ValueError(self.refusal)
        self.revisions.append(revision)

    @property
    def ids(self) -> list[str]:
        return [revision.policy.deployments[0].id for revision in self.revisions]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    made = Watched(tmp_path / "policy.yaml")
    made.file.load()
    return made


def test_the_first_read_reports_the_policy_and_its_revision(watched: Watched) -> None:
    assert watched.ids == ["a"]
    assert watched.revisions[0].revision == revision_of(GOOD.encode())
    assert len(revision_of(GOOD.encode())) == 12
    assert watched.statuses == [PolicyStatus(revision=revision_of(GOOD.encode()), is_current=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BAD, 'policy.yaml:3:1: rutes: unknown key; did you mean "routes"?'),
        (FAILING, 'policy.yaml:3:35: tests[0].expect.route: test "t" failed: expected route implied-direct'),
        ("", "policy.yaml:1:1: empty"),
    ],
)
def test_a_first_read_of_a_bad_file_is_an_error_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    made = Watched(tmp_path / "policy.yaml", text)
    with pytest.raises(PolicyFileError) as caught:
        made.file.load()
    assert expected in str(caught.value)
    assert made.revisions == []


def test_a_file_that_is_not_there_or_not_text_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        PolicyFileError, match=r"none\.yaml: cannot be read \(No such file or directory\); check --policy"
    ):
        read_policy(tmp_path / "none.yaml", {}, lambda policy: None)
    (tmp_path / "latin.yaml").write_bytes(b"# \xe9\n")
    with pytest.raises(PolicyFileError, match=r"not UTF-8 \(byte 2\)"):
        read_policy(tmp_path / "latin.yaml", {}, lambda policy: None)


async def test_a_changed_file_is_taken_at_the_next_look(watched: Watched) -> None:
    watched.write(OTHER)
    await watched.file.look()
    assert watched.ids == ["a", "b"]
    assert watched.file.status == PolicyStatus(revision=revision_of(OTHER.encode()), is_current=True)


async def test_an_unchanged_file_is_left_alone(watched: Watched) -> None:
    watched.now_s += 3600
    await watched.file.look()
    watched.write(GOOD)
    await watched.file.look()
    assert watched.ids == ["a"]
    assert len(watched.statuses) == 1


async def test_a_change_within_the_same_tick_of_the_file_system_is_seen(watched: Watched) -> None:
    watched.write(OTHER, modified_s=NOW_S)
    await watched.file.look()
    assert watched.ids == ["a", "b"]


async def test_a_swapped_link_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "one").write_text(GOOD)
    (tmp_path / "two").write_text(OTHER)
    link = tmp_path / "policy.yaml"
    link.symlink_to(tmp_path / "one")
    made = Watched(link)
    made.file.load()
    (tmp_path / "new").symlink_to(tmp_path / "two")
    (tmp_path / "new").replace(link)
    await made.file.look()
    assert made.ids == ["a", "b"]


async def test_a_bad_file_keeps_the_last_good_policy_and_says_why_once(watched: Watched) -> None:
    watched.write(BAD)
    for _ in range(3):
        await watched.file.look()
    assert watched.ids == ["a"]
    assert len(watched.statuses) == 2
    status = watched.file.status
    assert (status.revision, status.is_current) == (revision_of(GOOD.encode()), False)
    assert status.error is not None
    assert "policy.yaml:3:1: rutes" in status.error


async def test_going_back_to_the_last_good_file_clears_the_error_without_a_new_revision(watched: Watched) -> None:
    watched.write(BAD)
    await watched.file.look()
    watched.write(GOOD)
    await watched.file.look()
    assert watched.ids == ["a"]
    assert watched.file.status == PolicyStatus(revision=revision_of(GOOD.encode()), is_current=True)


async def test_a_vanished_file_keeps_the_policy_and_its_return_clears_the_error(watched: Watched) -> None:
    watched.path.unlink()
    await watched.file.look()
    assert "cannot be read" in (watched.file.status.error or "")
    watched.write(GOOD)
    await watched.file.look()
    assert watched.file.status.is_current
    watched.path.unlink()
    await watched.file.look()
    watched.write(BAD)
    await watched.file.look()
    assert "rutes" in (watched.file.status.error or "")


@pytest.mark.parametrize("late", [False, True])
async def test_a_policy_that_its_user_refuses_is_a_bad_file(watched: Watched, late: bool) -> None:
    watched.refusal, watched.refuse_late = "no keys", late
    watched.write(OTHER)
    await watched.file.look()
    assert watched.ids == ["a"]
    assert watched.file.status.error == f"{watched.path}: no keys"


async def test_a_policy_whose_own_tests_fail_is_not_taken(watched: Watched) -> None:
    watched.write(FAILING)
    await watched.file.look()
    assert watched.ids == ["a"]
    assert 'test "t" failed' in (watched.file.status.error or "")
