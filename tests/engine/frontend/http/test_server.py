"""Where the engine listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from engine.config import EngineConfigError
from engine.frontend.http.server import bind


def test_listens_on_tcp_with_a_port_the_system_chooses() -> None:
    with bind("127.0.0.1:0") as listener:
        assert listener.getsockname()[1] > 0
    with bind("[::1]:0") as listener:
        assert listener.family == socket.AF_INET6


@pytest.mark.parametrize("listen", ["nonsense", "host:port", "256.1.1.1:1", "unix:/nowhere/at/all.sock"])
def test_an_address_that_cannot_be_bound_is_a_configuration_error(listen: str) -> None:
    with pytest.raises(EngineConfigError, match="listen"):
        bind(listen)


def test_a_socket_left_by_a_killed_process_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    bind(f"unix:{path}").close()
    with bind(f"unix:{path}"), pytest.raises(EngineConfigError, match="another process listens there"):
        bind(f"unix:{path}")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(EngineConfigError):
        bind(f"unix:{tmp_path / 'file'}")
    assert (tmp_path / "file").read_text() == "precious"
