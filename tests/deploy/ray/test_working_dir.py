"""`penstock ray deploy --working-dir`: nodes that have no checkout load one from a zip file."""

from __future__ import annotations

import asyncio
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("ray", reason="needs the extra: pip install 'penstock[ray]'")

import ray
from ray import serve
from ray.cluster_utils import Cluster

from deploy.ray.relaying import REPLICA_HEADER
from gateway.cli.main import main
from gateway.cli.supervisor.probe import ANSWERED, wait_for_server

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]  # warnings of Ray's own

ROOT = Path(__file__).parents[3]
MEMORY_BYTES = 100 * 1024 * 1024
MARKED_HEADER = "x-from-the-zip-file"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A zip file of a checkout in one folder, as `git archive --prefix` writes it; it names one header anew."""
    path = tmp_path / "checkout.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("deploy", "engine"):
            for file in sorted((ROOT / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    content = file.read_bytes()
                    if file.name == "relaying.py":
                        assert REPLICA_HEADER.encode() in content
                        content = content.replace(REPLICA_HEADER.encode(), MARKED_HEADER.encode())
                    archive.writestr(f"checkout/{file.relative_to(ROOT)}", content)
    return path


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two nodes of one CPU each, started where no checkout is; the dashboard's URL and that of the proxy."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.chdir(tmp_path)
    dashboard, port = free_port(), free_port()
    node = {"object_store_memory": MEMORY_BYTES, "num_cpus": 1}
    options = {**node, "include_dashboard": True, "dashboard_host": "127.0.0.1", "dashboard_port": dashboard}
    made = Cluster(initialize_head=True, head_node_args=options)
    try:
        # The dashboard's processes load for long, and a node has 30 s to start.
        assert asyncio.run(wait_for_server(f"http://127.0.0.1:{dashboard}/api/version", 120.0)) == ANSWERED
        made.add_node(**node)
        ray.init(address=made.address, log_to_driver=False)
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        yield f"http://127.0.0.1:{dashboard}", f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()
        made.shutdown()


def test_two_nodes_serve_from_a_zip_file(
    cluster: tuple[str, str], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dashboard, url = cluster
    command = ["ray", "deploy", "--dashboard", dashboard, "--model", "penstock-small", "--wait-s", "240"]
    replicas = ["--min-replicas", "2", "--max-replicas", "2"]
    assert main([*command, *replicas, "--working-dir", checkout.as_uri()]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == "deployed engine\nengine is running\n"
    nodes = set()
    body = {"model": "penstock-small", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as client:
        for _ in range(40):
            answer = client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
            nodes.add(answer.headers[MARKED_HEADER].partition(" ")[2])
            if len(nodes) == 2:
                return
    pytest.fail(f"one node served all: {nodes}")
