"""A gateway process and the key of its upstream: sent where it belongs, shown nowhere, missed by name."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.raw import chat
from tests.gateway.authority import make_authority
from tests.gateway.scripted import ScriptedUpstream

pytestmark = pytest.mark.e2e

SECRET = "hosted-key-0123456789abcdef"
START_TIMEOUT_S = 60.0
_POLICY = """
schema_version: 1
deployments:
  - id: hosted
    url: "{url}"
    model: tiny
    auth: {{bearer_env: HOSTED_KEY}}
    tls: {{ca_file: "{ca_file}"}}
"""


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "HOSTED_KEY"} | more


def command(folder: Path, name: str) -> list[str]:
    listeners = ["--port", "0", "--admin-port", "0", "--runtime-dir", str(folder / "run")]
    return [sys.executable, "-m", "gateway", name, "--policy", str(folder / "policy.yaml"), *listeners]


async def started(lines: asyncio.StreamReader, seen: list[str]) -> dict[str, Any]:
    """The event that states where the gateway listens."""
    while line := (await lines.readline()).decode():
        seen.append(line)
        if line.startswith("{") and (event := json.loads(line)).get("event") == "started":
            listening: dict[str, Any] = event["listening"]
            return listening
    raise AssertionError("".join(seen))


async def test_the_key_reaches_the_https_upstream_and_nothing_else_does(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.certificate("good"))
    async with ScriptedUpstream(tmp_path / "unused.sock", tls=tls) as hosted:
        url = f"https://localhost:{hosted.port}/v1"
        (tmp_path / "policy.yaml").write_text(_POLICY.format(url=url, ca_file=authority.ca_file))
        process = await asyncio.create_subprocess_exec(
            *command(tmp_path, "gateway"),
            env=environment(HOSTED_KEY=SECRET),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        seen: list[str] = []
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                listening = await started(process.stdout, seen)
            async with httpx.AsyncClient(timeout=30.0) as client:
                sent = {"authorization": "Bearer the-clients-own"}
                chat_url = f"http://{listening['public'][0]}/v1/chat/completions"
                answer = await client.post(chat_url, json=chat(model="tiny"), headers=sent)
                metrics = await client.get(f"http://{listening['admin'][0]}/metrics")
        finally:
            process.terminate()
            rest, _ = await process.communicate()
        assert answer.status_code == 200
        requested = hosted.received[0]
        assert requested.line == "POST /v1/chat/completions HTTP/1.1"
        assert requested.headers["authorization"] == f"Bearer {SECRET}"
        assert "the-clients-own" not in str(requested.headers)
        shown = answer.text + str(answer.headers) + metrics.text + "".join(seen) + rest.decode()
        assert SECRET not in shown


@pytest.mark.parametrize("name", ["gateway", "up"])
def test_a_missing_key_ends_the_start_naming_deployment_and_variable(tmp_path: Path, name: str) -> None:
    ca_file = make_authority(tmp_path).ca_file
    (tmp_path / "policy.yaml").write_text(_POLICY.format(url="https://localhost/v1", ca_file=ca_file))
    ran = subprocess.run(
        command(tmp_path, name), env=environment(), capture_output=True, text=True, timeout=START_TIMEOUT_S
    )
    assert ran.returncode == 2
    reported = ran.stdout + ran.stderr
    assert "deployments.hosted.auth.bearer_env: the environment variable HOSTED_KEY is not set" in reported
    assert "Traceback" not in reported
