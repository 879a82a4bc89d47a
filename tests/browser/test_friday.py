"""An admin's Friday on the page: on three replicas a bound is lowered in the form, checked as it is typed, planned and
tried on a tenth of the traffic; it is worse, and is taken back by itself; the page shows by whom and why."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, async_playwright, expect

from tests.browser.conftest import find_chromium
from tests.e2e.test_admins_friday import answers_nonsense
from tests.gateway.scripted import Wire, chunk
from tests.gateway.stack import PRICED_PAIR, Stack, running
from tests.gateway.store.redis_server import RedisServer

pytestmark = pytest.mark.e2e

PATIENCE_S = 120.0
PATIENCE_MS = 60_000.0
PASSWORD = "correct horse battery"
QUESTION = "What is 12 * 7 + 5?"
"""The small model is as often wrong as right on such: at 0.8 it is given to the large one, at 0.05 it is not."""
POLICY = (
    PRICED_PAIR
    + """\
routes:
  - id: good
    match: {{models: [auto]}}
    select: {{policy: quality_then_latency, min_quality: 0.8, candidates: [small, large]}}
"""
)
_people = itertools.count()


async def answers_well(wire: Wire) -> None:
    """What the large model states."""
    message = {"role": "assistant", "content": "89"}
    body = json.loads(chunk("89", finish="stop").removeprefix(b"data: "))
    body |= {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    await wire.answer(json.dumps(body).encode())


async def call(stack: Stack) -> None:
    """As a product does that shows what was nonsense."""
    body = {
        "model": "auto",
        "messages": [{"role": "user", "content": QUESTION}],
        "user": f"person-{next(_people)}",
    }
    reply = await stack.call(body)
    assert reply.status == 200, reply.body
    if reply.json["choices"][0]["message"]["content"] == "nonsense":
        reported = {"request_id": reply.headers["x-request-id"], "verdict": "wrong"}
        await stack.call(reported, path="/v1/feedback")


@asynccontextmanager
async def traffic(stacks: list[Stack]) -> AsyncIterator[None]:
    """Some clients at each replica, for as long as it lasts."""
    is_over = asyncio.Event()

    async def client(stack: Stack) -> None:
        while not is_over.is_set():
            await call(stack)

    clients = [asyncio.create_task(client(stack)) for stack in stacks for _ in range(2)]
    try:
        yield
    finally:
        is_over.set()
        await asyncio.gather(*clients)


@asynccontextmanager
async def three_replicas(folder: Path, redis: RedisServer) -> AsyncIterator[list[Stack]]:
    """Behind one Redis, each with its admin listener on a port, the small model gone mad."""
    policy = POLICY.format(folder=folder / "one")
    settings = {
        "store.address": redis.url,
        "policy.source": "store",
        "telemetry.recorder.mode": "features",
        "admin.listen": "127.0.0.1:0",
    }
    async with AsyncExitStack() as exits:
        stacks = []
        for name in ("one", "two", "three"):
            (folder / name).mkdir()
            stacks.append(await exits.enter_async_context(running(folder / name, policy=policy, settings=settings)))
        stacks[0].small.otherwise = answers_nonsense
        stacks[0].large.otherwise = answers_well
        yield stacks


def admin_url(stack: Stack) -> str:
    return f"http://{stack.gateway.server.addresses['admin'][0]}"


async def make_editor(stack: Stack) -> None:
    """Anna, by the operator's token; she is the first, and from now on reading needs a login."""
    headers = {"authorization": f"Bearer {stack.admin_token}"}
    async with httpx.AsyncClient(base_url=admin_url(stack), headers=headers) as client:
        for name, role in (("root", "admin"), ("anna", "editor")):
            body = {"name": name, "role": role, "password": PASSWORD}
            assert (await client.post("/admin/api/admins", json=body)).status_code == 201


@pytest.fixture
def redis(tmp_path: Path) -> RedisServer:
    return RedisServer(tmp_path / "redis")


async def test_a_bound_is_lowered_on_the_page_found_to_be_worse_and_taken_back_by_itself(
    tmp_path: Path, redis: RedisServer
) -> None:
    await asyncio.to_thread(redis.start)
    try:
        async with asyncio.timeout(PATIENCE_S), three_replicas(tmp_path, redis) as stacks, async_playwright() as web:
            await make_editor(stacks[0])
            flags = ["--no-sandbox", "--disable-dev-shm-usage"]
            browser = await web.chromium.launch(executable_path=find_chromium(), args=flags)
            page = await browser.new_page(base_url=admin_url(stacks[1]), viewport={"width": 1360, "height": 900})
            page.set_default_timeout(PATIENCE_MS)
            for _ in range(20):
                await asyncio.gather(*(call(stack) for stack in stacks))
            await _log_in(page)
            await _lower_the_bound_and_look_at_it(page)
            async with traffic(stacks):
                await _try_it_on_a_tenth_until_it_is_taken_back(page)
            await _raise_it_and_roll_back_by_hand(page, stacks)
            await _the_audit_log_has_all_of_it(page)
            await browser.close()
    finally:
        redis.kill()


async def _log_in(page: Page) -> None:
    await page.goto("/admin/policy")
    await expect(page).to_have_url(re.compile("/admin/login"))
    await page.get_by_label("Name").fill("anna")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await expect(page.locator("#who")).to_contain_text("anna (editor)", timeout=PATIENCE_MS)
    await page.goto("/admin/policy")
    await expect(page.locator("#verdict")).to_contain_text("In force", timeout=PATIENCE_MS)


async def _lower_the_bound_and_look_at_it(page: Page) -> None:
    """First with a slip of the finger, which is found where it is; nothing is in force yet."""
    field = page.get_by_role("textbox", name="Quality threshold")
    await expect(field).to_have_value("80")
    text = page.locator("#yaml")
    await text.fill((await text.input_value()).replace("min_quality: 0.8", "min_qualty: 0.05"))
    await expect(page.locator("#verdict")).to_contain_text('did you mean "min_quality"', timeout=PATIENCE_MS)
    await page.locator("#reset").click()
    await field.fill("ever so good")
    await field.press("Tab")
    await expect(page.locator("#form")).to_contain_text("Must be a number", timeout=PATIENCE_MS)
    await field.fill("5")
    await field.press("Tab")
    await expect(page.locator("#verdict")).to_contain_text("Valid", timeout=PATIENCE_MS)
    await expect(page.locator("#diff")).to_contain_text("select.min_quality 0.8 → 0.05", timeout=PATIENCE_MS)
    await page.locator("#plan").click()
    planned = page.locator("#planned")
    await expect(planned).to_contain_text("Requests of the last day", timeout=PATIENCE_MS)
    await expect(planned).to_contain_text("20 recorded requests, replayed", timeout=PATIENCE_MS)
    await expect(planned.locator("tr", has_text="Deployments")).to_contain_text("small 100 %")


async def _fill_and_send(page: Page, **fields: str) -> None:
    for name, value in fields.items():
        await page.locator(f"dialog[open] [name={name}]").fill(value)
    await page.locator("dialog[open] button[value=ok]").click()


async def _try_it_on_a_tenth_until_it_is_taken_back(page: Page) -> None:
    await page.locator("#try").click()
    await _fill_and_send(page, percent="10", reason="the small model costs less")
    card = page.locator("#canary")
    await expect(card).to_contain_text("10 % of requests", timeout=PATIENCE_MS)
    await expect(card).to_contain_text("rolled back", timeout=PATIENCE_MS)  # nobody does anything meanwhile
    await expect(page.locator("#message")).to_contain_text("The canary has ended (rolled back)")
    await expect(card).to_contain_text("anna")
    await expect(card).to_contain_text("the small model costs less")
    await expect(card).to_contain_text("by system: wrong")
    await expect(card.locator("tr", has_text="Marked wrong")).to_contain_text("worse")
    await expect(card).to_contain_text("Worse: marked wrong by feedback")
    await expect(card).to_contain_text("select.min_quality 0.8 → 0.05")


async def _raise_it_and_roll_back_by_hand(page: Page, stacks: list[Stack]) -> None:
    history = page.locator("#history")
    await expect(history.locator("tbody tr")).to_have_count(1)  # no revision was made of the canary
    field = page.get_by_role("textbox", name="Quality threshold")
    await field.fill("90")
    await field.press("Tab")
    await expect(page.locator("#verdict")).to_contain_text("Valid", timeout=PATIENCE_MS)
    await page.locator("#apply").click()
    await _fill_and_send(page, reason="ask more of the small model")
    newest = history.locator("tbody tr").first
    await expect(newest).to_contain_text("ask more of the small model", timeout=PATIENCE_MS)
    await expect(newest).to_contain_text("anna")
    await _until_everywhere(stacks, "min_quality: 0.9")
    await page.get_by_role("button", name="Roll back to 1").click()
    await _fill_and_send(page, reason="after all not")
    await expect(newest).to_contain_text("rollback of 1", timeout=PATIENCE_MS)
    await expect(newest).to_contain_text("after all not")
    await _until_everywhere(stacks, "min_quality: 0.8")


async def _until_everywhere(stacks: list[Stack], text: str) -> None:
    for stack in stacks:
        headers = {"authorization": f"Bearer {stack.admin_token}"}
        async with httpx.AsyncClient(base_url=admin_url(stack), headers=headers) as client:
            while text not in (await client.get("/admin/api/policy")).json()["document"]:
                await asyncio.sleep(0.05)


async def _the_audit_log_has_all_of_it(page: Page) -> None:
    await page.goto("/admin/audit")
    await expect(page.locator("#chain")).to_contain_text("verified", timeout=PATIENCE_MS)
    for action, who in (
        ("canary.start", "anna"),
        ("canary.rolled_back", "system"),
        ("policy.apply", "anna"),
        ("policy.rollback", "anna"),
    ):
        await expect(page.locator("#entries tr", has_text=action)).to_contain_text(who, timeout=PATIENCE_MS)
