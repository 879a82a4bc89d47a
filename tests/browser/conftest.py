"""One headless Chromium for a module, and a gateway for it to check."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from gateway.access.local_token import FILE_NAME, read_token
from tests.e2e.scripted_gateway import Addresses, scripted_gateway

_NAMES = ("chromium", "chromium-browser", "google-chrome")

MORE_POLICY = """
lanes:
  - {id: interactive, weight: 8, slo: {ttft_p95_ms: 20000}}
  - {id: batch, weight: 1}
tenants: [{id: dev}]
routes:
  - {id: faq, match: {models: [auto]}, select: {candidates: [only]}, cache: {mode: exact}}
"""


def find_chromium() -> str:
    """The distribution's browser: what `make test` installs."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    assert path is not None, "chromium is needed here; `make test` installs it on Debian"
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Headless."""
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gateway's runtime directory."""
    return tmp_path_factory.mktemp("site")


@pytest.fixture
def admin_token(folder: Path, site: Addresses) -> str:
    """What an operator finds there."""
    return read_token(folder / FILE_NAME)


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Addresses]:
    """A gateway in front of a scripted upstream."""
    with scripted_gateway(folder, MORE_POLICY, settings={"policy.source": "store"}) as addresses:
        yield addresses
