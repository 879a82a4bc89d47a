"""A page of another origin calls the gateway from a real browser: with a preflight, and as a stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e.scripted_gateway import Addresses, scripted_gateway

CALL = """
async ({url, stream}) => {
  const body = JSON.stringify({model: "tiny", stream, messages: [{role: "user", content: "hi"}]});
  const headers = {"content-type": "application/json", "authorization": "Bearer none", "x-stainless-lang": "js"};
  try {
    const response = await fetch(url + "/v1/chat/completions", {method: "POST", headers, body});
    const text = await response.text();
    return [response.status, response.headers.get("x-request-id") !== null, text];
  } catch (error) { return [0, false, String(error)]; }
}
"""


class _Site(BaseHTTPRequestHandler):
    """One page."""

    def do_GET(self) -> None:  # the name that http.server calls
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>a page of its own</title>")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[str]:
    """The origin of a web site that is not the gateway's."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def called(chromium: Browser, origin: str, at: Addresses, *, stream: bool) -> tuple[int, bool, str]:
    page = chromium.new_page()
    page.goto(f"{origin}/")
    status, has_id, text = page.evaluate(CALL, {"url": at.url, "stream": stream})
    page.close()
    return status, has_id, text


def test_a_listed_page_streams_an_answer(chromium: Browser, origin: str, tmp_path: Path) -> None:
    with scripted_gateway(tmp_path, settings={"public.cors_origins": origin}) as at:
        assert called(chromium, origin, at, stream=False)[:2] == (200, True)
        status, has_id, text = called(chromium, origin, at, stream=True)
    assert (status, has_id) == (200, True)
    assert text.endswith("data: [DONE]\n\n")


def test_another_page_gets_nothing(chromium: Browser, origin: str, tmp_path: Path) -> None:
    with scripted_gateway(tmp_path, settings={"public.cors_origins": "https://chat.example.com"}) as at:
        status, _, text = called(chromium, origin, at, stream=False)
    assert status == 0
    assert "Failed to fetch" in text
