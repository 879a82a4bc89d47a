"""Return paths: the page that a sign-in leads back to."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

START_PAGE: Final = "/admin/"
LOGIN_PAGE: Final = "/admin/login"
_PAGE: Final = re.compile(
    r"/admin/(?!api/|static/|login(?:[/?]|$))[A-Za-z0-9._~!$'()*+,;=:@%/-]*(?:\?[A-Za-z0-9._~!$'()*+,;=:@%/?&-]*)?"
)
_MAX_CHARS: Final = 2000


def return_path(text: str | None) -> str:
    """Return `text` where it is the path and query of a page of ours, else the start page.

    The path begins with `/admin/` and has neither a host, a backslash nor a dot segment, so it cannot lead elsewhere.
    """
    if text is None or len(text) > _MAX_CHARS or _PAGE.fullmatch(text) is None:
        return START_PAGE
    segments = text.partition("?")[0].lower().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/").split("/")
    return START_PAGE if {".", ".."} & set(segments) or "" in segments[1:-1] else text


def login_path(path: str, query: str = "") -> str:
    """Return the address of the login page that leads back to a page."""
    page = return_path(f"{path}?{query}" if query else path)
    return LOGIN_PAGE if page == START_PAGE else f"{LOGIN_PAGE}?next={quote(page, safe='')}"
