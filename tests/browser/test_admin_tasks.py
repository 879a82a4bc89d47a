"""An admin's tasks on the shipped policy, each within five clicks from Overview, on a desktop and on a telephone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from gateway.access.local_token import FILE_NAME, read_token
from gateway.admin.pages import PAGES
from tests.browser.admin_tasks import PATIENCE_MS, VIEWPORTS, Admin, Shipped, shipped_policy
from tests.e2e.scripted_gateway import scripted_gateway

pytestmark = pytest.mark.e2e

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    with shipped_policy(tmp_path_factory.mktemp("shipped")) as found:
        yield found


@pytest.fixture(params=VIEWPORTS, ids=lambda size: f"{size[0]}px")
def page(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Page]:
    width, height = request.param
    context = chromium.new_context(viewport={"width": width, "height": height})
    yield context.new_page()
    context.close()


def test_hit_rate_and_shed_requests_are_on_overview_and_every_figure_leads_to_its_detail(
    page: Page, shipped: Shipped
) -> None:
    admin = shipped.sign_in(page)
    tiles = page.locator("#tiles .tile")
    for name in ("Cache hits", "Shed", "Rejected"):
        expect(tiles.filter(has_text=name)).to_be_visible()
    names = tiles.locator("> a").all_inner_texts()
    assert len(names) == tiles.count()
    for name in names:
        tile = tiles.filter(has=page.get_by_role("link", name=name, exact=True))
        tile.click(position={"x": 20, "y": 50})  # anywhere on the figure
        expect(page).not_to_have_url(re.compile(r"/admin/$"))
        page.goto(f"{shipped.admin_url}/admin/")
        expect(tiles.first).to_be_visible()
    admin.click(tiles.get_by_role("link", name="Shed"))
    expect(page).to_have_url(re.compile(r"/admin/requests\?outcome=shed"))
    expect(page.locator("#list")).to_contain_text("No request matches")
    admin.check()


def test_requests_refused_with_400_401_and_403_are_on_overview_by_status(page: Page, shipped: Shipped) -> None:
    body = {"model": "auto", "messages": "nothing"}
    assert httpx.post(f"{shipped.url}/v1/chat/completions", json=body).status_code == 400
    admin = shipped.sign_in(page)
    row = page.locator("#rejected tr", has_text="a field or the JSON is wrong")
    expect(row).to_contain_text("400")
    admin.click(row.get_by_role("link"))
    expect(page.locator("#list tbody tr").first).to_contain_text("rejected")
    expect(page.locator("#list tbody")).not_to_contain_text("404")


TWO_OF_THREE = """
routes:
  - {id: auto, match: {models: [auto]}, select: {candidates: [only]}}
  - {id: chat, match: {models: [chat]}, select: {candidates: [only]}}
  - {id: faq, match: {models: [faq]}, select: {candidates: [only]}, cache: {mode: exact}}
"""


def test_a_cache_that_is_off_is_on_overview_with_a_link_to_turn_it_on(page: Page, tmp_path: Path) -> None:
    with scripted_gateway(tmp_path, TWO_OF_THREE, settings={"policy.source": "store"}) as at:
        admin = Shipped(at.url, at.admin_url, tmp_path).sign_in(page)
        tile = page.locator("#tiles .tile", has_text="Cache hits")
        expect(tile).to_contain_text("cache is off on 2 of 3 routes")
        admin.click(tile.get_by_role("link", name="turn it on"))
        expect(page).to_have_url(re.compile(r"/admin/policy#routes\.auto\.cache\.mode"))
        expect(page.locator(":focus")).to_be_visible()


def test_a_deployment_is_drained_and_resumed(page: Page, shipped: Shipped) -> None:
    admin = shipped.sign_in(page)
    admin.click_link("Deployments")
    card = page.locator("section#small")
    admin.click(card.get_by_role("button", name="Drain"))
    admin.confirm()
    expect(card).to_contain_text("draining", timeout=PATIENCE_MS)
    admin.check()
    back = Admin(page)
    back.click(card.get_by_role("button", name="Resume"))
    back.confirm()
    expect(card).to_contain_text("ready", timeout=PATIENCE_MS)


def test_one_request_is_explained(page: Page, shipped: Shipped) -> None:
    request_id = shipped.call("explain me", **{"cache-control": "no-cache"}).headers["x-request-id"]
    admin = shipped.sign_in(page)
    admin.click_link("Requests")
    admin.click(page.locator(f'tr[data-key="{request_id}"]'))
    expect(page.locator("#detail .why")).to_have_text(re.compile(r"^(small|large) was chosen( from 2 candidates)?: "))
    assert not re.search(r"\d\.\d{4}", page.locator("#detail").inner_text().replace(request_id, ""))
    admin.check()


@pytest.mark.parametrize("size", VIEWPORTS, ids=lambda size: f"{size[0]}px")
def test_a_tenant_gets_a_key_first_and_keys_are_required_later(
    chromium: Browser, tmp_path: Path, size: tuple[int, int]
) -> None:
    with shipped_policy(tmp_path) as shipped:
        page = chromium.new_page(viewport={"width": size[0], "height": size[1]})
        admin = shipped.sign_in(page)
        admin.click_link("Tenants")
        admin.click(page.get_by_role("button", name="New tenant"))
        dialog = page.locator("dialog[open]")
        expect(dialog).to_contain_text("Once keys are required, all callers need one.")
        dialog.locator("[name=id]").fill("shop")
        admin.confirm()
        secret = page.locator("#secret").inner_text()
        admin.click(page.get_by_role("button", name="Done"))
        admin.check()
        assert shipped.call("without").status_code == 200  # the first key locks no caller out
        assert shipped.call("with", authorization=f"Bearer {secret}").status_code == 200
        _require_keys_and_find_the_way_back(Admin(page), shipped)
        page.close()


def _require_keys_and_find_the_way_back(admin: Admin, shipped: Shipped) -> None:
    page = admin.page
    admin.click(page.get_by_role("button", name="Require keys"))
    expect(page.locator("dialog[open]")).to_contain_text("Every call without a key then gets 401")
    admin.confirm()
    expect(page.locator("#access")).to_contain_text("refused with 401", timeout=PATIENCE_MS)
    assert shipped.call("without").status_code == 401
    admin.click(page.locator("#keyring").get_by_role("button", name="Revoke"))
    expect(page.locator("dialog[open]")).to_contain_text("It is the last key that works.")
    admin.confirm()
    expect(page.locator("#access")).to_contain_text("served for programs on this machine", timeout=PATIENCE_MS)
    assert shipped.call("without").status_code == 200
    page.goto(f"{shipped.admin_url}/admin/")
    expect(page.locator("#rejected")).to_contain_text("no valid API key", timeout=PATIENCE_MS)


def test_the_admin_token_is_needed_once_a_session_and_its_path_is_shown(page: Page, shipped: Shipped) -> None:
    page.set_default_timeout(PATIENCE_MS)
    token_file = shipped.folder / FILE_NAME
    page.goto(f"{shipped.admin_url}/admin/deployments")
    for name, state in (("Drain", "draining"), ("Resume", "ready")):
        page.locator("section#large").get_by_role("button", name=name).click()
        page.locator("dialog[open] button[value=ok]").click()
        if name == "Drain":
            expect(page.locator("dialog[open]")).to_contain_text(str(token_file))
            page.locator("dialog[open] [name=token]").fill(read_token(token_file))
            page.locator("dialog[open] button[value=ok]").click()
        expect(page.locator("section#large")).to_contain_text(state, timeout=PATIENCE_MS)
        page.reload()  # the session outlives the page
    expect(page.locator("#who")).to_contain_text("admin token (admin)")


def test_a_login_link_works_once_and_shows_then_how_to_get_another(page: Page, shipped: Shipped) -> None:
    link = shipped.login_link()
    page.goto(f"{shipped.admin_url}{link}")
    expect(page.locator("#who")).to_contain_text("admin token", timeout=PATIENCE_MS)
    expect(page).to_have_url(f"{shipped.admin_url}/admin/")
    page.context.clear_cookies()
    page.goto(f"{shipped.admin_url}{link}")
    expect(page.locator("#why")).to_contain_text("'penstock admin link' prints a new one", timeout=PATIENCE_MS)
    expect(page.locator("#token-path")).to_have_text(str(shipped.folder / FILE_NAME))
    assert "link=" not in page.url


ELSEWHERE = (
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example",
    "javascript:alert(1)",
    "/admin//evil.example",
)


@pytest.mark.parametrize("target", ELSEWHERE)
def test_a_sign_in_never_leads_to_another_site(page: Page, shipped: Shipped, target: str) -> None:
    link = shipped.login_link().replace("#", f"?next={httpx.QueryParams({'x': target})['x']}#")
    page.goto(f"{shipped.admin_url}{link}")
    expect(page.locator("#who")).to_contain_text("admin token", timeout=PATIENCE_MS)
    expect(page).to_have_url(f"{shipped.admin_url}/admin/", timeout=PATIENCE_MS)


def test_the_requested_page_is_shown_after_the_sign_in_and_viewers_see_no_button_of_a_change(
    chromium: Browser, tmp_path: Path
) -> None:
    with shipped_policy(tmp_path) as shipped:
        for name, role in (("root", "admin"), ("vera", "viewer")):
            body = {"name": name, "role": role, "password": PASSWORD}
            headers = _token(shipped)
            httpx.post(f"{shipped.admin_url}/admin/api/admins", json=body, headers=headers).raise_for_status()
        page = chromium.new_page(base_url=shipped.admin_url)
        page.set_default_timeout(PATIENCE_MS)
        page.goto("/admin/deployments?window=60#large")
        page.get_by_label("Name").fill("vera")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page).to_have_url(f"{shipped.admin_url}/admin/deployments?window=60#large")
        expect(page.locator("#who")).to_contain_text("vera (viewer)")
        for one in (each for each in PAGES if each.in_menu):
            page.goto(one.path)
            expect(page.locator("#who")).to_contain_text("vera")
            expect(page.locator("main")).not_to_contain_text("Loading…", timeout=PATIENCE_MS)
            assert page.get_by_role("button", name=_CHANGES).all_inner_texts() == [], one.id
        page.close()


_CHANGES = re.compile(
    r"^(Drain$|Resume$|New|Rotate|Revoke|Require keys|Make keys|Apply|Start|Roll back|Remove th|Purge)"
)


def _token(shipped: Shipped) -> dict[str, str]:
    return {"authorization": f"Bearer {read_token(shipped.folder / FILE_NAME)}"}
