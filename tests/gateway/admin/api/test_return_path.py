"""Where a sign-in leads: to the requested page, and never elsewhere."""

from __future__ import annotations

import pytest

from gateway.admin.api.return_path import login_path, return_path

GOOD = (
    "/admin/policy",
    "/admin/requests/req_0a1b?outcome=shed",
    "/admin/cache?scope=shop+%2F+faq",
    "/admin/",
)
BAD = (
    *(None, "", "policy", "https://evil.example/admin/", "//evil.example/admin/", "/\\evil.example", "/admin\\@evil"),
    *(
        "/admin//evil.example",
        "/admin/../evil",
        "/admin/%2e%2e/evil",
        "/admin/..%2f..%2fevil",
        "/admin/x\r\nset-cookie: a",
    ),
    *("javascript:alert(1)", "/admin/login?next=/admin/", "/admin/login", "/admin/api/logout", "/admin/static/a.js"),
    *("/adminx", "/admin/<script>", '/admin/"x', "/admin/" + "a" * 3000, "/admin/x#y", "/admin/\u2028"),
)


@pytest.mark.parametrize("page", GOOD)
def test_a_page_of_ours_is_returned_to(page: str) -> None:
    assert return_path(page) == page


@pytest.mark.parametrize("text", BAD)
def test_anything_else_leads_to_the_overview(text: str | None) -> None:
    assert return_path(text) == "/admin/"


def test_the_login_page_leads_back_to_the_requested_page() -> None:
    assert login_path("/admin/load", "window=60") == "/admin/login?next=%2Fadmin%2Fload%3Fwindow%3D60"
    assert login_path("/admin/") == "/admin/login"
    assert login_path("/admin//evil.example") == "/admin/login"
