"""The first request of a new installation, as a shell reads it."""

from __future__ import annotations

import shlex

import pytest

from gateway.cli.supervisor.first_request import first_request

PATHS = ["/run/a.sock", "/my folder/a.sock", "/für/a.sock", "/it's/$(x)/`y`/a.sock", '/"/a.sock', "/two\nlines/a.sock"]


@pytest.mark.parametrize("path", PATHS)
def test_a_sockets_path_is_one_argument_whatever_is_in_it(path: str) -> None:
    command = first_request(f"unix:{path}", needs_key=False).replace("\\\n", "")
    words = shlex.split(command)
    assert words[:3] == ["curl", "--unix-socket", path]
    assert words[3] == "http://penstock/v1/chat/completions"
