"""The `store` setting, taken apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.store.address import StoreAddress, parse_store


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("embedded:/var/x.sqlite3", StoreAddress(kind="embedded", path=Path("/var/x.sqlite3"))),
        ("redis://cache", StoreAddress(kind="single", hosts=(("cache", 6379),))),
        ("redis://cache:7000/3", StoreAddress(kind="single", hosts=(("cache", 7000),), db=3)),
        ("redis://[::1]:7000", StoreAddress(kind="single", hosts=(("::1", 7000),))),
        ("redis+unix:///run/redis.sock", StoreAddress(kind="single", path=Path("/run/redis.sock"))),
        (
            "rediss://me:p%40ss@cache",
            StoreAddress(kind="single", hosts=(("cache", 6379),), is_tls=True, username="me", password="p@ss"),
        ),
        ("redis://:secret@cache", StoreAddress(kind="single", hosts=(("cache", 6379),), password="secret")),
        (
            "redis+sentinel://a,b:1/main/2",
            StoreAddress(kind="sentinel", hosts=(("a", 26379), ("b", 1)), service="main", db=2),
        ),
        ("redis+cluster://a:1,b:2", StoreAddress(kind="cluster", hosts=(("a", 1), ("b", 2)))),
    ],
)
def test_every_form_is_understood(text: str, expected: StoreAddress) -> None:
    assert parse_store(text) == expected


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "expected embedded:PATH"),
        ("embedded:", "needs a path"),
        ("postgres://x", "expected embedded:PATH"),
        ("redis:cache", "expected embedded:PATH"),
        ("redis://", "host is missing"),
        ("redis+unix://", "host is missing"),
        ("redis://a,b", "several hosts"),
        ("redis://a:0", "host:port"),
        ("redis://a:x", "host:port"),
        ("redis://a/b", "database number"),
        ("redis://a/0?x=1", "nothing may follow"),
        ("redis+sentinel://a", "service"),
        ("redis+cluster://a/1", "no numbered databases"),
    ],
)
def test_what_makes_no_sense_is_refused_by_what_is_wrong(text: str, reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        parse_store(text)


@pytest.mark.parametrize("scheme", ["redis://", "redis+sentinel://", "rediss+cluster://"])
def test_a_password_is_never_shown(scheme: str) -> None:
    address = parse_store(f"{scheme}user:hunter2@host:1" + ("/main" if "sentinel" in scheme else ""))
    assert "hunter2" not in address.shown + repr(address)
    assert address.shown.startswith(f"{scheme}user:***@host:1")
