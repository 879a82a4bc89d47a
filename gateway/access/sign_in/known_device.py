"""Known devices: a browser that has logged in as an admin is counted apart from strangers at its address.

Behind a proxy or a published port all clients share one address, where strangers' attempts would lock out every admin.
A login leaves a cookie that names its admin. The cookie does not replace the password. It is signed with the admin's
password hash, so nothing is stored, and a new password invalidates it.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from gateway.access.accounts import Admin

COOKIE: Final = "penstock_device"
DEVICE_S: Final = 90 * 86_400.0
_MAX_CHARS: Final = 200


def device_cookie(admin: Admin, now: float) -> str | None:
    """Return the cookie of a device that has just logged in, or None for an admin without a password."""
    if admin.password_hash is None:
        return None
    content = f"{secrets.token_urlsafe(16)}.{int(now)}"
    return f"{content}.{_signature(admin.name, admin.password_hash, content)}"


def device_id(cookie: str | None, admin: Admin | None, now: float) -> str | None:
    """Return the device's name where the cookie was made for this admin, else None."""
    if cookie is None or len(cookie) > _MAX_CHARS or not cookie.isascii():
        return None
    if admin is None or admin.password_hash is None:
        return None
    content, _, signature = cookie.rpartition(".")
    name, _, issued_at = content.partition(".")
    if not hmac.compare_digest(signature, _signature(admin.name, admin.password_hash, content)):
        return None
    return name if now - float(issued_at) < DEVICE_S else None


def _signature(name: str, password_hash: str, content: str) -> str:
    return hmac.digest(password_hash.encode(), f"{name}\0{content}".encode(), "sha256").hex()
