"""Every page, with something on it, at two widths and in both colour schemes: axe finds nothing, and nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from gateway.access.local_token import FILE_NAME, read_token
from gateway.admin.pages import PAGES
from gateway.admin.pages import Page as AdminPage
from tests.e2e.scripted_gateway import Addresses, scripted_gateway

pytestmark = pytest.mark.e2e

PATIENCE_MS = 30_000.0
PASSWORD = "correct horse battery"
SIZES = ({"width": 1440, "height": 900}, {"width": 390, "height": 844})
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
POLICY = """\
schema_version: 1
deployments:
  - {id: small, url: "unix:${runtime_dir}/small.sock", model: tiny, cost_per_mtok: {prompt: 0.1, completion: 0.4}}
  - {id: large, url: "unix:${runtime_dir}/large.sock", model: big, cost_per_mtok: {prompt: 0.5, completion: 2}}
lanes:
  - {id: interactive, weight: 8, slo: {ttft_p95_ms: 20000}}
  - {id: batch, weight: 1}
tenants: [{id: dev, limits: {requests_per_min: 600}}]
routes:
  - id: faq
    match: {models: [faq]}
    select: {policy: scored, weights: {latency: 1}, candidates: [large, small]}
    cache: {mode: exact_then_semantic, max_error_ratio: 0.005}
  - {id: auto, match: {models: [auto]}, select: {policy: first_available, candidates: [large, small]}}
"""
CUT = """() => {
  const isSeen = (one) => one.checkVisibility() && !one.closest(".sr, .skip, svg, figure");
  const scrolls = (one) => /auto|scroll/.test(getComputedStyle(one).overflowX);
  const isInside = ({ parentElement: up }, test) => Boolean(up) && (test(up) || isInside(up, test));
  const pen = document.createElement("canvas").getContext("2d");
  const isTooLong = (one) => {
    const style = getComputedStyle(one);
    pen.font = style.font;
    const text = one.tagName === "SELECT" ? one.selectedOptions[0]?.text ?? "" : one.value || one.placeholder;
    const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return pen.measureText(text).width > room + 1;
  };
  return [...document.querySelectorAll("body *")].filter(isSeen).filter((one) => {
    const box = one.getBoundingClientRect();
    if (!box.width || !box.height) return false;
    if (/^(INPUT|SELECT)$/.test(one.tagName) && !/radio|checkbox|range/.test(one.type) && isTooLong(one)) return true;
    if ((box.right > innerWidth + 1 || box.left < -1) && !isInside(one, scrolls)) return true;
    const isWider = one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1;
    const isLeaf = one.children.length === 0 && one.tagName !== "TEXTAREA" && !scrolls(one);
    return isWider && (isLeaf || /hidden|clip/.test(getComputedStyle(one).overflowX));
  }).map((one) => one.outerHTML.slice(0, 200));
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """A gateway that has served, refused, stored and changed something, with a canary on trial."""
    folder = tmp_path_factory.mktemp("axe")
    with scripted_gateway(folder, POLICY, settings={"policy.source": "store"}) as at:
        for n, model in enumerate(("faq", "faq", "auto", "nobody-has-this")):
            body = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": f"question {n // 2}"}]}
            httpx.post(f"{at.url}/v1/chat/completions", json=body, timeout=30)
        _administer(at, folder)
        yield at


def _administer(at: Addresses, folder: Path) -> None:
    headers = {"authorization": f"Bearer {read_token(folder / FILE_NAME)}"}
    with httpx.Client(base_url=f"{at.admin_url}/admin/api", headers=headers) as client:
        for name, role in (("root", "admin"), ("anna", "admin")):
            client.post("/admins", json={"name": name, "role": role, "password": PASSWORD}).raise_for_status()
        found = client.get("/policy").json()
        for path, text in (("/policy", POLICY + "# a word\n"), ("/policy/canary", POLICY.replace("0.005", "0.01"))):
            body: dict[str, Any] = {"document": text, "reason": "something to look at"}
            method = "PUT" if path == "/policy" else "POST"
            body |= {} if method == "PUT" else {"percent": 10}
            client.request(method, path, json=body, headers={"if-match": found["etag"]}).raise_for_status()
            found = client.get("/policy").json()
        client.post("/keys", json={"tenant": "dev", "id": "someone"}).raise_for_status()


def fill_up(page: Page, id: str) -> None:
    """Bring everything that a page can show onto it."""
    if id == "requests":
        page.locator("#list tbody tr").first.click()
        expect(page.locator("#detail h3").first).to_be_visible()
    if id == "policy":
        page.evaluate("document.querySelectorAll('#form details').forEach((one) => (one.open = true))")
        page.get_by_role("radio", name="Sticky").first.click()
        page.get_by_label("Longest queue").first.fill("many")
        expect(page.locator("#form")).to_contain_text("Must be a number")
        expect(page.locator("#diff")).to_contain_text("sticky")
        page.locator("#plan").click()
        expect(page.locator("#planned")).to_contain_text("Requests of the last day")
    if id == "cache":
        page.locator("#purge [name=route]").fill("faq")
        page.get_by_role("button", name="List entries").click()
        expect(page.locator("#covered table")).to_be_visible()


def found_wrong(page: Page) -> list[str]:
    """What axe or the eye would object to, with the width and the scheme."""
    problems = []
    for size in SIZES:
        page.set_viewport_size(size)  # type: ignore[arg-type]
        problems += [f"cut at {size['width']} px: {cut}" for cut in page.evaluate(CUT)]
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            found = Axe().run(page)
            if found.violations_count:
                problems.append(f"{size['width']} px, {scheme}: {found.generate_report()}")
    return problems


@pytest.fixture
def page(chromium: Browser, site: Addresses) -> Iterator[Page]:
    """Logged in."""
    context = chromium.new_context(base_url=site.admin_url, viewport=SIZES[0])  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    assert context.request.post("/admin/api/login", data={"name": "anna", "password": PASSWORD}).ok
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("page_", PAGES, ids=lambda one: one.id)
def test_axe_finds_nothing_and_nothing_is_cut(page: Page, page_: AdminPage) -> None:
    page.goto(page_.path)
    expect(page.locator("main")).not_to_contain_text("Loading…", timeout=PATIENCE_MS)
    fill_up(page, page_.id)
    assert found_wrong(page) == []


@pytest.mark.parametrize("id", ["apply", "try", "promote", "stop", "rollback"])
def test_axe_finds_nothing_in_a_dialog_of_the_policy(page: Page, id: str) -> None:
    page.goto("/admin/policy")
    expect(page.locator("#canary")).to_contain_text("Verdict", timeout=PATIENCE_MS)
    page.get_by_role("radio", name="Least in flight").first.click()
    button = {"promote": "#canary .main", "stop": "#canary .danger", "rollback": "#history td button"}
    page.locator(button.get(id, f"#{id}")).first.click()
    expect(page.locator("dialog[open]")).to_be_visible()
    assert found_wrong(page) == []
