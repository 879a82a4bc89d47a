"""A gateway whose listeners speak TLS: settings, reload, and the command line's way to it."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app.connections.certificates import read_certificates
from gateway.cli.admin_client import open_client
from gateway.cli.doctor import check_certificates, check_instance
from gateway.cli.supervisor.first_request import FirstRun, first_request
from gateway.cli.supervisor.probe import get
from gateway.config.checks import ConfigError
from gateway.config.settings import GatewayConfig, PublicSettings
from gateway.config.sources import config_of
from tests.gateway.authority import Authority, make_authority
from tests.gateway.stack import Stack, chat, running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


def settings(files: tuple[Path, Path]) -> dict[str, Any]:
    """Both listeners by TCP and TLS."""
    return {
        f"{name}.{key}": value
        for name in ("public", "admin")
        for key, value in (("listen", "127.0.0.1:0"), ("tls_cert", files[0]), ("tls_key", files[1]))
    }


def address(stack: Stack, listener: str) -> str:
    return stack.gateway.server.addresses[listener][0]


async def test_a_client_calls_by_https_and_the_log_names_what_is_in_force(authority: Authority, tmp_path: Path) -> None:
    cert_file, key_file = tmp_path / "tls.crt", tmp_path / "tls.key"
    for source, target in zip(authority.certificate("one"), (cert_file, key_file), strict=True):
        shutil.copy(source, target)
    async with running(tmp_path, settings=settings((cert_file, key_file))) as stack:
        verify = ssl.create_default_context(cafile=str(authority.ca_file))
        url = f"https://localhost:{address(stack, 'public').rpartition(':')[2]}"
        async with httpx.AsyncClient(verify=verify, base_url=url) as client:
            assert (await client.post("/v1/chat/completions", json=chat())).status_code == 200
            async with client.stream("POST", "/v1/chat/completions", json=chat(stream=True)) as response:
                assert (await response.aread()).endswith(b"data: [DONE]\n\n")

        key_file.write_text("broken")
        stack.gateway._certificates.look()
        stack.gateway._certificates.look()
        refused = stack.lines("certificate_refused")
        assert [line["listener"] for line in refused] == ["public", "admin"]
        assert (refused[0]["file"], refused[0]["error"]) == (str(key_file), "has no PEM private key")
        assert (await get(address(stack, "public"), "/livez", tls_cert=cert_file)) is not None

        for source, target in zip(authority.certificate("two"), (cert_file, key_file), strict=True):
            shutil.copy(source, target)
        stack.gateway._certificates.look()
        assert {line["listener"] for line in stack.lines("certificate_in_force")} == {"public", "admin"}
        assert (await get(address(stack, "public"), "/livez", tls_cert=cert_file)) is not None


async def test_the_command_line_reaches_a_gateway_by_tls(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = authority.certificate("cli", dns="gateway.example")
    async with running(tmp_path, settings=settings(files)) as stack:
        public, admin = address(stack, "public"), address(stack, "admin")
        monkeypatch.setenv("PENSTOCK_ADMIN_TLS_CERT", str(files[0]))
        monkeypatch.setenv("PENSTOCK_ADMIN_TLS_KEY", str(files[1]))
        monkeypatch.setenv("PENSTOCK_CONFIG", os.devnull)
        options = argparse.Namespace(url=None, token_file=None, config=None, runtime_dir=tmp_path, admin_listen=admin)

        def overview() -> Any:
            with open_client(options) as client:
                return client.get("overview")

        assert await asyncio.to_thread(overview)
        config = config_of({"public.listen": public, "public.tls_cert": files[0], "public.tls_key": files[1]})
        (found,) = await asyncio.to_thread(lambda: list(check_instance(config)))
        assert (found.level, found.message) == ("ok", f"{public} is ready")
        assert await get(public, "/readyz") is None  # plain HTTP is not answered


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="tls_key: tls_cert and tls_key belong together"):
        PublicSettings(tls_cert=Path("/a.pem"))
    with pytest.raises(ConfigError, match=r"tls_cert: unix:/a\.sock is a Unix socket"):
        PublicSettings(listen="unix:/a.sock", tls_cert=Path("/a.pem"), tls_key=Path("/a.key"))


def test_unusable_files_are_an_error_at_start_and_in_the_doctors_report(tmp_path: Path) -> None:
    config = config_of({"public.tls_cert": tmp_path / "none.pem", "public.tls_key": tmp_path / "none.key"})
    with pytest.raises(ConfigError, match=r"^public\.tls_cert: .*none\.pem cannot be read \(No such file"):
        read_certificates(config)
    (found,) = check_certificates(config)
    assert (found.level, "none.pem cannot be read" in found.message) == ("fail", True)
    assert list(check_certificates(GatewayConfig())) == []


def test_the_first_request_is_by_https() -> None:
    assert "https://127.0.0.1:8080/v1" in first_request("0.0.0.0:8080", FirstRun(needs_key=True), is_tls=True)
