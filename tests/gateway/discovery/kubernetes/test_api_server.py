"""Where the API server is, and what requests to it carry."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from gateway.discovery.http_json import fetch_json
from gateway.discovery.kubernetes.api_server import ACCOUNT_DIR, KubernetesAccess, KubernetesApi
from gateway.discovery.source import SourceError
from tests.gateway.authority import make_authority
from tests.gateway.discovery.kubernetes.scripted_api import scripted_api

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


def test_a_pod_finds_its_server_and_account() -> None:
    found = KubernetesAccess.of(POD)
    assert found.url == "https://10.96.0.1:6443"
    assert (found.token_file, found.ca_file) == (ACCOUNT_DIR / "token", ACCOUNT_DIR / "ca.crt")
    assert KubernetesAccess.of({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}).url == "https://[fd00::1]:6443"


def test_settings_come_before_the_pod_and_none_is_a_failure() -> None:
    assert KubernetesAccess.of(POD, url="http://localhost:8001/").url == "http://localhost:8001"
    with pytest.raises(SourceError, match="kubernetes_url"):
        KubernetesAccess.of({})


@pytest.mark.parametrize("content", [None, b"", b"two words", b"\xff\xfe"])
def test_a_token_that_cannot_be_used_is_a_failure_that_does_not_show_it(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    api = KubernetesApi(KubernetesAccess(url="http://localhost", token_file=path, ca_file=None))
    with pytest.raises(SourceError, match="token") as caught:
        api.request("/", {}, read_timeout_s=1.0)
    assert "two words" not in str(caught.value)


def test_an_authority_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="authority"):
        KubernetesApi(KubernetesAccess(url="https://localhost", token_file=None, ca_file=tmp_path / "none"))


async def test_the_server_is_verified_by_the_authority_of_the_account(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate, key = authority.certificate("kube-api")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    async with scripted_api(context) as server:
        trusting = KubernetesApi(KubernetesAccess(url=server.url, token_file=None, ca_file=authority.ca_file))
        async with trusting.client as client:
            found = asyncio.create_task(
                fetch_json(client, trusting.request("/x", {}, read_timeout_s=5.0), dict[str, int])
            )
            await (await server.call()).answer({"a": 1})
            assert await found == {"a": 1}
        doubting = KubernetesApi(KubernetesAccess(url=server.url, token_file=None, ca_file=None))
        async with doubting.client as client:
            with pytest.raises(SourceError, match=r"(?i)certificate"):
                await fetch_json(client, doubting.request("/x", {}, read_timeout_s=5.0), dict[str, int])
