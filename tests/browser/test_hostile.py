"""What must not happen on the admin page: nothing that others state runs, no other page acts in an admin's name, nobody
goes on watching whose login is over, and a lost store is stated rather than hidden."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

import gateway.admin.live_feed
from gateway.access.local_token import FILE_NAME, read_token
from gateway.admin.pages import PAGES
from gateway.admin.pages import Page as AdminPage
from tests.browser.conftest import MORE_POLICY
from tests.e2e.scripted_gateway import Addresses, scripted_gateway
from tests.gateway.scripted import Wire
from tests.gateway.store.redis_server import RedisServer

pytestmark = pytest.mark.e2e

PATIENCE_MS = 60_000.0
PASSWORD = "correct horse battery"
HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
SECRET = "sk-live-0123456789abcdefghijklmnop"
_AUDIT: dict[str, Any] = {
    "id": "req_1",
    "at": 1.0,
    "tenant": "t",
    "route": "r",
    "entry_id": "e",
    "verdict": "v",
    "by": "b",
    "reviewed_by": "a",
    "was_served": True,
    "weight": 1.0,
    "similarity": 0.9,
    "runner_up": None,
    "match_probability": 0.9,
    "answer_similarity": 0.5,
    "differences": ["one"],
    "texts": {"asked": "a", "cached_prompt": "b", "cached_response": "c", "fresh_answer": "d"},
}
_ROUTE_STATS: dict[str, Any] = {
    "tenant": "t",
    "route": "r",
    "state": "open",
    "requests": 9,
    "hit_ratio": 0.1,
    "max_error_ratio": 0.01,
    "error": {"ratio": 0.0, "low": 0.0, "high": 0.1, "audited": 3, "wrong": 0},
    "lookup_ms": 1.0,
    "similarities": {"from": [0.5, 0.9], "served": [0, 1], "refused": [1, 0]},
    "bounds": [
        {
            "max_error_ratio": 0.01,
            "threshold": 0.9,
            "hit_ratio": 0.1,
            "ratio": 0.0,
            "low": 0.0,
            "high": 0.1,
            "audited": 3,
        }
    ],
}
_CANARY_ARM = {"count": 9, "events": 1, "ratio": 0.1, "low": 0.0, "high": 0.3}
_CANARY = {
    "id": "c1",
    "state": "rolled_back",
    "percent": 10,
    "tenants": ["t"],
    "author": "a",
    "reason": "r",
    "at": 1.0,
    "ended_at": 2.0,
    "ended_by": "system",
    "why": "w",
    "revision": "0123",
    "document": "d",
    "evidence": {
        "slow_above_ms": None,
        "metrics": [
            {"name": "wrong", "old": _CANARY_ARM, "new": _CANARY_ARM, "limit": 0.1, "verdict": "worse"},
        ],
    },
}
_ENTRY = {"seq": 1, "at": 1.0, "author": "a", "role": "editor", "action": "b", "target": "c", "reason": "d"}
# What a gateway that has just begun has none of.
_INVENTED: dict[str, dict[str, Any]] = {
    "/admin/api/cache": {
        "entries": 1,
        "bytes": 1,
        "index_entries": 1,
        "encoder_ready": True,
        "routes": [_ROUTE_STATS],
        "recalls": {"is_on": True, "notices": 1, "delivered": 1, "failed": 1, "given_up": 1},
    },
    "/admin/api/cache/audits": {"audits": [_AUDIT]},
    "/admin/api/audit": {"entries": [{**_ENTRY, "detail": {"e": "f"}, "hash": "0", "previous": "1"}], "last": 1},
    "/admin/api/policy/canary": {"canary": None, "past": [_CANARY, {**_CANARY, "id": "c0"}]},
}
_NEEDED = {"mode", "role", "csrf_token", "document", "kind", "source"}
"""Keys whose values the page acts on; each of them is of ours, and closed."""


def poisoned(value: Any, key: str = "") -> Any:
    """Every text in a document replaced."""
    if isinstance(value, dict):
        return {name: poisoned(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner, key) for inner in value]
    return HOSTILE if isinstance(value, str) and key not in _NEEDED else value


def poison(route: Route) -> None:
    """Answers for the gateway, with its own documents."""
    path = route.request.url.partition("?")[0].partition("//")[2].partition("/")[2]
    if path == "admin/api/live":
        topic = route.request.url.partition("topic=")[2].partition("&")[0]
        document = route.fetch(url=route.request.url.replace("/live?", f"/{topic}?")).json()
        event = f"event: {topic}\ndata: {json.dumps(poisoned(document))}\n\n"
        route.fulfill(status=200, content_type="text/event-stream", body=event)
        return
    document = _INVENTED.get(f"/{path}") or route.fetch().json()
    route.fulfill(status=200, json=poisoned(document))


@pytest.fixture
def page(chromium: Browser, site: Addresses) -> Iterator[Page]:
    context = chromium.new_context(base_url=site.admin_url)
    context.set_default_timeout(PATIENCE_MS)
    found = context.new_page()
    yield found
    # A page requests more on its own: what is still under way when a test ends is nobody's error.
    found.unroute_all(behavior="ignoreErrors")
    context.close()


@pytest.mark.parametrize("page_", [one for one in PAGES if one.in_menu], ids=lambda one: one.id)
def test_no_text_that_a_page_is_given_becomes_more_than_text(page: Page, site: Addresses, page_: AdminPage) -> None:
    body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": page_.id}]}
    request_id = httpx.post(f"{site.url}/v1/chat/completions", json=body).headers["x-request-id"]
    page.route("**/admin/api/**", poison)
    page.goto(f"{page_.path}/{request_id}" if page_.has_below else page_.path)
    expect(page.locator("main")).to_contain_text("<img src=x", timeout=PATIENCE_MS)
    if page_.has_below:
        expect(page.locator("#detail")).to_contain_text("<img src=x", timeout=PATIENCE_MS)
    page.wait_for_load_state()
    assert page.locator("main img, main script, main [onerror]").count() == 0
    assert page.evaluate("window.hacked") is None


def test_what_an_upstream_states_is_shown_without_secrets_and_control_characters(page: Page, tmp_path: Path) -> None:
    reported = json.dumps({"error": {"message": f"{HOSTILE} \x1b[2J your key {SECRET} is no good"}}).encode()

    async def echo(wire: Wire) -> None:
        await wire.answer(reported, status=401)

    with scripted_gateway(tmp_path, MORE_POLICY, echo) as at:
        body = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
        reply = httpx.post(f"{at.url}/v1/chat/completions", json=body, timeout=30)
        assert reply.status_code >= 400
        page.goto(f"{at.admin_url}/admin/requests/{reply.headers['x-request-id']}")
        expect(page.locator("#detail")).to_contain_text("Served by", timeout=PATIENCE_MS)
        shown = page.locator("#detail").inner_text()
        assert SECRET not in shown
        assert "\x1b" not in shown
        assert page.evaluate("window.hacked") is None


@contextmanager
def logged_in(chromium: Browser, folder: Path) -> Iterator[tuple[Addresses, BrowserContext]]:
    """A gateway with an editor, who has logged in here."""
    with scripted_gateway(folder, MORE_POLICY, settings={"policy.source": "store"}) as at:
        headers = {"authorization": f"Bearer {read_token(folder / FILE_NAME)}"}
        for name, role in (("root", "admin"), ("anna", "editor")):
            body = {"name": name, "role": role, "password": PASSWORD}
            httpx.post(f"{at.admin_url}/admin/api/admins", json=body, headers=headers).raise_for_status()
        context = chromium.new_context(base_url=at.admin_url)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto("/admin/")
        page.get_by_label("Name").fill("anna")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.locator("#who")).to_contain_text("anna", timeout=PATIENCE_MS)
        page.close()
        yield at, context
        context.close()


class _SilentLog(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Tests state what went wrong."""


def test_another_page_of_the_same_host_cannot_act_in_an_admins_name(chromium: Browser, tmp_path: Path) -> None:
    """A browser sends even a strict cookie along from another port of the same host."""
    evil = tmp_path / "evil"
    evil.mkdir()
    with logged_in(chromium, tmp_path) as (at, context):
        form = f"""<form id=f method=post enctype=text/plain action="{at.admin_url}/admin/api/keys">
            <input name='{{"tenant":"dev","x":"' value='"}}'></form>"""
        (evil / "form.html").write_text(f"{form}<script>document.getElementById('f').submit()</script>")
        handler = functools.partial(_SilentLog, directory=str(evil))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever).start()
        try:
            page = context.new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/form.html")
            expect(page.locator("body")).to_contain_text("error", timeout=PATIENCE_MS)
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            outcome = page.evaluate(
                """async (url) => {
                    const how = {method: "POST", credentials: "include", body: '{"tenant": "dev"}'};
                    const sent = {"content-type": "application/json", "x-csrf-token": "made-up"};
                    const seen = [];
                    for (const more of [{mode: "no-cors"}, {headers: sent}])
                        seen.push(await fetch(url, {...how, ...more}).then((r) => r.type, () => "refused"));
                    return seen;
                }""",
                f"{at.admin_url}/admin/api/keys",
            )
        finally:
            server.shutdown()
            server.server_close()
        assert outcome == ["opaque", "refused"]  # it may send, and reads nothing
        assert context.request.get("/admin/api/keys").json()["keys"] == []
        refused = context.request.post("/admin/api/keys", data={"tenant": "dev"})
        assert (refused.status, refused.json()["error"]["code"]) == (403, "csrf_failed")


def test_a_page_that_stays_open_beyond_its_login_is_sent_to_log_in_again(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.admin.live_feed, "MAX_STREAM_S", 2.0)
    with logged_in(chromium, tmp_path) as (at, context):
        page = context.new_page()
        page.goto("/admin/load?window=60")
        expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)
        session = {"cookie": "; ".join(f"{each['name']}={each['value']}" for each in context.cookies())}
        with httpx.Client(base_url=at.admin_url, headers=session) as client:  # somewhere else, the same login ends
            token = client.get("/admin/api/session").json()["csrf_token"]
            client.post("/admin/api/logout", json={}, headers={"x-csrf-token": token}).raise_for_status()
        expect(page).to_have_url(re.compile(r"/admin/login\?next=%2Fadmin%2Fload%3Fwindow%3D60"), timeout=PATIENCE_MS)
        page.get_by_label("Name").fill("anna")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page).to_have_url(re.compile("/admin/load"), timeout=PATIENCE_MS)


def test_a_lost_store_is_stated_on_every_page_that_lives_by_it(chromium: Browser, tmp_path: Path) -> None:
    redis = RedisServer(tmp_path / "redis").start()
    try:
        with scripted_gateway(
            tmp_path, MORE_POLICY, settings={"policy.source": "store", "store.address": redis.url}
        ) as at:
            page = chromium.new_page(base_url=at.admin_url)
            page.set_default_timeout(PATIENCE_MS)
            page.goto("/admin/")
            expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)
            redis.kill()
            expect(page.locator("#banners")).to_contain_text("cannot be used", timeout=PATIENCE_MS)
            page.goto("/admin/requests")
            expect(page.locator("#banners")).to_contain_text("cannot be used", timeout=PATIENCE_MS)
            page.goto("/admin/policy")  # what is in force is known without it
            expect(page.locator("#yaml")).to_have_value(re.compile("schema_version"), timeout=PATIENCE_MS)
            expect(page.locator("#banners")).to_contain_text("store", timeout=PATIENCE_MS)
            page.goto("/admin/audit")
            expect(page.locator("#banners")).to_contain_text("store", timeout=PATIENCE_MS)
            page.close()
    finally:
        redis.kill()
