"""An admin's tasks with policy and cache, by form, from Overview within five clicks, on wide and narrow screens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from gateway.access.local_token import FILE_NAME, read_token
from gateway.config.settings import bundled_policy_path
from tests.e2e.scripted_gateway import Addresses, scripted_gateway

pytestmark = pytest.mark.e2e

PATIENCE_MS = 30_000.0
PASSWORD = "correct horse battery"
MAX_CLICKS = 5
WIDTHS = (1440, 390)
PLAIN = """\
# Neither a cache, nor timeouts, nor lanes, nor prices: the form adds what it needs.
schema_version: 1
deployments:
  - id: small
    url: "unix:${runtime_dir}/small.sock"
    model: penstock-small
  - id: large
    url: "unix:${runtime_dir}/large.sock"
    model: penstock-large
routes:
  - id: auto
    match: {models: [auto]}
    select: {policy: first_available, candidates: [large, small]}  # the large one first

tests:
  - name: auto goes to the large model
    request: {model: auto}
    expect: {route: auto, candidates: [large, small], deployment: large}
  - name: a model nobody serves is an error
    request: {model: penstock-medium}
    expect: {error: model_not_found}
"""
POLICIES = {"plain": PLAIN, "shipped": bundled_policy_path().read_text()}


class Hand:
    """A pointer that counts its clicks; typing and the Tab key are none."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.num_clicks = 0

    def click(self, target: Locator) -> None:
        """One click, once the target can be pressed."""
        target.click()
        self.num_clicks += 1

    def press(self, name: str) -> None:
        """A button of the page."""
        self.click(self.page.locator("main").get_by_role("button", name=name))

    def confirm(self, name: str) -> None:
        """A button of the open dialog."""
        self.click(self.page.locator("dialog[open]").get_by_role("button", name=name))

    def go(self, page: str) -> None:
        """From Overview to another page."""
        self.click(self.page.locator("nav").get_by_role("link", name=page))

    def fill(self, label: str, value: str) -> None:
        """A field: a click into it, and typing."""
        field = self.page.locator("main").get_by_role("textbox", name=label).first
        self.click(field)
        field.fill(value)

    def choose(self, name: str) -> None:
        """A choice of the first route."""
        self.click(self.page.get_by_role("radio", name=name).first)


@pytest.fixture(scope="module", params=POLICIES)
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Addresses, Path]]:
    """A gateway under each policy, with an editor."""
    folder = tmp_path_factory.mktemp("tasks")
    with scripted_gateway(folder, POLICIES[request.param], settings={"policy.source": "store"}) as at:
        headers = {"authorization": f"Bearer {read_token(folder / FILE_NAME)}"}
        for name, role in (("root", "admin"), ("anna", "editor")):
            body = {"name": name, "role": role, "password": PASSWORD}
            httpx.post(f"{at.admin_url}/admin/api/admins", json=body, headers=headers).raise_for_status()
        yield at, folder


@pytest.fixture(params=WIDTHS)
def hand(request: pytest.FixtureRequest, chromium: Browser, gateway: tuple[Addresses, Path]) -> Iterator[Hand]:
    """An editor's, on Overview, whose policy is as it was shipped."""
    at, folder = gateway
    _restore(at, folder)
    context = chromium.new_context(base_url=at.admin_url, viewport={"width": request.param, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    login = context.request.post("/admin/api/login", data={"name": "anna", "password": PASSWORD})
    assert login.ok, login.text()
    page = context.new_page()
    errors = list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto("/admin/")
    expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)
    yield Hand(page)
    context.close()
    assert errors == []


def _restore(at: Addresses, folder: Path) -> None:
    """Stop a canary and apply the first document again."""
    headers = {"authorization": f"Bearer {read_token(folder / FILE_NAME)}"}
    with httpx.Client(base_url=f"{at.admin_url}/admin/api", headers=headers) as client:
        client.post("/policy/canary/stop", json={"reason": "the next test"})
        found, first = client.get("/policy").json(), (folder / "policy.yaml").read_text()
        if found["document"] != first:
            change = {"document": first, "reason": "as shipped"}
            client.put("/policy", json=change, headers={"if-match": found["etag"]}).raise_for_status()


def document_of(hand: Hand) -> str:
    """The policy in force."""
    found: str = hand.page.request.get("/admin/api/policy").json()["document"]
    return found


def choose_quality(hand: Hand) -> None:
    """A policy that predicts quality, unless the shipped one has one; its prices are typed from field to field."""
    if hand.page.get_by_label("Quality threshold").first.is_visible():
        return
    hand.choose("Quality, then latency")


def test_the_semantic_cache_is_turned_on_with_an_error_budget(hand: Hand) -> None:
    hand.go("Policy")
    expect(hand.page.locator("#verdict")).to_contain_text("In force")
    hand.choose("Semantic cache")
    hand.fill("Error budget", "0.5")
    hand.press("Apply")
    expect(hand.page.locator("dialog[open]")).to_contain_text("max_error_ratio")
    hand.confirm("Apply")
    expect(hand.page.locator("#message")).to_contain_text("Applied", timeout=PATIENCE_MS)
    assert hand.num_clicks <= MAX_CLICKS
    document = document_of(hand)
    assert "mode: exact_then_semantic" in document
    assert "max_error_ratio: 0.005" in document


def test_the_quality_threshold_is_set_with_what_it_needs(hand: Hand) -> None:
    hand.go("Policy")
    expect(hand.page.locator("#verdict")).to_contain_text("In force")
    choose_quality(hand)
    hand.fill("Quality threshold", "92.5")
    prices = hand.page.locator("[data-prices] input:visible")
    if prices.count():
        for price in ("0.1", "0.4", "0.5", "2"):
            hand.page.keyboard.press("Tab")
            while not hand.page.evaluate("document.activeElement.matches('[data-prices] input')"):
                hand.page.keyboard.press("Tab")
            hand.page.keyboard.type(price)
    hand.press("Apply")
    hand.confirm("Apply")
    expect(hand.page.locator("#message")).to_contain_text("Applied", timeout=PATIENCE_MS)
    assert hand.num_clicks <= MAX_CLICKS
    document = document_of(hand)
    assert "min_quality: 0.925" in document
    assert "model_not_found" in document, "tests that hold stay"


def draft(hand: Hand) -> None:
    """A change that needs no more than one click."""
    hand.go("Policy")
    expect(hand.page.locator("#verdict")).to_contain_text("In force")
    hand.choose("Latency first")


def test_a_draft_is_planned(hand: Hand) -> None:
    draft(hand)
    hand.press("Plan")
    expect(hand.page.locator("#planned")).to_contain_text("Requests of the last day", timeout=PATIENCE_MS)
    expect(hand.page.locator("#planned")).to_be_in_viewport()
    expect(hand.page.locator("#diff")).to_contain_text("→ latency_first")
    assert hand.num_clicks <= MAX_CLICKS


def test_a_draft_shows_what_does_not_hold_for_all_requests(hand: Hand) -> None:
    hand.go("Policy")
    verdict, yaml = hand.page.locator("#verdict"), hand.page.locator("#yaml")
    expect(verdict).to_contain_text("In force")
    text = yaml.input_value()
    yaml.fill(f"{text}\n# a comment\n")
    expect(verdict).to_contain_text("Proven for all requests", timeout=PATIENCE_MS)
    first = text.index("  - id:", text.index("\nroutes:"))
    match = "match: {when: 'request.turns > 9 && request.turns < 9'}"
    deployment = re.findall(r"- (?:id: |\{id: )([a-z0-9-]+)", text[text.index("\ndeployments:") :])[0]
    yaml.fill(f"{text[:first]}  - {{id: never, {match}, select: {{candidates: [{deployment}]}}}}\n{text[first:]}")
    expect(verdict).to_contain_text("Not proven for all requests: 1 violation found", timeout=PATIENCE_MS)
    verdict.locator("summary").click()
    expect(verdict).to_contain_text("route never is never reached")
    expect(verdict).to_contain_text('Request: {"model":"auto"')


def test_a_canary_is_started_shows_its_verdict_and_changes_and_is_promoted(hand: Hand) -> None:
    draft(hand)
    hand.press("Start canary")
    hand.confirm("Start canary")
    card = hand.page.locator("#canary")
    expect(card.locator("dl").first).to_contain_text("running", timeout=PATIENCE_MS)
    expect(card).to_contain_text("Too few requests for a verdict")
    expect(card).to_contain_text("→ latency_first")
    assert hand.num_clicks <= MAX_CLICKS

    hand.page.goto("/admin/")
    hand.num_clicks = 0
    hand.go("Policy")
    hand.press("Promote")
    hand.confirm("Promote")
    expect(hand.page.locator("#message")).to_contain_text("Promoted", timeout=PATIENCE_MS)
    expect(card.locator("dl").first).to_contain_text("promoted")
    assert hand.num_clicks <= MAX_CLICKS
    assert "latency_first" in document_of(hand)


def test_a_change_is_rolled_back(hand: Hand) -> None:
    draft(hand)
    hand.press("Apply")
    hand.confirm("Apply")
    expect(hand.page.locator("#message")).to_contain_text("Applied", timeout=PATIENCE_MS)
    hand.page.goto("/admin/")
    hand.num_clicks = 0
    hand.go("Policy")
    hand.click(hand.page.get_by_role("button", name=re.compile("^Roll back to")).first)
    hand.confirm("Roll back")
    expect(hand.page.locator("#message")).to_contain_text("Rolled back", timeout=PATIENCE_MS)
    assert hand.num_clicks <= MAX_CLICKS
    assert "latency_first" not in document_of(hand)


def test_an_answer_about_an_earlier_draft_does_not_clear_what_a_field_cannot_read(hand: Hand) -> None:
    page = hand.page
    page.goto("/admin/policy")
    expect(page.locator("#verdict")).to_contain_text("In force", timeout=PATIENCE_MS)
    held: list[Route] = []
    page.route("**/admin/api/policy/check", lambda route: held.append(route))
    first_token = page.get_by_label("First token, ms").first
    with page.expect_request("**/admin/api/policy/check"):
        first_token.fill("9000")
    first_token.fill("soon")
    complaint = page.locator("#form").get_by_text("Must be a number")
    expect(complaint).to_be_visible()
    with page.expect_response("**/admin/api/policy/check"):
        held.pop().continue_()
    expect(page.locator("#verdict")).to_contain_text("Valid", timeout=PATIENCE_MS)
    expect(complaint).to_be_visible()
    expect(first_token).to_have_value("soon")


def test_cache_entries_are_listed_and_then_removed(hand: Hand, gateway: tuple[Addresses, Path]) -> None:
    at, folder = gateway
    headers = {"authorization": f"Bearer {read_token(folder / FILE_NAME)}"}
    with httpx.Client(base_url=f"{at.admin_url}/admin/api", headers=headers) as client:
        found = client.get("/policy").json()
        edit = {"document": found["document"], "set": [{"path": "routes[0].cache.mode", "value": "exact"}]}
        change = {"document": client.post("/policy/edit", json=edit).json()["document"], "reason": "something to purge"}
        client.put("/policy", json=change, headers={"if-match": found["etag"]}).raise_for_status()
        body = {"model": "auto", "temperature": 0, "messages": [{"role": "user", "content": "What is purged?"}]}
        httpx.post(f"{at.url}/v1/chat/completions", json=body, timeout=30).raise_for_status()
        (entry,) = client.post("/cache/purge", json={"route": "auto"}).json()["entries"]
    hand.go("Cache")
    hand.fill("Route", "auto")
    hand.press("List entries")
    expect(hand.page.locator("#covered")).to_contain_text(entry["id"], timeout=PATIENCE_MS)
    hand.press("Remove this entry")
    expect(hand.page.locator("#message")).to_contain_text("1 entry removed", timeout=PATIENCE_MS)
    assert hand.num_clicks <= MAX_CLICKS


def test_every_missing_section_is_made_by_the_form_and_a_later_good_edit_clears_an_error(hand: Hand) -> None:
    page = hand.page
    page.goto("/admin/policy")
    expect(page.locator("#verdict")).to_contain_text("In force")
    timeout = page.get_by_label("First token, ms").first
    timeout.fill("400000")
    expect(page.locator("#verdict")).to_contain_text("longer than total_ms")
    expect(page.locator("#apply")).to_be_disabled()
    timeout.fill("soon")
    expect(page.locator("#form")).to_contain_text("Must be a number")
    timeout.fill("9000")
    expect(page.locator("#verdict")).to_contain_text("Valid")
    page.locator("#form summary", has_text="interactive").first.click()
    page.get_by_label("Target: TPOT p95").first.fill("80")
    expect(page.locator("#verdict")).to_contain_text("ttft_p95_ms")
    page.get_by_label("Target: TTFT p95").first.fill("1500")
    expect(page.locator("#verdict")).to_contain_text("Valid")
    page.get_by_label("Target: TPOT p95").first.fill("")
    page.get_by_label("Target: TTFT p95").first.fill("")
    expect(page.locator("#yaml")).not_to_have_value(re.compile("slo"))
    expect(page.locator("#apply")).to_be_enabled()
