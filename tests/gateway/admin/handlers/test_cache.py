"""The response cache at the admin API: purges, and audits that people review."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.app.test_response_cache import AUDITED, NEAR
from tests.gateway.background.test_cache_auditor import STORED, Deployment, replies
from tests.gateway.cache.exact.test_exact_cache import cached_policy
from tests.gateway.cache.similar_stack import cache_of, call, keep, similar, until
from tests.gateway.stack import chat, running


async def test_a_purge_shows_what_it_would_do_before_it_does(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        await stack.call(chat())
        purge = {"route": "main"}
        shown = await stack.call(purge, path="/admin/api/cache/purge", admin=True)
        assert (shown.json["dry_run"], shown.json["covered"]) == (True, 1)
        assert (await stack.call(chat())).headers["x-penstock-cache"] == "hit-exact"

        done = await stack.call({**purge, "dry_run": False}, path="/admin/api/cache/purge", admin=True)
        assert done.json["covered"] == 1
        assert (await stack.get("/admin/api/cache", admin=True)).json["entries"] == 0
        assert (await stack.call(chat())).headers["x-penstock-cache"] == "miss"


async def test_a_purge_is_a_line_of_the_audit_log_without_the_text_that_was_looked_for(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        for dry_run in (True, False):
            body = {"route": "main", "text": "my illness", "dry_run": dry_run}
            assert (await stack.call(body, path="/admin/api/cache/purge", admin=True)).status == 200
        entries = (await stack.get("/admin/api/audit", admin=True)).json["entries"]
        (line,) = [entry for entry in entries if entry["action"] == "cache.purge"]
        assert line["detail"] == {"id": None, "tenant": None, "route": "main", "text": True, "until": None}
        assert "illness" not in str(entries)


async def test_a_purge_removes_what_was_listed_and_nothing_stored_since(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        first = await stack.call(chat())
        await stack.call(chat())
        listed = (await stack.call({"route": "main"}, path="/admin/api/cache/purge", admin=True)).json
        (entry,) = listed["entries"]
        assert (entry["id"], entry["hits"]) == (first.headers["x-request-id"], 1)
        assert entry["expires_at"] > entry["created_at"]
        await stack.call({**chat(), "messages": [{"role": "user", "content": "since then"}]})
        body = {"route": "main", "until": listed["until"], "dry_run": False}
        done = await stack.call(body, path="/admin/api/cache/purge", admin=True)
        assert [one["id"] for one in done.json["entries"]] == [entry["id"]]
        assert (await stack.get("/admin/api/cache", admin=True)).json["entries"] == 1
        bare = await stack.call({"until": listed["until"]}, path="/admin/api/cache/purge", admin=True)
        assert bare.error["code"] == "invalid_value"


async def test_a_purge_of_everything_by_mistake_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, policy=cached_policy(tmp_path)) as stack:
        reply = await stack.call({"dry_run": False}, path="/admin/api/cache/purge", admin=True)
        assert (reply.status, reply.error["code"]) == (400, "invalid_value")


async def test_admins_see_the_error_budget_and_review_audits(tmp_path: Path) -> None:
    async with similar(tmp_path, AUDITED) as (stack, _):
        stack.small.otherwise = replies("Press 1.")
        await keep(stack, STORED)
        stack.small.otherwise = Deployment("Press 2.")
        served = await call(stack, NEAR)
        await until(lambda: len(stack.gateway._cache.audits) == 1)

        shown = (await stack.get("/admin/api/cache", admin=True)).json
        (route,) = shown["routes"]
        assert (shown["entries"], shown["index_entries"], shown["encoder_ready"]) == (1, 1, True)
        assert (route["tenant"], route["route"], route["state"]) == ("dev", "main", "open")
        assert (route["requests"], route["hits"], route["hit_ratio"]) == (2, 1, 0.5)
        assert route["error"]["ratio"] == 0.5
        assert route["error"]["low"] < 0.5 <= route["error"]["high"]
        assert sum(route["similarities"]["served"]) == 1
        (audit,) = shown["audits"]
        assert (audit["id"], audit["verdict"], audit["texts"]) == (served.headers["x-request-id"], "wrong", None)
        assert STORED not in str(shown)

        path = f"/admin/api/cache/audits/{audit['id']}"
        reviewed = await stack.call({"verdict": "right"}, path=path, admin=True)
        assert (reviewed.status, reviewed.json["audit"]["by"]) == (200, "admin")
        assert (await stack.get("/admin/api/cache", admin=True)).json["routes"][0]["error"]["wrong"] == 0
        stack.small.otherwise = Deployment("Press 1.")
        assert cache_of(await call(stack, "How do I reset the password of a large mailbox?")) == "hit-semantic"
        listed = (await stack.get("/admin/api/cache/audits?verdict=right&limit=1", admin=True)).json["audits"]
        assert [found["id"] for found in listed] != []
        assert (await stack.get("/admin/api/cache/audits?limit=0", admin=True)).status == 400
        assert (await stack.call({"verdict": "right"}, path="/admin/api/cache/audits/x", admin=True)).status == 404
        assert (await stack.call({"verdict": "odd"}, path=path, admin=True)).status == 400
        log = (await stack.get("/admin/api/audit?newest=true", admin=True)).json["entries"]
        assert log[0]["action"] == "cache.review"
