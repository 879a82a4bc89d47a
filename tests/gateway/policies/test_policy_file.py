"""The policy on disk: first read, changes, and files that are no good."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.policies.local_copy import PolicyCopy, file_copy_name
from gateway.policies.policy_file import (
    PolicyFile,
    PolicyFileError,
    PolicyRevision,
    PolicyStatus,
    revision_of,
)
from gateway.policies.reading import PolicyChecks, PolicyHooks
from routing_policies.policy.document import Policy

GOOD = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n"
OTHER = GOOD.replace("id: a", "id: b")
BAD = GOOD + "rutes: []\n"
FAILING = GOOD + "tests: [{name: t, expect: {route: implied-direct}}]\n"
NOW_S = 1_000_000_000.0


class Watched:
    """A policy file with a clock, and everything it reported."""

    def __init__(self, path: Path, text: str = GOOD, copy: PolicyCopy | None = None) -> None:
        self.path = path
        self.revisions: list[PolicyRevision] = []
        self.statuses: list[PolicyStatus] = []
        self.refusal: str | None = None
        self.refuse_late = False
        self.now_s = NOW_S
        self.write(text)
        self.file = PolicyFile(
            path,
            checks=PolicyChecks(variables={"runtime_dir": "/run/penstock"}, accept=self._accept),
            hooks=PolicyHooks(on_revision=self._take, on_status=self.statuses.append),
            wall_clock=lambda: self.now_s,
            copy=copy,
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


async def test_a_changed_file_is_taken_at_the_next_check(watched: Watched) -> None:
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


async def test_a_bad_file_keeps_the_last_good_policy_and_gives_the_reason_once(watched: Watched) -> None:
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


# The last good policy at a start


class Restarted:
    """One process after the other with the same file and the same runtime directory."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "policy.yaml"
        self.copy_path = folder / "run" / file_copy_name(self.path)

    def start(self, text: str | None = GOOD) -> Watched:
        """A process that has not loaded yet; None leaves the file as it is."""
        copy = PolicyCopy(self.copy_path, wall=lambda: NOW_S)
        return Watched(self.path, self.path.read_text() if text is None else text, copy)


def remove(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    path.write_text(GOOD[:-9])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def spoil_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" + GOOD.encode())


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def grow(path: Path) -> None:
    path.write_text(GOOD + "#" * 2_000_000)


def unknown_key(path: Path) -> None:
    path.write_text(BAD)


def failing_test(path: Path) -> None:
    path.write_text(FAILING)


SPOILERS = [remove, truncate, empty, spoil_bytes, put_folder, grow, unknown_key, failing_test]


@pytest.mark.parametrize("spoil", SPOILERS)
async def test_a_start_with_a_bad_file_takes_the_last_good_policy_and_reports_it(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    life = Restarted(tmp_path)
    first = life.start()
    first.file.load()
    first.write(OTHER)
    await first.file.look()
    second = life.start(None)
    spoil(life.path)
    second.file.load()
    assert second.ids == ["b"]
    status = second.file.status
    assert (status.revision, status.is_current) == (revision_of(OTHER.encode()), False)
    assert "started on the last good policy, revision" in (status.error or "")
    assert "policy.yaml" in (status.error or "")
    assert second.file.head.document == OTHER


@pytest.mark.parametrize("spoil", SPOILERS)
def test_a_start_with_a_bad_file_and_nothing_stored_is_refused(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    made = Restarted(tmp_path).start()
    spoil(made.path)
    with pytest.raises(PolicyFileError, match=r"policy\.yaml"):
        made.file.load()
    assert made.revisions == []


async def test_a_refused_file_is_never_stored_and_a_mended_one_is_taken(tmp_path: Path) -> None:
    life = Restarted(tmp_path)
    first = life.start()
    first.file.load()
    first.write(BAD)
    await first.file.look()
    second = life.start(BAD)
    second.file.load()
    assert second.ids == ["a"]
    second.write(GOOD)
    await second.file.look()
    assert second.file.status == PolicyStatus(revision=revision_of(GOOD.encode()), is_current=True)
    assert second.ids == ["a"]
    second.write(OTHER)
    await second.file.look()
    third = life.start(BAD)
    third.file.load()
    assert third.ids == ["b"]


@pytest.mark.parametrize("late", [False, True])
def test_a_policy_that_its_user_refuses_now_is_not_served_from_the_copy_either(tmp_path: Path, late: bool) -> None:
    life = Restarted(tmp_path)
    life.start().file.load()
    second = life.start(BAD)
    second.refusal, second.refuse_late = "no keys", late
    with pytest.raises(PolicyFileError, match=r"(?s)rutes.*last good policy.*no keys"):
        second.file.load()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content.replace(b"http://a", b"http://b"),
        lambda content: content.replace(b'"number":0', b'"number":7'),
        lambda content: b"\0" * len(content),
        lambda content: b"[" * 100_000,
    ],
)
def test_a_damaged_copy_is_no_copy(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    life = Restarted(tmp_path)
    life.start().file.load()
    life.copy_path.write_bytes(damage(life.copy_path.read_bytes()))
    with pytest.raises(PolicyFileError, match="rutes"):
        life.start(BAD).file.load()
    good = life.start(GOOD)
    good.file.load()
    assert good.ids == ["a"]
    life.start(BAD).file.load()


def test_a_copy_is_this_users_own_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    life = Restarted(tmp_path)
    before = os.umask(0)
    try:
        life.start().file.load()
    finally:
        os.umask(before)
    assert [path.name for path in life.copy_path.parent.iterdir()] == [life.copy_path.name]
    assert life.copy_path.stat().st_mode & 0o777 == 0o600
    assert life.copy_path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_pipe_in_place_of_the_file_is_refused_and_the_next_good_file_is_taken(watched: Watched) -> None:
    watched.path.unlink()
    os.mkfifo(watched.path)
    await watched.file.look()
    assert (watched.file.status.is_current, watched.ids) == (False, ["a"])
    assert "cannot be read (Is no regular file)" in str(watched.file.status.error)
    watched.path.unlink()
    watched.write(OTHER)
    await watched.file.look()
    assert (watched.file.status.is_current, watched.ids) == (True, ["a", "b"])


@pytest.mark.parametrize("kind", ["cut", "pipe", "folder", "dangling"])
def test_a_bad_file_whose_last_good_copy_is_damaged_names_both(tmp_path: Path, kind: str) -> None:
    copy = PolicyCopy(tmp_path / "run" / "policy.last.json")
    Watched(tmp_path / "policy.yaml", copy=copy).file.load()
    content = copy.path.read_bytes()
    copy.path.unlink()
    if kind == "cut":
        copy.path.write_bytes(content[: len(content) // 2])
    elif kind == "pipe":
        os.mkfifo(copy.path)
    elif kind == "folder":
        copy.path.mkdir()
    else:
        copy.path.symlink_to("none")
    with pytest.raises(PolicyFileError, match=r"(?s)rutes.*last good policy, .*policy\.last\.json, is damaged"):
        Watched(tmp_path / "policy.yaml", BAD, copy).file.load()
