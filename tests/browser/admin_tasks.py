"""What the tests of an admin's tasks share: the shipped policy behind scripted models, and clicks that are counted."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from playwright.sync_api import Locator, Page, expect

from gateway.access.local_token import FILE_NAME, read_token
from gateway.app.app import Gateway
from gateway.config.sources import config_of
from tests.gateway.scripted import ScriptedUpstream

MAX_CLICKS = 5
PATIENCE_MS = 60_000.0
VIEWPORTS = ((1440, 900), (390, 844))
_START_S = 60.0


@dataclass(slots=True)
class Admin:
    """A person with a mouse: every click is counted, typing is not."""

    page: Page
    clicks: list[str] = field(default_factory=list)

    def click(self, target: Locator) -> None:
        """Click something that can be seen and reached."""
        self.clicks.append(str(target))
        target.click()

    def click_link(self, name: str) -> None:
        """Click a link of the navigation."""
        self.click(self.page.get_by_role("navigation").get_by_role("link", name=name, exact=True))

    def confirm(self) -> None:
        """Click the button that a dialog is for."""
        self.click(self.page.locator("dialog[open] button[value=ok]"))

    def check(self) -> None:
        """Hold the clicks so far against what a task may take."""
        assert len(self.clicks) <= MAX_CLICKS, self.clicks


@dataclass(frozen=True, slots=True)
class Shipped:
    """A gateway under the shipped policy."""

    url: str
    admin_url: str
    folder: Path

    def call(self, text: str = "hi", model: str = "auto", **headers: str) -> httpx.Response:
        """Send a request as a client on this machine."""
        body = {"model": model, "messages": [{"role": "user", "content": text}]}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=30)

    def login_link(self) -> str:
        """Return the path of a new login link, as `penstock up` prints it."""
        headers = {"authorization": f"Bearer {read_token(self.folder / FILE_NAME)}"}
        made = httpx.post(f"{self.admin_url}/admin/api/login/links", json={}, headers=headers)
        return str(made.raise_for_status().json()["path"])

    def sign_in(self, page: Page) -> Admin:
        """Follow a login link to the overview."""
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{self.admin_url}{self.login_link()}")
        expect(page.locator("#who")).to_contain_text("admin token", timeout=PATIENCE_MS)
        expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)
        return Admin(page)


@contextmanager
def shipped_policy(folder: Path) -> Iterator[Shipped]:
    """Serve the bundled policy with scripted models in place of its engines."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="shipped policy")
    thread.start()
    stop = asyncio.Event()
    started: asyncio.Future[Shipped] = loop.create_future()
    running = asyncio.run_coroutine_threadsafe(_serve(folder, started, stop), loop)
    try:
        yield asyncio.run_coroutine_threadsafe(asyncio.wait_for(started, _START_S), loop).result(_START_S)
    finally:
        loop.call_soon_threadsafe(stop.set)
        running.result(_START_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _serve(folder: Path, started: asyncio.Future[Shipped], stop: asyncio.Event) -> None:
    settings = {"public.listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0", "process.runtime_dir": folder}
    async with ScriptedUpstream(folder / "small.sock"), ScriptedUpstream(folder / "large.sock"):
        gateway = Gateway(config_of(settings), log_stream=io.BytesIO())
        await gateway.start()
        try:
            (public,), (admin,) = gateway.server.addresses["public"], gateway.server.addresses["admin"]
            started.set_result(Shipped(f"http://{public}", f"http://{admin}", folder))
            await stop.wait()
        finally:
            await gateway.stop(drain_timeout_s=0)
