"""Other gateways beside this one: how they are found and started, and the bench with those that are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.clients.http_client import Address
from loadtests.peers.gateway_programs import PROGRAMS, find_program, free_port
from loadtests.peers.html_page import figures_of, write_bars
from tests.loadtests.bench import bench

UPSTREAM = Address(port=4321)


def test_a_program_is_looked_for_in_the_given_folders_first(tmp_path: Path) -> None:
    program = tmp_path / "nginx"
    program.write_text("")
    assert find_program("nginx", [tmp_path / "empty", tmp_path]) == str(program)
    assert find_program("no-such-gateway", [tmp_path]) is None


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_gateway_is_given_the_upstream_and_its_own_port(name: str, tmp_path: Path) -> None:
    launch = PROGRAMS[name].launch("/bin/program", UPSTREAM, 8765, tmp_path)
    given = [*launch.argv, *(value for _, value in launch.headers)]
    written = "".join(file.read_text() for file in tmp_path.iterdir())
    assert any("127.0.0.1:4321" in part for part in [*given, written])
    assert any("8765" in part for part in [*given, written])


def test_a_free_port_can_be_listened_on() -> None:
    assert 1024 < free_port() < 65536


def test_figures_are_those_that_every_side_has() -> None:
    results = {"a_b_cost_ms": 1.0, "a_b_only": 2.0, "c_cost_ms": 3.0, "ratio": 4.0}
    assert figures_of(results, ["a_b", "c"]) == ["cost_ms"]


def test_the_page_shows_every_side_and_its_value(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_bars(page, "Gateways <one core>", {"ours_p50_ms": 0.25, "theirs_p50_ms": 1234.5}, ["ours", "theirs"])
    text = page.read_text()
    assert "Gateways &lt;one core&gt;" in text
    assert "<td>0.250</td><td>1,234.500</td>" in text


@pytest.mark.e2e
def test_this_gateway_is_measured_with_every_load(tmp_path: Path) -> None:
    page = tmp_path / "gateways.html"
    loads = ("--seconds", "2", "--repeats", "1", "--connections", "4", "--streams", "5", "--cancels", "5")
    # nginx costs a second where it is installed; the others take half a minute to start.
    record = bench("peer_gateways", "--only", "nginx", *loads, "--html", str(page))
    assert record["failed"] is None
    assert record["penstock_requests_per_s"] > 0
    assert record["penstock_streams_lost"] == record["penstock_never_freed"] == 0
    assert record["penstock_cpu_us_per_chunk"] > 0
    assert "<th>penstock</th>" in page.read_text()
