"""One GET to a local process: an answer, or nothing in time."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from gateway.cli.supervisor.probe import ANSWERED, ProbeResult, can_be_probed, get, reachable, wait_until_up
from gateway.http.certificate import CertificateError


async def answer(folder: Path, raw: bytes) -> ProbeResult | None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        writer.close()

    server = await asyncio.start_unix_server(serve, folder / "s.sock")
    try:
        return await get(f"unix:{folder}/s.sock", "/readyz")
    finally:
        server.close()


@pytest.mark.parametrize(("body", "found"), [(b'{"ready":true}', {"ready": True}), (b"ok", None), (b"", None)])
async def test_a_status_comes_with_its_json_if_it_has_any(tmp_path: Path, body: bytes, found: object) -> None:
    raw = b"HTTP/1.1 503 X\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    assert await answer(tmp_path, raw) == ProbeResult(status=503, body=found)


async def test_who_is_not_there_or_reports_nonsense_gives_nothing(tmp_path: Path) -> None:
    assert await get(f"unix:{tmp_path}/none.sock", "/readyz") is None
    assert await answer(tmp_path, b"\x00\x01\r\n\r\n") is None


async def test_who_does_not_answer_in_time_gives_nothing(tmp_path: Path) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(hang, tmp_path / "s.sock")
    assert await get(f"unix:{tmp_path}/s.sock", "/", timeout_s=0.01) is None
    server.close()


async def test_a_server_is_waited_for_until_it_answers_with_200() -> None:
    heads = [b"503 Service Unavailable", b"503 Service Unavailable", b"200 OK"]
    paths: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
        writer.write(b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % heads.pop(0))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await wait_until_up(f"http://127.0.0.1:{port}/readyz", 60.0, pause_s=0.0) == ANSWERED
    assert paths == [b"/readyz"] * 3


async def test_the_end_of_the_wait_has_the_cause(tmp_path: Path) -> None:
    times = iter([0.0, 1.0, 5.0])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        assert "connect" in await wait_until_up(url, 5.0, clock=lambda: next(times), pause_s=0.0)
    assert list(times) == []
    (tmp_path / "no.pem").write_text("none")
    with pytest.raises(CertificateError):
        await wait_until_up(url, 0.0, tls_cert=tmp_path / "no.pem")


def test_every_interface_is_reached_through_this_machines_own() -> None:
    assert reachable("0.0.0.0:80") == "127.0.0.1:80"
    assert reachable("[::]:80") == "[::1]:80"
    assert reachable("10.0.0.1:80") == "10.0.0.1:80"


@pytest.mark.parametrize(
    "text", ["http://[::1/readyz", "http://127.0.0.1:99999/", "http:///readyz", "unix:/run/x", "x"]
)
def test_what_no_request_can_be_sent_to_is_no_url(text: str) -> None:
    assert not can_be_probed(text)


def test_a_url_may_leave_its_port_out() -> None:
    assert can_be_probed("https://gateway.internal/readyz")
    assert can_be_probed("http://[::1]:8080/readyz")
