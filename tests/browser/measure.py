"""How fast the admin page is: `python -m tests.browser.measure ADMIN_URL PUBLIC_URL`; one JSON line last.

First view: from the start of the navigation to numbers on the page, of a browser that has seen nothing before; beside
it the same browser's time for a page of one word, which is what the machine and the browser take by themselves, and
the processor time of all of the browser's processes for both. Live: from the end of a request to its line on the page.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx
from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import find_chromium

_REPEATS = 5


class View(NamedTuple):
    """What one look took."""

    took_ms: float
    cpu_ms: float


def view(browser: Browser, url: str, awaited: str) -> View:
    """From nothing to the first element that matches `awaited`."""
    context = browser.new_context()
    page = context.new_page()
    cpu_ms, started_at = browsers_cpu_ms(), time.perf_counter()
    page.goto(url, wait_until="commit")
    page.locator(awaited).first.wait_for()
    seen = View((time.perf_counter() - started_at) * 1000, browsers_cpu_ms() - cpu_ms)
    context.close()
    return seen


def browsers_cpu_ms() -> float:
    """Of every process below this one, those that ended left out."""
    stats = {int(path.parent.name): path for path in Path("/proc").glob("[0-9]*/stat")}
    parents, spent = dict[int, int](), dict[int, int]()
    for pid, path in stats.items():
        with suppress(OSError):  # it ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            parents[pid], spent[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    return sum(ticks for pid, ticks in spent.items() if _is_below(pid, parents)) * 1000 / os.sysconf("SC_CLK_TCK")


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


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
        overview, word = (f"{given.admin}/admin/", "#tiles .tile"), (f"{given.admin}/livez", "body")
        view(browser, *overview)  # the browser itself has to wake up
        pairs = [(view(browser, *overview), view(browser, *word)) for _ in range(_REPEATS)]
        lags = [live_ms(browser, given.admin, given.public) for _ in range(_REPEATS)]
        browser.close()
    found = {
        "first_view_ms": [first.took_ms for first, _ in pairs],
        "first_view_cpu_ms": [first.cpu_ms for first, _ in pairs],
        "one_word_ms": [bare.took_ms for _, bare in pairs],
        "one_word_cpu_ms": [bare.cpu_ms for _, bare in pairs],
        "live_ms": lags,
    }
    shown: dict[str, Any] = {
        name: {"p50": round(median(values)), "max": round(max(values))} for name, values in found.items()
    }
    print(json.dumps({**shown, "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
