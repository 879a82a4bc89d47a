"""How fast the admin page is: `python -m tests.browser.measure ADMIN_URL PUBLIC_URL`; one JSON line last.

First view: from the start of the navigation to numbers on the page, of a browser that has seen nothing before. Live:
from the end of a request to its line on the page.
"""

from __future__ import annotations

import argparse
import json
import time

import httpx
from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import find_chromium

_ROUNDS = 5


def first_view_ms(browser: Browser, admin: str) -> float:
    """Of the overview."""
    context = browser.new_context()
    page = context.new_page()
    started_at = time.perf_counter()
    page.goto(f"{admin}/admin/", wait_until="commit")
    page.locator("#tiles .tile").first.wait_for()
    took_ms = (time.perf_counter() - started_at) * 1000
    context.close()
    return took_ms


def live_ms(browser: Browser, admin: str, public: str) -> float:
    """Of the list of requests."""
    page = browser.new_page()
    page.goto(f"{admin}/admin/requests")
    page.locator("#live", has_text="live").wait_for()
    body = {"model": "nobody-has-this", "messages": [{"role": "user", "content": "hi"}]}
    request_id = httpx.post(f"{public}/v1/chat/completions", json=body).headers["x-request-id"]
    started_at = time.perf_counter()
    page.locator(f'tr[data-key="{request_id}"]').wait_for(state="attached")
    took_ms = (time.perf_counter() - started_at) * 1000
    page.close()
    return took_ms


def main() -> None:
    """Print the medians."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("admin")
    options.add_argument("public")
    given = options.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        first_view_ms(browser, given.admin)  # the browser itself has to wake up
        views = sorted(first_view_ms(browser, given.admin) for _ in range(_ROUNDS))
        lags = sorted(live_ms(browser, given.admin, given.public) for _ in range(_ROUNDS))
        browser.close()
    found = {"first_view_ms": views, "live_ms": lags}
    print(json.dumps({name: {"p50": round(v[_ROUNDS // 2]), "max": round(v[-1])} for name, v in found.items()}))


if __name__ == "__main__":
    main()
