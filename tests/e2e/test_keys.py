"""API keys against a running gateway: what is no key is a 401, and a key reaches what it may and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.e2e.conftest import START_TIMEOUT_S, Stack
from tests.e2e.raw import assert_error, assert_serving, chat, request, send_raw

pytestmark = pytest.mark.e2e

KEY = "sk-penstock-e2e-0123456789abcdef"
OTHER_KEY = "sk-penstock-e2e-fedcba9876543210"


@pytest.fixture(scope="module")
def keyed_url(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A second gateway in front of the same engines, with two tenants."""
    folder = tmp_path_factory.mktemp("keyed")
    sockets = stack.log.parent / "run"
    policy = folder / "policy.yaml"
    policy.write_text(_KEYED.format(run=sockets, one=_digest(KEY), two=_digest(OTHER_KEY)))
    command = [sys.executable, "-m", "gateway", "gateway", "--policy", str(policy), "--port", "0", "--admin-port", "0"]
    command += ["--runtime-dir", str(folder / "run")]
    log = folder / "gateway.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, cwd=folder, stdout=sink, stderr=subprocess.STDOUT, env=dict(os.environ))
        try:
            yield _public_url(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=40) == 0
    assert KEY not in log.read_text()


_KEYED = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{run}/small.sock", model: penstock-small}}
  - {{id: large, url: "unix:{run}/large.sock", model: penstock-large}}
lanes:
  - {{id: interactive, weight: 8, max_queue: 16}}
  - {{id: batch, weight: 1, max_queue: 16}}
tenants:
  - {{id: support, keys: [{{id: k1, sha256: "{one}"}}], models: [auto], lanes: [batch]}}
  - {{id: shop, keys: [{{id: k1, sha256: "{two}"}}]}}
routes:
  - id: auto
    match: {{models: [auto]}}
    select: {{policy: first_available, candidates: [small, large]}}
"""


def _digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def _public_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith("{") and (event := json.loads(line)).get("event") == "started":
                url = f"http://{event['listening']['public'][0]}"
                if send_raw(url, request(method="GET", path="/readyz")).status == 200:
                    return url
        time.sleep(0.05)
    raise AssertionError(f"the gateway did not become ready:\n{log.read_text()[-4000:]}")


BAD_KEYS = {
    "none": None,
    "empty": "",
    "scheme only": "Bearer",
    "no key": "Bearer ",
    "other scheme": f"Basic {KEY}",
    "no space": f"Bearer{KEY}",
    "two keys": f"Bearer {KEY} {OTHER_KEY}",
    "one character more": f"Bearer {KEY}x",
    "one character less": f"Bearer {KEY[:-1]}",
    "same first 20 characters": f"Bearer {KEY[:20]}zzzzzzzzzzzz",
    "the digest": f"Bearer {_digest(KEY)}",
    "SQL": "Bearer ' OR '1'='1' --",
    "Lua": 'Bearer "..redis.call("FLUSHALL").."',
    "10 KB": "Bearer " + "k" * 10_240,
    "JWT with alg none": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJzdXBwb3J0In0.",
    "Latin-1": "Bearer \xe4\xf6\xfc",
}


@pytest.mark.parametrize("value", [pytest.param(value, id=name) for name, value in BAD_KEYS.items()])
def test_a_bad_key_gets_401_and_the_scheme_to_use(keyed_url: str, value: str | None) -> None:
    headers = {} if value is None else {"authorization": value}
    for path, method, body in (("/v1/chat/completions", "POST", chat()), ("/v1/models", "GET", None)):
        reply = send_raw(keyed_url, request(body, path=path, method=method, headers=headers))
        assert_error(reply, 401, "invalid_api_key")
        assert reply.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("value", [f"Bearer {KEY}\0", f"Bearer {KEY}\rX", f"Bearer \x01{KEY}"])
def test_a_key_with_control_characters_gets_400(keyed_url: str, value: str) -> None:
    assert_error(send_raw(keyed_url, request(chat(), headers={"authorization": value})), 400, "invalid_request")


def test_bad_keys_take_equally_long(keyed_url: str) -> None:
    def best_s(value: str) -> float:
        raw = request(method="GET", path="/v1/models", headers={"authorization": value})
        times = []
        for _ in range(60):
            began = time.perf_counter()
            send_raw(keyed_url, raw)
            times.append(time.perf_counter() - began)
        return min(times)

    near, far = best_s(f"Bearer {KEY[:-1]}x"), best_s("Bearer " + "z" * len(KEY))
    assert abs(near - far) < 0.001


def test_a_key_reaches_only_its_models_and_learns_of_no_others(keyed_url: str) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    assert_serving(keyed_url, headers)
    for model in ("penstock-small", "penstock-large"):
        assert_error(send_raw(keyed_url, request(chat(model=model), headers=headers)), 403, "model_not_allowed")
        assert send_raw(keyed_url, request(method="GET", path=f"/v1/models/{model}", headers=headers)).status == 404
    unknown = send_raw(keyed_url, request(chat(model="gpt-\x1b[2J"), headers=headers))
    assert unknown.status in (403, 404)
    assert b"penstock-" not in unknown.body
    assert b"\\u001b" not in unknown.body
    listed = send_raw(keyed_url, request(method="GET", path="/v1/models", headers=headers))
    assert [model["id"] for model in listed.json["data"]] == ["auto"]


def test_a_lane_that_is_not_the_keys_is_not_entered(keyed_url: str) -> None:
    headers = {"authorization": f"Bearer {KEY}", "x-penstock-priority": "interactive"}
    reply = send_raw(keyed_url, request(chat(), headers=headers))
    assert reply.status in (200, 403)  # clamped to what the key may use
