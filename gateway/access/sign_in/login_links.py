"""LoginLinks: secrets that sign a browser in once, within minutes."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import Final

from gateway.access.file_token import FileToken
from gateway.access.local_token import LocalToken
from gateway.store.base import Store

SPACE: Final = "login_links"
LINK_S: Final = 600.0
"""Seconds for which an unused link works."""


class LoginLinks:
    """One-time secrets in the store, as hashes. Methods raise StoreUnavailable."""

    def __init__(self, store: Store, token: LocalToken | FileToken) -> None:
        """Set up the links; `token` is the admin token, whose rights a link gives and whose change ends the links."""
        self._store = store
        self._token = token

    async def create(self) -> str:
        """Return a new secret."""
        secret = secrets.token_urlsafe(32)
        await self._store.put(SPACE, _name(secret), self._token.fingerprint.encode(), ttl_s=LINK_S)
        return secret

    async def redeem(self, secret: str) -> bool:
        """Use up a secret; return False for one that is unknown, used or expired."""
        entry = await self._store.get(SPACE, _name(secret))
        if entry is None or not await self._store.delete(SPACE, _name(secret), expect=entry.version):
            return False
        return bool(entry.value) and entry.value.decode() == self._token.fingerprint


def _name(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
