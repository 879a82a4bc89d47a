"""A plan on the page evaluates a policy that never ran: figures with intervals, their widths, and what is unknown."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.scripted_gateway import scripted_gateway
from tests.routing_policies.off_policy.recording import recorded

pytestmark = pytest.mark.e2e

PATIENCE_MS = 30_000.0
POLICY = """\
schema_version: 1
deployments:
  - {id: small, url: "unix:${runtime_dir}/small.sock", model: tiny, cost_per_mtok: {prompt: 1, completion: 1}}
  - {id: large, url: "unix:${runtime_dir}/large.sock", model: big, cost_per_mtok: {prompt: 10, completion: 10}}
  - {id: spare, url: "unix:${runtime_dir}/large.sock", model: big}
routes:
  - id: main
    match: {models: [chat]}
    select: {candidates: [large, small], explore: {ratio: 0.2}}
"""


@pytest.fixture
def page(chromium: Browser, tmp_path: Path) -> Iterator[Page]:
    """The page of policies at a gateway with 6,000 recorded requests."""
    requests, verdicts = recorded()
    (tmp_path / "recorded").mkdir()
    requests = [msgspec.structs.replace(request, model="chat") for request in requests]
    lines = [msgspec.json.encode(item) for item in (*requests, *verdicts)]
    # A file's name is the time at which it began: one from long ago is deleted.
    name = f"{int(time.time() * 1000):015d}-h.jsonl"
    (tmp_path / "recorded" / name).write_bytes(b"\n".join(lines) + b"\n")
    settings = {"policy.source": "store", "telemetry.recorder.mode": "features"}
    with scripted_gateway(tmp_path, POLICY, settings=settings) as at:
        context = chromium.new_context(base_url=at.admin_url, viewport={"width": 1440, "height": 1000})
        context.set_default_timeout(PATIENCE_MS)
        errors: list[str] = []
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto("/admin/policy")
        expect(page.locator("#verdict")).to_contain_text("In force")
        yield page
        context.close()
        assert errors == []


def plan(page: Page, document: str) -> None:
    """Plan a draft."""
    page.locator("#yaml").fill(document)
    expect(page.locator("#diff")).to_contain_text("select")
    page.locator("#plan").click()
    expect(page.locator("#planned")).to_contain_text("recorded requests, replayed", timeout=PATIENCE_MS)


def test_a_draft_is_evaluated_with_intervals_and_the_width_by_requests(page: Page) -> None:
    plan(page, POLICY.replace("[large, small], explore: {ratio: 0.2}", "[small, large]"))
    planned = page.locator("#planned")
    expect(planned).to_contain_text("Evaluated from 5,900 recorded requests")
    good = planned.get_by_role("group", name="Evaluation").locator("tr", has_text="Good answers")
    expect(good.locator("td").nth(0)).to_contain_text("to")
    expect(good.locator("td").nth(1)).to_contain_text("to")
    expect(good.locator("td").nth(3)).to_have_text(re.compile(r"^[+-]?[\d.]+\s% \([+-]?[\d.]+\s% to [+-]?[\d.]+\s%\)$"))
    expect(planned).not_to_contain_text("cannot tell")
    expect(planned.get_by_role("group", name="Widths").locator("tbody tr")).to_have_count(5)
    expect(planned.locator("#widths .main-svg").first).to_be_visible()


def test_a_draft_of_which_the_records_know_nothing_is_called_unknown(page: Page) -> None:
    plan(page, POLICY.replace("[large, small], explore: {ratio: 0.2}", "[spare]"))
    planned = page.locator("#planned")
    expect(planned.get_by_role("group", name="Evaluation").locator("tr", has_text="Good answers")).to_contain_text(
        "unknown"
    )
    expect(planned).to_contain_text("Good answers: the records cannot tell: no overlap for 100.0%")
    expect(planned).to_contain_text("spare was never chosen for such requests on route main")


def test_a_draft_that_refuses_recorded_requests_warns_of_it_first(page: Page) -> None:
    draft = POLICY.replace("models: [chat]", "models: [other]").replace(
        "explore: {ratio: 0.2}", "explore: {ratio: 0.1}"
    )
    plan(page, draft)
    planned = page.locator("#planned")
    expect(planned.locator("p.warn")).to_contain_text("would be refused: model_not_found (in force: 0)")
    expect(planned).to_contain_text("from main to refused")
