"""Takes the pictures of the README and the docs: `python -m tests.browser.screenshots docs/screenshots`.

Starts the whole product with both bundled models, sends it some minutes' worth of small talk in a minute, changes the
policy twice, and photographs the pages that the docs show; the pictures show what was really served.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from gateway.access.local_token import FILE_NAME, read_token
from tests.browser.conftest import find_chromium

_POLICY = """\
schema_version: 1
# What an answer costs is ours to count: these are prices of a million tokens.
deployments:
  - id: small
    url: "unix:${runtime_dir}/small.sock"
    model: penstock-small
    context_tokens: 4096
    limits: {max_in_flight: 64}
    cost_per_mtok: {prompt: 0.05, completion: 0.2}
  - id: large
    url: "unix:${runtime_dir}/large.sock"
    model: penstock-large
    context_tokens: 4096
    limits: {max_in_flight: 64}
    cost_per_mtok: {prompt: 0.5, completion: 2}
lanes:
  - id: interactive
    weight: 8
    slo: {ttft_p95_ms: 1500, tpot_p95_ms: 100}
    max_queue: 256
    on_overload: [small_model, shed]
  - {id: batch, weight: 1, max_queue: 2000}
tenants:
  - {id: dev}
routes:
  - id: faq
    match: {models: [faq]}
    cache: {mode: exact_then_semantic, max_error_ratio: 0.05, audit_ratio: 0.3, ttl_s: 3600}
    select: {policy: scored, weights: {latency: 3, cost: 1}, candidates: [large, small]}
  - id: auto
    match: {models: [auto]}
    select: {policy: latency_first, candidates: [large, small]}
"""
_TOPICS = ("my invoice", "a parcel", "the warranty", "my password", "an order", "the opening hours", "a refund")
_FORMS = ("Where do I find {}?", "Can you help me with {}?", "How long does {} take?", "I have a question about {}.")
_PAGES = ("overview", "requests")
_START_S = 300.0
_TALK_S = 75.0


@contextmanager
def product(folder: Path) -> Iterator[tuple[str, str]]:
    """`penstock up` in `folder`; its public and its admin URL."""
    policy, log = folder / "policy.yaml", folder / "up.log"
    policy.write_text(_POLICY)
    flags = ("--port", "0", "--admin-port", "0", "--runtime-dir", "run", "--policy", str(policy))
    environment = {"PENSTOCK_POLICY_SOURCE": "store", "PENSTOCK_TELEMETRY_RECORDER_MODE": "features"}
    with log.open("wb") as sink:
        command = ["env", *(f"{key}={value}" for key, value in environment.items()), sys.executable, "-m", "gateway"]
        process = subprocess.Popen([*command, "up", *flags], cwd=folder, stdout=sink, stderr=subprocess.STDOUT)
        try:
            yield _addresses(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _addresses(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        text = log.read_text(errors="replace")
        public = re.search(r"curl (http://[0-9.:]+)/v1", text)
        admin = re.search(r"admin page: (http://[0-9.:]+)/admin/", text)
        if public and admin:
            return public[1], admin[1]
        time.sleep(0.2)
    raise SystemExit(f"the product did not start:\n{log.read_text(errors='replace')[-3000:]}")


def talk(url: str, until: float, seed: int) -> None:
    """One client that calls one thing after another."""
    rng = random.Random(seed)
    with httpx.Client(timeout=60) as client:
        while time.monotonic() < until:
            text = rng.choice(_FORMS).format(rng.choice(_TOPICS))
            if rng.random() < 0.25:
                text = " ".join([text, "Please be brief."] * rng.choice((1, 30, 90)))
            model = rng.choice(("faq", "faq", "auto", "auto", "penstock-mega"))
            body = {"model": model, "stream": True, "max_tokens": rng.choice((16, 48)), "messages": [_message(text)]}
            body["stream_options"] = {"include_usage": True}
            headers = {"x-penstock-priority": rng.choice(("interactive", "interactive", "batch"))}
            client.post(f"{url}/v1/chat/completions", json=body, headers=headers)
            time.sleep(rng.random() / 4)


def _message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def administer(admin: str, folder: Path) -> None:
    """Two revisions and a key, so that history and audit log are not empty."""
    headers = {"authorization": f"Bearer {read_token(folder / 'run' / FILE_NAME)}"}
    with httpx.Client(base_url=admin, headers=headers, timeout=30) as client:
        for old, new, reason in (
            ("ttl_s: 3600", "ttl_s: 7200", "answers about opening hours stay right for longer"),
            ("max_queue: 256", "max_queue: 128", "a shorter queue says no sooner"),
        ):
            found = client.get("/admin/api/policy").json()
            body = {"document": found["document"].replace(old, new), "reason": reason}
            client.put("/admin/api/policy", json=body, headers={"if-match": found["etag"]}).raise_for_status()


def photograph(page: Page, admin: str, name: str, target: Path) -> None:
    """One page as it is once it has settled."""
    page.goto(f"{admin}/admin/{'' if name == 'overview' else name}?{'window=300' if name != 'requests' else ''}")
    page.locator("main").get_by_text("Loading…").first.wait_for(state="detached", timeout=60_000)
    if name == "requests":
        page.locator("#list tbody tr", has_text="completed").first.click()
        page.locator("#detail h3").first.wait_for()
    if name == "overview":
        page.locator("figure .main-svg").last.wait_for(timeout=60_000)
    page.wait_for_timeout(2000)  # let charts be drawn to their end, and the engines' own counters come in
    raw = page.screenshot(full_page=name == "overview")
    path = target / f"{name}-light.png"
    path.write_bytes(raw)
    with Image.open(path) as image:
        image.convert("RGB").quantize(128).save(path, optimize=True)


def main() -> None:
    """Everything, from start to pictures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("target", type=Path)
    target: Path = options.parse_args().target
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, product(Path(name)) as (url, admin), sync_playwright() as playwright:
        until = time.monotonic() + _TALK_S
        clients = [threading.Thread(target=talk, args=(url, until + 60, seed)) for seed in range(4)]
        for client in clients:
            client.start()
        administer(admin, Path(name))
        time.sleep(max(0.0, until - time.monotonic()))
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        page.add_init_script("localStorage.setItem('penstock-theme', 'light')")
        for one in _PAGES:
            photograph(page, admin, one, target)
        browser.close()
        for client in clients:
            client.join()


if __name__ == "__main__":
    main()
