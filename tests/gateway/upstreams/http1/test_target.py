from __future__ import annotations

import pytest

from gateway.upstreams.http1.target import Target, TargetError


@pytest.mark.parametrize(
    ("url", "scheme", "authority", "base_path", "socket_path"),
    [
        ("http://engine:8000", "http", "engine:8000", "", None),
        ("http://engine:80/", "http", "engine", "", None),
        ("http://engine:443", "http", "engine:443", "", None),
        ("https://api.example.com", "https", "api.example.com", "", None),
        ("https://api.example.com:8443/openai/v1/", "https", "api.example.com:8443", "/openai/v1", None),
        ("http://[::1]:9000/v1", "http", "[::1]:9000", "/v1", None),
        ("unix:/run/penstock/small.sock", "unix", "localhost", "", "/run/penstock/small.sock"),
        ("unix:///run/penstock/small.sock", "unix", "localhost", "", "/run/penstock/small.sock"),
        ("unix:/run/a.sock:/engine", "unix", "localhost", "/engine", "/run/a.sock"),
        ("unix:/run/engine:/v1", "unix", "localhost", "/v1", "/run/engine"),
        ("unix:/my folder/a.sock", "unix", "localhost", "", "/my folder/a.sock"),
        ("unix:/my folder/a.sock:/v1", "unix", "localhost", "/v1", "/my folder/a.sock"),
        ("unix:/für/日本/a.sock", "unix", "localhost", "", "/für/日本/a.sock"),
        ("unix:/50%/%41#?&/a.sock", "unix", "localhost", "", "/50%/%41#?&/a.sock"),
        ('unix:/it\'s "so"/$(x)`y`/a.sock', "unix", "localhost", "", '/it\'s "so"/$(x)`y`/a.sock'),
        ("unix:/two\nlines\t/a.sock", "unix", "localhost", "", "/two\nlines\t/a.sock"),
        ("unix:/a:b/c/a.sock", "unix", "localhost", "", "/a:b/c/a.sock"),
        ("unix:/a:/b/a.sock", "unix", "localhost", "", "/a:/b/a.sock"),
        ("unix:/a:/b/a.sock:/v1", "unix", "localhost", "/v1", "/a:/b/a.sock"),
        ("unix:/no\udcff/a.sock", "unix", "localhost", "", "/no\udcff/a.sock"),
    ],
)
def test_understands_where_an_upstream_listens(
    url: str, scheme: str, authority: str, base_path: str, socket_path: str | None
) -> None:
    target = Target.parse(url)
    assert (target.scheme, target.authority, target.base_path, target.socket_path) == (
        scheme,
        authority,
        base_path,
        socket_path,
    )
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    "url",
    [
        "",
        "engine:8000",
        "ftp://engine",
        "http://",
        "http://engine:0",
        "http://engine:70000",
        "http://engine:http",
        "http://engine/v1?key=1",
        "http://engine/v1#x",
        "http://eng ine",
        "http://engine\r\nx: y",
        "http://ünï.example",
        "unix:relative.sock",
        "unix:/run/",
        "unix:/run/a.sock:engine",
        "unix:/" + "x" * 120,
        "unix:/" + "ü" * 54,
        "unix:/run/a\0.sock",
        "unix:/run/a.sock:/v 1",
        "unix:/run/a.sock:/v1\r\nx: y",
        "unix:/run/a.sock:/é",
    ],
)
def test_refuses_what_is_not_an_upstream(url: str) -> None:
    with pytest.raises(TargetError):
        Target.parse(url)


def test_does_not_repeat_a_password_in_its_error() -> None:
    with pytest.raises(TargetError) as caught:
        Target.parse("https://user:hunter2@api.example.com")
    assert "hunter2" not in str(caught.value)
