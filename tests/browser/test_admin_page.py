"""The admin page in a real browser: every page, by mouse and by keyboard, in both colour schemes."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, expect

from gateway.access.local_token import FILE_NAME, read_token
from gateway.admin.pages import PAGES
from gateway.admin.pages import Page as AdminPage
from tests.browser.conftest import MORE_POLICY
from tests.e2e.scripted_gateway import Addresses, scripted_gateway

pytestmark = pytest.mark.e2e

PATIENCE_MS = 60_000.0
MAY_BE_404 = ("/admin/api/requests/unknown-", "/admin/api/cache/audits")
WITHOUT_FEED = ("/admin/policy", "/admin/cache", "/admin/tenants", "/admin/audit", "/admin/login")
HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
_MAP_STYLES = "Applying inline style violates"
"""The charting library would style maps that are never drawn; the content security policy stops it, as it should."""


@pytest.fixture
def context(chromium: Browser, site: Addresses) -> Iterator[BrowserContext]:
    context = chromium.new_context(base_url=site.admin_url, viewport={"width": 1360, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    context.set_default_navigation_timeout(PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """Fails the test when the page logged an error or ran into one."""
    page, reported = context.new_page(), list[str]()

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_MAP_STYLES):
            reported.append(f"{message.text} {message.location}")

    page.on("console", note)
    page.on("pageerror", lambda error: reported.append(str(error)))
    yield page
    assert [line for line in reported if not any(path in line for path in MAY_BE_404)] == []


def call(site: Addresses, model: str = "auto", text: str = "hi", **headers: str) -> httpx.Response:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}
    return httpx.post(f"{site.url}/v1/chat/completions", json=body, headers=headers, timeout=30)


def open_page(page: Page, path: str) -> None:
    page.goto(path)
    if path in WITHOUT_FEED:
        expect(page.locator("main")).not_to_contain_text("Loading…", timeout=PATIENCE_MS)
        return
    expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)


def test_a_gateway_without_traffic_states_what_to_do(page: Page) -> None:
    open_page(page, "/admin/")
    expect(page.locator("#ttft")).to_contain_text("No requests yet", timeout=PATIENCE_MS)


def test_the_overview_follows_traffic_and_draws_it(page: Page, site: Addresses) -> None:
    open_page(page, "/admin/")
    for n in range(3):
        assert call(site, text=f"overview {n}").status_code == 200
    expect(page.locator("#ttft")).to_contain_text("0-256", timeout=PATIENCE_MS)
    expect(page.locator("#deployments")).to_contain_text("only")
    expect(page.locator("#rate .main-svg").first).to_be_visible(timeout=PATIENCE_MS)
    page.locator("#window").select_option("900")
    expect(page).to_have_url(re.compile("window=900"))


def test_a_request_is_found_explained_and_linked_to(page: Page, site: Addresses) -> None:
    open_page(page, "/admin/requests")
    request_id = call(site, text="explain me").headers["x-request-id"]
    page.locator(f'tr[data-key="{request_id}"]').click()
    detail = page.locator("#detail")
    expect(detail).to_contain_text("upstream first byte")
    expect(detail).to_contain_text("Decision")
    expect(page).to_have_url(re.compile(f"/admin/requests/{request_id}$"))
    page.keyboard.press("Escape")
    expect(detail).to_be_hidden()
    page.goto(f"/admin/requests/{request_id}")
    expect(detail.locator("h2")).to_have_text(request_id)


def test_filters_are_part_of_the_address(page: Page, site: Addresses) -> None:
    call(site, text="filtered")
    call(site, "nobody-serves-this")
    open_page(page, "/admin/requests?outcome=rejected")
    rows = page.locator("#list tbody tr")
    expect(rows.first).to_contain_text("nobody-serves-this")
    assert all("rejected" in text for text in rows.all_inner_texts())
    page.locator("[name=outcome]").select_option("cancelled")
    expect(page.locator("#list")).to_contain_text("No request matches")
    expect(page).to_have_url(re.compile("outcome=cancelled"))


def test_the_keyboard_reaches_everything(page: Page, site: Addresses) -> None:
    call(site, text="keys")
    open_page(page, "/admin/")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page).to_have_url(re.compile("/admin/requests"))
    expect(page.locator("#list tbody tr").first).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("#detail")).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()


def test_the_colour_scheme_is_remembered(page: Page) -> None:
    open_page(page, "/admin/load")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    page.wait_for_function("was => getComputedStyle(document.body).backgroundColor !== was", arg=before)
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_a_deployment_is_drained_and_taken_back(context: BrowserContext, site: Addresses, admin_token: str) -> None:
    page = context.new_page()  # its console states that the first try was refused
    open_page(page, "/admin/deployments")
    page.get_by_role("button", name="Drain").click()
    page.locator("dialog[open] [name=reason]").fill("a new card")
    page.locator("dialog[open] button[value=ok]").click()
    page.locator("dialog[open] [name=token]").fill(admin_token)  # changes need more than reading does
    page.locator("dialog[open] button[value=ok]").click()
    card = page.locator("section#only")
    expect(card).to_contain_text("draining", timeout=PATIENCE_MS)
    assert call(site, text="while drained").status_code == 503
    page.get_by_role("button", name="Resume").click()
    page.locator("dialog[open] button[value=ok]").click()
    expect(card).to_contain_text("ready", timeout=PATIENCE_MS)


def unlock(page: Page, token: str) -> None:
    """What an operator does at the first change where nobody has to log in to read."""
    page.locator("dialog[open] [name=token]").fill(token)
    page.locator("dialog[open] button[value=ok]").click()


def test_a_policy_is_edited_by_form_checked_diffed_applied_and_rolled_back(
    context: BrowserContext, site: Addresses, admin_token: str
) -> None:
    page = context.new_page()  # its console states that the first try was refused
    page.goto("/admin/policy")
    expect(page.locator("#verdict")).to_contain_text("In force")
    field = page.get_by_label("TTL, s").first
    field.fill("1234")
    field.press("Tab")
    expect(page.locator("#yaml")).to_have_value(re.compile("ttl_s: 1234"))
    expect(page.locator("#diff")).to_contain_text("1234")
    page.locator("#plan").click()
    expect(page.locator("#planned")).to_contain_text("Tenants")
    page.locator("#apply").click()
    page.locator("dialog[open] [name=reason]").fill("keep answers for less long")
    page.locator("dialog[open] button[value=ok]").click()
    unlock(page, admin_token)
    expect(page.locator("#history")).to_contain_text("keep answers for less long", timeout=PATIENCE_MS)
    expect(page.locator("#verdict")).to_contain_text("In force")
    page.get_by_role("button", name="Roll back to 1").click()
    page.locator("dialog[open] [name=reason]").fill("after all not")
    page.locator("dialog[open] button[value=ok]").click()
    expect(page.locator("#history")).to_contain_text("after all not", timeout=PATIENCE_MS)
    expect(page.locator("#yaml")).not_to_have_value(re.compile("1234"))


def test_a_mistake_is_shown_where_it_is_and_cannot_be_applied(page: Page, site: Addresses) -> None:
    page.goto("/admin/policy")
    expect(page.locator("#verdict")).to_contain_text("In force")
    text = page.locator("#yaml").input_value()
    page.locator("#yaml").fill(text + "\nrotues: []\n")
    expect(page.locator("#verdict")).to_contain_text('did you mean "routes"')
    page.locator("#verdict button").first.click()
    assert page.evaluate("document.activeElement.id") == "yaml"
    page.locator("#reset").click()
    expect(page.locator("#verdict")).to_contain_text("In force")


def test_a_policy_file_is_not_written_but_given_a_patch(chromium: Browser, tmp_path: Path) -> None:
    with scripted_gateway(tmp_path) as at:
        page = chromium.new_page(base_url=at.admin_url)
        page.set_default_timeout(PATIENCE_MS)
        page.goto("/admin/policy")
        expect(page.locator("#banners")).to_contain_text("change it there", timeout=PATIENCE_MS)
        text = page.locator("#yaml").input_value()
        page.locator("#yaml").fill(text + "lanes: [{id: batch}]\n")
        expect(page.locator("#verdict")).to_contain_text("Valid")
        expect(page.locator("#apply")).to_be_disabled()
        with page.expect_download() as download:
            page.locator("#patch").click()
        assert "+lanes: [{id: batch}]" in download.value.path().read_text()
        page.close()


def test_a_key_is_made_shown_once_used_revoked_and_all_of_it_written_down(chromium: Browser, tmp_path: Path) -> None:
    with scripted_gateway(tmp_path, MORE_POLICY, settings={"policy.source": "store"}) as at:
        page = chromium.new_page(base_url=at.admin_url)
        page.set_default_timeout(PATIENCE_MS)
        page.goto("/admin/tenants")
        page.get_by_role("button", name="New key for dev").click()
        page.locator("dialog[open] [name=id]").fill("page-test")
        page.locator("dialog[open] button[value=ok]").click()
        unlock(page, read_token(tmp_path / FILE_NAME))
        secret = page.locator("#secret").inner_text()
        assert secret.startswith("sk-penstock-")
        page.get_by_role("button", name="Done").click()
        row = page.locator("#keyring tr", has_text="page-test")
        expect(row).to_contain_text("active", timeout=PATIENCE_MS)
        assert secret not in page.content()
        assert call(at, text="with a key", authorization=f"Bearer {secret}").status_code == 200
        page.get_by_role("button", name="Revoke page-test").click()
        page.locator("dialog[open] button[value=ok]").click()
        expect(row).to_contain_text("revoked", timeout=PATIENCE_MS)
        page.goto("/admin/audit")
        expect(page.locator("#chain")).to_contain_text("verified", timeout=PATIENCE_MS)
        page.locator("#find").fill("key.revoke")
        expect(page.locator("#entries tbody tr")).to_have_count(1, timeout=PATIENCE_MS)
        page.locator("#entries tbody tr button").click()
        expect(page.locator("#one")).to_contain_text("page-test")
        page.close()


def test_cached_responses_are_purged_after_a_preview(
    context: BrowserContext, site: Addresses, admin_token: str
) -> None:
    page = context.new_page()
    page.goto("/admin/cache")
    expect(page.locator("#entries")).to_contain_text("Cache entries")
    page.locator("#purge [name=route]").fill("faq")
    page.locator("#purge button").click()
    unlock(page, admin_token)
    expect(page.locator("#covered")).to_contain_text("faq")
    page.get_by_role("button", name="Remove th").click()
    expect(page.locator("#message")).to_contain_text("removed")


def test_nothing_that_others_state_runs_on_a_page(page: Page, site: Addresses) -> None:
    refused = call(site, HOSTILE, **{"x-client-request-id": HOSTILE})
    open_page(page, "/admin/requests")
    row = page.locator(f'tr[data-key="{refused.headers["x-request-id"]}"]')
    expect(row).to_contain_text("<img src=x")
    row.click()
    expect(page.locator("#detail")).to_contain_text(HOSTILE)
    page.goto(f"/admin/requests/unknown-{HOSTILE.replace('/', '%2F')}")
    expect(page.locator("#detail")).to_contain_text("Request not found")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


def test_tables_are_exported_and_no_cell_is_a_formula(page: Page, site: Addresses) -> None:
    call(site, '=HYPERLINK("http://evil")')
    open_page(page, "/admin/requests?outcome=rejected")
    expect(page.locator("#list tbody tr").first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export Requests as CSV").click()
    with open(download.value.path(), newline="") as stream:
        rows = list(csv.DictReader(io.StringIO(stream.read())))
    assert any(row["model"] == '\'=HYPERLINK("http://evil")' for row in rows)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export Requests as JSON").click()
    assert {row["outcome"] for row in json.loads(download.value.path().read_text())} == {"rejected"}


def test_what_is_more_than_text_is_json_in_a_csv(page: Page, site: Addresses) -> None:
    open_page(page, "/admin/tenants")
    expect(page.locator("#tenants tbody tr").first).to_be_visible(timeout=PATIENCE_MS)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export Tenants as CSV").click()
    with open(download.value.path(), newline="") as stream:
        (row,) = csv.DictReader(io.StringIO(stream.read()))
    assert isinstance(json.loads(row["limits"]), dict)
    assert "object" not in "".join(row.values())


def test_a_filter_that_nothing_passes_does_not_state_that_nothing_ever_happened(
    context: BrowserContext, site: Addresses, admin_token: str
) -> None:
    policy = f"{site.admin_url}/admin/api/policy"
    with httpx.Client(headers={"authorization": f"Bearer {admin_token}"}) as client:
        found = client.get(policy).json()
        change = {"document": found["document"] + "\n# a word\n", "reason": "something to look for"}
        client.put(policy, json=change, headers={"if-match": found["etag"]}).raise_for_status()
    page = context.new_page()
    page.goto("/admin/audit")
    expect(page.locator("#entries")).to_contain_text("something to look for", timeout=PATIENCE_MS)
    page.locator("#find").fill("nobody wrote this")
    expect(page.locator("#entries")).to_contain_text("No change matches")
    page.locator("#find").fill("something to look")
    expect(page.locator("#entries tbody tr").first).to_be_visible()


def test_a_token_that_is_not_the_one_is_reported_to_be_wrong(context: BrowserContext, site: Addresses) -> None:
    page = context.new_page()
    open_page(page, "/admin/deployments")
    page.get_by_role("button", name="Drain").click()
    page.locator("dialog[open] button[value=ok]").click()
    expect(page.locator("dialog[open]")).not_to_contain_text("not the admin token")
    unlock(page, "not-this-one")
    expect(page.locator("dialog[open]")).to_contain_text("not the admin token", timeout=PATIENCE_MS)
    page.keyboard.press("Escape")


def test_times_on_an_axis_are_seconds_or_milliseconds(page: Page, site: Addresses) -> None:
    call(site, text="an axis")
    open_page(page, "/admin/")
    ticks = page.locator("#first .ytick text")
    expect(ticks.first).to_be_visible(timeout=PATIENCE_MS)
    assert all(re.fullmatch(r"0s|[\d.]+[mμµ]?s", text) for text in ticks.all_text_contents())


OVERLAPS = """() => {
  const names = "main :is(button, input, select, textarea, #verdict > *)";
  const shown = [...document.querySelectorAll(names)].filter((one) => one.checkVisibility());
  const shared = (a, b, from, to) => Math.min(a[to], b[to]) - Math.max(a[from], b[from]) > 1;
  return shown.flatMap((one, i) => shown.slice(i + 1).filter((two) => {
    const [a, b] = [one.getBoundingClientRect(), two.getBoundingClientRect()];
    return !one.contains(two) && shared(a, b, "left", "right") && shared(a, b, "top", "bottom");
  }).map((two) => `${one.outerHTML} / ${two.outerHTML}`));
}"""


@pytest.mark.parametrize("page_", PAGES, ids=lambda one: one.id)
def test_nothing_lies_over_anything_on_a_telephone_and_the_page_is_marked_in_sight(
    context: BrowserContext, site: Addresses, page_: AdminPage
) -> None:
    page = context.new_page()
    page.set_viewport_size({"width": 360, "height": 740})
    open_page(page, page_.path)
    expect(page.locator("main")).not_to_contain_text("Loading…", timeout=PATIENCE_MS)
    assert page.evaluate(OVERLAPS) == []
    if page_.in_menu:
        expect(page.locator("nav [aria-current]")).to_be_in_viewport(ratio=1)
        heights = page.evaluate("[...document.querySelectorAll('nav a[data-key]')].map((one) => one.offsetHeight)")
        assert max(heights) == min(heights)


def test_a_feed_that_broke_off_is_taken_up_again(context: BrowserContext, site: Addresses) -> None:
    page = context.new_page()  # its console states that it was offline
    open_page(page, "/admin/load")
    context.set_offline(True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#banners")).to_contain_text("broke off", timeout=PATIENCE_MS)
    context.set_offline(False)
    expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)
    expect(page.locator("#banners")).not_to_contain_text("broke off")


def test_a_page_that_is_open_for_long_keeps_a_bounded_list(page: Page, site: Addresses) -> None:
    with httpx.Client(timeout=30) as client:
        body = {"model": "nobody", "messages": [{"role": "user", "content": "hi"}]}
        open_page(page, "/admin/requests")
        for _ in range(5):
            for _ in range(49):
                client.post(f"{site.url}/v1/chat/completions", json=body)
            newest = client.get(f"{site.admin_url}/admin/api/requests?limit=1").json()["requests"][0]["id"]
            expect(page.locator(f'tr[data-key="{newest}"]')).to_be_attached(timeout=PATIENCE_MS)
    assert page.locator("#list tbody tr").count() <= 200


def test_rows_come_only_while_no_pointer_is_over_the_list(page: Page, site: Addresses) -> None:
    first = call(site, text="under the pointer").headers["x-request-id"]
    open_page(page, "/admin/requests")
    rows = page.locator("#list tbody tr")
    expect(rows.first).to_have_attribute("data-key", first)
    before = rows.count()
    rows.first.hover()
    newer = call(site, text="while it is there").headers["x-request-id"]
    expect(page.locator(".card header", has_text="Finished requests")).to_contain_text("New rows wait")
    expect(rows.first).to_have_attribute("data-key", first)
    assert rows.count() == before
    page.locator("h1").hover()
    expect(rows.first).to_have_attribute("data-key", newer)
    expect(rows.nth(1)).to_have_attribute("data-key", first)


def test_what_is_pressed_stays_the_same_element_while_numbers_change(page: Page, site: Addresses) -> None:
    open_page(page, "/admin/deployments")
    button = page.get_by_role("button", name="Drain").element_handle()
    traffic = page.locator("#only dd", has_text="requests")
    before = traffic.inner_text()
    call(site, text="another one")
    expect(traffic).not_to_have_text(before)
    assert button is not None
    assert button.evaluate("(one) => one.isConnected")


def test_a_bar_stays_within_its_track_and_covers_no_number(page: Page, site: Addresses) -> None:
    request_id = call(site, text="overlapping stages").headers["x-request-id"]

    def overlap(route: Route) -> None:
        document = route.fetch().json()
        document["request"] |= {
            "total_ms": 100.0,
            "stages": [{"stage": "one", "ms": 80.0}, {"stage": "two", "ms": 90.0}],
        }
        route.fulfill(json=document)

    page.route(f"**/admin/api/requests/{request_id}", overlap)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        open_page(page, f"/admin/requests/{request_id}")
        expect(page.locator(".flow i")).to_have_count(2)
        places = page.locator(".flow").evaluate(
            """(flow) => [...flow.querySelectorAll(".track")].map((track) => {
                const [bar, number] = [track.firstElementChild, track.nextElementSibling];
                return [track, bar, number].map((one) => one.getBoundingClientRect());
            }).map(([track, bar, num]) => [bar.left - track.left, track.right - bar.right, num.left - bar.right])"""
        )
        assert all(space > -0.5 for place in places for space in place), places
