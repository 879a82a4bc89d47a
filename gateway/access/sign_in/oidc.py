"""Oidc: login with a company's identity provider, by OpenID Connect authorization code with PKCE.

The id token is verified, and its issuer and subject must belong to an admin. An account at the provider alone gives no
access.
"""

from __future__ import annotations

import importlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import msgspec
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from gateway.store.base import Store

SPACE: Final = "oidc"
LOGIN_S: Final = 600.0
"""Seconds from the first redirect to the last."""
ALGORITHMS: Final = ["RS256", "ES256", "PS256"]
MAX_PENDING: Final = 1000
"""Unfinished logins begun at this process; beyond it the oldest are dropped, so no client can block others."""
_TIMEOUT_S: Final = 10.0
_LEEWAY_S: Final = 60
# authlib takes httpx2 where that is installed, and httpx otherwise.
_HTTP_ERRORS: Final[tuple[type[Exception], ...]] = tuple(
    importlib.import_module(name).HTTPError for name in ("httpx", "httpx2") if find_spec(name) is not None
)
_NO_PROVIDER: Final[tuple[type[Exception], ...]] = (*_HTTP_ERRORS, ValueError)
_NO_TOKEN: Final[tuple[type[Exception], ...]] = (*_NO_PROVIDER, OAuthError)


class OidcFailed(Exception):
    """Error for a login that failed; the message gives the reason and no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcRules:
    """Settings of the identity provider."""

    issuer: str
    client_id: str
    client_secret: str | None
    redirect_url: str
    """URL of `/admin/api/oidc/callback`, as browsers reach it."""


class _Login(msgspec.Struct, frozen=True):
    nonce: str
    verifier: str
    page: str = ""


class FinishedLogin(NamedTuple):
    """A login that the identity provider confirmed."""

    subject: str
    """The person, as `issuer subject`."""
    page: str
    """Page that the browser requested before the login."""


class Oidc:
    """Logins by one identity provider; methods raise OidcFailed or StoreUnavailable."""

    def __init__(self, rules: OidcRules, store: Store, wall: Callable[[], float]) -> None:
        self._rules = rules
        self._store = store
        self._wall = wall
        self._pending: OrderedDict[str, None] = OrderedDict()

    async def begin(self, page: str) -> tuple[str, str]:
        """Return the URL to redirect the browser to, and the state that its cookie must hold.

        `page` is what `finish` returns with the person.
        """
        state, login = secrets.token_urlsafe(32), _Login(secrets.token_urlsafe(24), secrets.token_urlsafe(48), page)
        async with self._client() as client:
            found = await self._discover(client)
            await self._keep(_name(state), login)
            url, _ = client.create_authorization_url(
                found["authorization_endpoint"], state=state, nonce=login.nonce, code_verifier=login.verifier
            )
        return str(url), state

    async def finish(self, state: str, code: str) -> FinishedLogin:
        """Return the person who logged in; each state is valid once."""
        self._pending.pop(_name(state), None)
        entry = await self._store.get(SPACE, _name(state))
        if entry is None or not await self._store.delete(SPACE, _name(state), expect=entry.version):
            raise OidcFailed("this login has been used, or took too long; begin again")
        login = msgspec.json.decode(entry.value, type=_Login)
        async with self._client() as client:
            found = await self._discover(client)
            try:
                token = await client.fetch_token(
                    found["token_endpoint"], code=code, code_verifier=login.verifier, grant_type="authorization_code"
                )
                keys = await self._fetch(client, found["jwks_uri"])
            except _NO_TOKEN as error:
                raise OidcFailed(f"the provider gave no token: {type(error).__name__}") from error
        claims = self._verified(token.get("id_token"), keys, login.nonce)
        return FinishedLogin(f"{self._rules.issuer} {claims['sub']}", login.page)

    async def _keep(self, name: str, login: _Login) -> None:
        self._pending[name] = None
        while len(self._pending) > MAX_PENDING:
            oldest, _ = self._pending.popitem(last=False)
            await self._store.delete(SPACE, oldest)
        await self._store.put(SPACE, name, msgspec.json.encode(login), ttl_s=LOGIN_S)

    def _verified(self, id_token: object, keys: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        rules = self._rules
        expected = jwt.JWTClaimsRegistry(
            now=int(self._wall()),
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": rules.issuer},
            aud={"essential": True, "value": rules.client_id},
            sub={"essential": True},
            exp={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            token = jwt.decode(str(id_token), KeySet.import_key_set(dict(keys)), algorithms=ALGORITHMS)  # type: ignore[arg-type]
            expected.validate(token.claims)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise OidcFailed(f"the provider's id token is not to be trusted: {type(error).__name__}") from error
        return token.claims

    async def _discover(self, client: AsyncOAuth2Client) -> Mapping[str, Any]:
        issuer = self._rules.issuer
        try:
            found = await self._fetch(client, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        except _NO_PROVIDER as error:
            raise OidcFailed(f"{issuer} does not answer as an identity provider: {type(error).__name__}") from error
        needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if found.get("issuer") != issuer or not all(isinstance(found.get(name), str) for name in needed):
            raise OidcFailed(f"{issuer} does not describe itself as that issuer")
        return found

    async def _fetch(self, client: AsyncOAuth2Client, url: str) -> Mapping[str, Any]:
        reply = await client.request("GET", url, withhold_token=True)
        reply.raise_for_status()
        found: Any = reply.json()
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
        return found

    def _client(self) -> AsyncOAuth2Client:
        rules = self._rules
        return AsyncOAuth2Client(
            rules.client_id,
            rules.client_secret,
            scope="openid",
            redirect_uri=rules.redirect_url,
            code_challenge_method="S256",
            token_endpoint_auth_method="client_secret_basic" if rules.client_secret else "none",
            timeout=_TIMEOUT_S,
        )


def _name(state: str) -> str:
    return sha256(state.encode()).hexdigest()
