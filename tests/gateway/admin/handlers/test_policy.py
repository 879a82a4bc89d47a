"""The policy's life at the admin API: read, apply, conflict, roll back, restart; over a real store and real sockets."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.policies.history import RevisionHistory
from gateway.policies.local_copy import COPY_FILE
from gateway.policies.policy_file import PolicyFileError, revision_of
from gateway.policies.revision import Revision
from gateway.store.embedded import EmbeddedStore
from tests.gateway.stack import Reply, Stack, chat, policy_text, running

POLICY = "/admin/api/policy"


@asynccontextmanager
async def stored(
    folder: Path, store: Path | str | None = None, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Stack]:
    """A gateway whose policy is in its store."""
    given = {"policy.source": "store", **_store_of(store), **(settings or {})}
    async with running(folder, settings=given) as stack:
        yield stack


def _store_of(store: Path | str | None) -> dict[str, str]:
    """An embedded store's file, or any store's address."""
    if store is None:
        return {}
    return {"store.address": store if isinstance(store, str) else f"embedded:{store}"}


async def in_force(stack: Stack) -> Any:
    return (await stack.get(POLICY, admin=True)).json


async def apply(stack: Stack, document: str, *, etag: str | None, reason: str = "because") -> Reply:
    headers = {} if etag is None else {"if-match": etag}
    body = {"document": document, "reason": reason}
    return await stack.call(body, admin=True, path=POLICY, method="PUT", headers=headers)


def slower(document: str) -> str:
    return document.replace("total_ms: 20000", "total_ms: 30000")


async def test_the_first_start_seeds_the_store_and_an_apply_is_in_force_when_it_answers(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        assert (seed["source"], seed["read_only"], seed["revision"]["kind"]) == ("store", False, "seed")
        reply = await apply(stack, slower(seed["document"]), etag=seed["etag"], reason="answers take longer now")
        assert reply.status == 200
        assert [change["text"] for change in reply.json["changes"]] == [
            "route main: timeouts.total_ms 20000 → 30000",
            "route solo: timeouts.total_ms 20000 → 30000",
        ]
        assert reply.json["blast_radius"]["tenants"] == "all"
        now = await in_force(stack)
        assert now["etag"] == reply.headers["etag"] != seed["etag"]
        assert now["policy"]["routes"][0]["timeouts"]["total_ms"] == 30000
        answered = await stack.call(chat())
        assert answered.headers["x-penstock-policy"] == now["revision"]["revision"]


async def test_nobody_overwrites_what_they_have_not_seen(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        assert (await apply(stack, slower(seed["document"]), etag=None)).status == 428
        assert (await apply(stack, slower(seed["document"]), etag=seed["etag"], reason="first")).status == 200
        late = await apply(stack, seed["document"] + "# mine\n", etag=seed["etag"])
        assert late.status == 412
        assert late.error["code"] == "revision_conflict"
        assert late.error["conflict"]["yours"] == seed["etag"]
        assert late.error["conflict"]["theirs"]["reason"] == "first"
        assert [change["new"] for change in late.error["conflict"]["changes"]] == [30000, 30000]


async def test_of_two_edits_at_the_same_time_one_is_reported_of_the_other(tmp_path: Path) -> None:
    async with AsyncExitStack() as replicas:
        stacks = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            stacks.append(await replicas.enter_async_context(stored(tmp_path / name, tmp_path / "store.sqlite3")))
        seed = await in_force(stacks[0])
        texts = [seed["document"] + f"# by {number}\n" for number in range(2)]
        pairs = zip(stacks, texts, strict=True)
        replies = await asyncio.gather(*(apply(stack, text, etag=seed["etag"]) for stack, text in pairs))
        assert sorted(reply.status for reply in replies) == [200, 412]


@pytest.mark.parametrize(
    ("document", "reported"),
    [
        ("schema_version: 1\n", '"deployments" is missing'),
        ("schema_version: [", "not valid YAML"),
        ("schema_version: 1\nroutse: []\ndeployments: []\n", 'did you mean "routes"'),
        ("[" * 5000, "nested deeper"),
        (
            "a: &a [x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"b{n}: &b{n} [{', '.join(['*' + ('a' if n == 0 else f'b{n - 1}')] * 9)}]\n" for n in range(9)),
            "unknown key",
        ),
    ],
    ids=["incomplete", "malformed", "unknown key", "deep", "anchors"],
)
async def test_a_bad_document_changes_nothing_and_names_the_place(tmp_path: Path, document: str, reported: str) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        reply = await apply(stack, document, etag=seed["etag"])
        assert (reply.status, reply.error["code"]) == (400, "invalid_policy")
        assert any(reported in problem["message"] for problem in reply.error["problems"])
        assert all(problem["line"] >= 1 for problem in reply.error["problems"])
        assert (await in_force(stack))["etag"] == seed["etag"]
        assert (await stack.call(chat())).status == 200


async def test_a_document_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        assert (await apply(stack, "#" * (1024 * 1024 + 1), etag=seed["etag"])).status == 400
        body = {"document": "#" * (5 * 1024 * 1024), "reason": "x"}
        assert (await stack.call(body, admin=True, path=f"{POLICY}/check")).status == 413


async def test_rolling_back_makes_a_new_revision_and_history_reports_who_and_why(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        applied = (await apply(stack, slower(seed["document"]), etag=seed["etag"], reason="try it")).json
        body = {"revision": 1, "reason": "it was worse"}
        back = await stack.call(body, admin=True, path=f"{POLICY}/rollback", headers={"if-match": applied["etag"]})
        assert back.status == 200
        assert (back.json["revision"]["kind"], back.json["revision"]["of"]) == ("rollback", 1)
        assert (await in_force(stack))["document"] == seed["document"]
        listed = (await stack.get(f"{POLICY}/revisions", admin=True)).json["revisions"]
        notified = [(line["number"], line["kind"], line["author"], line["reason"]) for line in listed]
        assert notified[:2] == [(3, "rollback", "local", "it was worse"), (2, "apply", "local", "try it")]
        assert notified[2][:3] == (1, "seed", "system")
        one = (await stack.get(f"{POLICY}/revisions/2", admin=True)).json
        assert one["changes"][0]["old"] == 20000
        assert (await stack.get(f"{POLICY}/revisions/9", admin=True)).status == 404


async def test_revisions_outlive_a_restart_whatever_the_file_has_by_then(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        applied = (await apply(stack, slower(seed["document"]), etag=seed["etag"])).json
    async with stored(tmp_path) as stack:  # `running` has written the seed's file anew
        assert (await in_force(stack))["etag"] == applied["etag"]


async def test_without_the_store_a_restart_serves_what_was_in_force(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        applied = (await apply(stack, slower(seed["document"]), etag=seed["etag"])).json
    nowhere = tmp_path / "file"
    nowhere.write_text("a file where a folder should be")
    async with stored(tmp_path, nowhere / "store.sqlite3") as stack:
        now = (await stack.get(POLICY, admin=True, headers={"authorization": f"Bearer {stack.admin_token}"})).json
        assert now["revision"]["revision"] == applied["revision"]["revision"]
        assert "store" in now["status"]["error"]
        refused = await apply(stack, seed["document"], etag=now["etag"])
        assert (refused.status, refused.error["code"]) == (503, "store_unavailable")
        assert (await stack.call(chat())).status == 200


async def test_a_policy_file_is_its_own_editor_and_offers_a_patch(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        now = await in_force(stack)
        assert (now["source"], now["read_only"]) == ("file", True)
        assert str(tmp_path / "policy.yaml") in now["read_only_why"]
        refused = await apply(stack, slower(now["document"]), etag=now["etag"])
        assert (refused.status, refused.error["code"]) == (409, "policy_read_only")
        body = {"document": slower(now["document"])}
        patch = await stack.call(body, admin=True, path=f"{POLICY}/patch")
        assert patch.headers["content-disposition"].startswith("attachment")
        if shutil.which("patch") is None:
            pytest.skip("there is no patch on this machine")
        process = await asyncio.create_subprocess_exec(
            *("patch", "-p0", "-s"), cwd=tmp_path, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
        )
        await process.communicate(patch.body)
        assert (tmp_path / "policy.yaml").read_text() == slower(policy_text(tmp_path))


async def test_a_check_and_a_comparison_need_no_right_to_write(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        nobody = {"authorization": None}
        good = await stack.call({"document": seed["document"]}, admin=True, path=f"{POLICY}/check", headers=nobody)
        shown = good.json
        proof = shown.pop("proof")
        assert shown == {"ok": True, "num_tests": 0, "problems": [], "policy": seed["policy"]}
        assert (proof["violations"], proof["open_questions"], len(proof["proven"])) == ([], [], 7)
        bad = await stack.call({"document": "schema_version: 1\n"}, admin=True, path=f"{POLICY}/check", headers=nobody)
        assert (bad.json["ok"], bad.json["policy"], bad.json["proof"]) == (False, None, None)
        body = {"document": slower(seed["document"])}
        shown = await stack.call(body, admin=True, path=f"{POLICY}/diff", headers=nobody)
        assert len(shown.json["changes"]) == 2
        assert "+    timeouts" in shown.json["unified"]
        assert (await stack.call(body, admin=True, path=POLICY, method="PUT", headers=nobody)).status == 401


async def test_a_start_with_a_newest_revision_that_cannot_be_served_serves_the_last_good_one(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        applied = (await apply(stack, slower(seed["document"]), etag=seed["etag"])).json
    await append(tmp_path, seed["document"].replace("schema_version: 1", "schema_version: 99"), number=3)
    async with stored(tmp_path) as stack:
        now = await in_force(stack)
        assert now["status"]["is_current"] is False
        assert "started on the last good one, revision 2" in now["status"]["error"]
        answered = await stack.call(chat())
        assert (answered.status, answered.headers["x-penstock-policy"]) == (200, applied["revision"]["revision"])
        await append(tmp_path, seed["document"], number=4)
        async with asyncio.timeout(10):
            while not (now := await in_force(stack))["status"]["is_current"]:
                await asyncio.sleep(0.02)
        assert now["revision"]["number"] == 4


@pytest.mark.parametrize("damage", [b"", b"{", b'{"number": "x"}', b"\xff"])
async def test_a_damaged_newest_revision_is_stated_and_the_last_good_one_is_served(
    tmp_path: Path, damage: bytes
) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
        await put_raw(tmp_path, damage, number=2)
        async with asyncio.timeout(10):
            while (now := await in_force(stack))["status"]["is_current"]:
                await asyncio.sleep(0.02)
        assert "revision 2 cannot be read" in now["status"]["error"]
        assert (await stack.call(chat())).status == 200
    async with stored(tmp_path) as stack:
        now = await in_force(stack)
        assert "started on the last good one, revision 1" in now["status"]["error"]
        assert (await stack.call(chat())).status == 200
        await append(tmp_path, slower(seed["document"]), number=3)
        async with asyncio.timeout(10):
            while not (now := await in_force(stack))["status"]["is_current"]:
                await asyncio.sleep(0.02)
        assert now["revision"]["number"] == 3
    (tmp_path / COPY_FILE).unlink()
    await put_raw(tmp_path, damage, number=4)
    with pytest.raises(PolicyFileError, match="revision 4 cannot be read"):
        async with stored(tmp_path):
            pass


async def put_raw(folder: Path, value: bytes, *, number: int) -> None:
    store = EmbeddedStore(folder / "store.sqlite3", wall=time.time)
    assert await store.put("policy", f"revision/{number:08d}", value, expect=0)
    await store.aclose()


async def test_a_newest_revision_that_cannot_be_served_and_nothing_stored_is_refused(tmp_path: Path) -> None:
    async with stored(tmp_path) as stack:
        seed = await in_force(stack)
    await append(tmp_path, seed["document"].replace("schema_version: 1", "schema_version: 99"), number=2)
    (tmp_path / COPY_FILE).unlink()
    with pytest.raises(PolicyFileError, match="the newest revision cannot be served"):
        async with stored(tmp_path):
            pass


async def append(folder: Path, document: str, *, number: int, reason: str = "because") -> None:
    """As a replica of another version would."""
    store = EmbeddedStore(folder / "store.sqlite3", wall=time.time)
    revision = Revision(
        number=number,
        revision=revision_of(document.encode()),
        parent=number - 1,
        author="ada",
        reason=reason,
        at=time.time(),
        kind="apply",
        document=document,
    )
    assert await RevisionHistory(store).append(revision)
    await store.aclose()
