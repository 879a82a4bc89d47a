"""A listener with TLS: what it refuses at start, and which certificate is in force when the files change."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.http.certificate import CertificateError, ServerCertificate, pinning_context
from gateway.http.server import Listener, Server
from tests.gateway.authority import Authority, make_authority
from tests.gateway.http.conftest import RecordingApp


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


def copied(folder: Path, files: tuple[Path, Path]) -> tuple[Path, Path]:
    """Certificate and key under names of their own."""
    targets = folder / "tls.crt", folder / "tls.key"
    for source, target in zip(files, targets, strict=True):
        fresh = target.with_suffix(".new")
        shutil.copy(source, fresh)
        os.replace(fresh, target)
    return targets


@asynccontextmanager
async def serving(certificate: ServerCertificate) -> AsyncIterator[int]:
    app = RecordingApp()
    listener = Listener(name="public", address="127.0.0.1:0", app=app, certificate=certificate)
    server = Server([listener], new_request_id=lambda: "req_1")
    await server.start()
    try:
        yield int(server.addresses["public"][0].rpartition(":")[2])
    finally:
        await server.close()


async def name_of_server(port: int, *, name: str | None, context: ssl.SSLContext) -> str:
    """The common name in the certificate of the server, which answers a request over the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    writer.write(b"GET /good HTTP/1.1\r\nhost: edge.test\r\nconnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 5)
    assert answer.startswith(b"HTTP/1.1 200 ")
    found = writer.get_extra_info("peercert")
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() in (None, "http/1.1")
    writer.close()
    return str(found["subject"][0][0][1])


def trusting(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def test_a_client_reaches_the_application_by_tls(authority: Authority) -> None:
    async with serving(ServerCertificate(*authority.certificate("good"))) as port:
        assert await name_of_server(port, name="localhost", context=trusting(authority)) == "localhost"


async def test_plain_http_on_the_port_is_closed_and_the_next_client_is_served(authority: Authority) -> None:
    async with serving(ServerCertificate(*authority.certificate("good"))) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /good HTTP/1.1\r\nhost: edge.test\r\n\r\n")
        assert not (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 200")
        writer.close()
        assert await name_of_server(port, name="localhost", context=trusting(authority)) == "localhost"


async def test_changed_files_are_in_force_for_new_connections_and_broken_ones_are_not(
    authority: Authority, tmp_path: Path
) -> None:
    files = copied(tmp_path, authority.certificate("first", dns="first.example"))
    certificate = ServerCertificate(*files)
    assert certificate.reload() is False
    nameless = ssl.create_default_context(cafile=str(authority.ca_file))
    nameless.check_hostname = False
    async with serving(certificate) as port:
        assert await name_of_server(port, name="first.example", context=trusting(authority)) == "first.example"

        copied(tmp_path, authority.certificate("second", dns="second.example"))
        assert certificate.reload() is True
        assert await name_of_server(port, name="second.example", context=trusting(authority)) == "second.example"
        assert await name_of_server(port, name="", context=nameless) == "second.example"

        files[1].write_text("no key at all")
        with pytest.raises(CertificateError, match=r"tls_key: .* has no PEM private key"):
            certificate.reload()
        assert certificate.reload() is False  # raised once for each state
        assert await name_of_server(port, name="second.example", context=trusting(authority)) == "second.example"

        copied(tmp_path, authority.certificate("third", dns="third.example"))
        assert certificate.reload() is True
        assert await name_of_server(port, name="third.example", context=trusting(authority)) == "third.example"


def test_each_fault_of_the_files_is_named(authority: Authority, tmp_path: Path) -> None:
    cert_file, key_file = authority.certificate("good")
    _, other_key = authority.certificate("other")
    locked, empty, pipe = tmp_path / "locked.key", tmp_path / "empty.pem", tmp_path / "pipe"
    empty.write_text("")
    os.mkfifo(pipe)
    subprocess.run(
        ["openssl", "ec", "-in", str(key_file), "-aes128", "-passout", "pass:secret", "-out", str(locked)],
        check=True,
        capture_output=True,
    )
    faults = {
        "tls_cert: .*none.pem cannot be read": (tmp_path / "none.pem", key_file),
        "tls_key: .*none.key cannot be read": (cert_file, tmp_path / "none.key"),
        "tls_cert: .*empty.pem has no PEM certificate": (empty, key_file),
        "tls_key: .*good.pem has no PEM private key": (cert_file, cert_file),
        "tls_key: .*other.key is not the key of the first certificate": (cert_file, other_key),
        "tls_key: .*locked.key is encrypted": (cert_file, locked),
        "tls_cert: .*pipe cannot be read": (pipe, key_file),
    }
    for message, files in faults.items():
        with pytest.raises(CertificateError, match=message):
            ServerCertificate(*files)


async def test_a_pinned_certificate_is_accepted_by_any_name_and_no_other_is(authority: Authority) -> None:
    files, others = authority.certificate("good", dns="public.example"), authority.certificate("other")
    async with serving(ServerCertificate(*files)) as port:
        assert await name_of_server(port, name="", context=pinning_context(files[0])) == "public.example"
        with pytest.raises(ssl.SSLCertVerificationError):
            await name_of_server(port, name="", context=pinning_context(others[0]))
    with pytest.raises(CertificateError, match="cannot be read"):
        pinning_context(files[0].with_name("none.pem"))
