"""Webhooks of recall notices: where they go, how they are signed, and one attempt to send one.

Signatures follow the Standard Webhooks specification (https://www.standardwebhooks.com), so that its libraries and
OpenAI's SDKs verify them: `webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over `ID.TIMESTAMP.BODY`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from gateway.recalls.notice import Recall, RecallNotice, shown_notice
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.upstreams.http1.target import Target, TargetError
from gateway.upstreams.public_addresses import is_public_address
from gateway.upstreams.reach import ReachError
from routing_policies.policy.document import Tenant

ATTEMPT_S: Final = 5.0
"""Longest time for one attempt, from the name lookup to the status of the answer."""
MIN_SECRET_BYTES: Final = 16
_TIMEOUTS: Final = ExchangeTimeouts(connect_s=3.0, total_s=ATTEMPT_S)
_BASE64_PREFIX: Final = "whsec_"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallWebhook:
    """The webhook of one tenant."""

    tenant: str
    target: Target
    path: str
    """Path of the URL, as written."""
    secret: bytes = field(repr=False)


class RecallEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a webhook."""

    id: str
    """The id of the notice, the same in every attempt."""
    object: Literal["event"] = "event"
    type: Literal["recall.created"] = "recall.created"
    created_at: int
    data: Recall


def webhook_of(tenant: Tenant, environment: Mapping[str, str], *, allows_private: bool) -> RecallWebhook | None:
    """Return the webhook of a tenant; None where the policy names none.

    Raises:
        ReachError: The URL or the secret cannot be used; the message names the place, never the secret.
    """
    rule, place = tenant.recall_webhook, f"tenants.{tenant.id}.recall_webhook"
    if rule is None:
        return None
    try:
        target = Target.parse(rule.url)
    except TargetError as error:
        raise ReachError(f"{place}.url: {error}") from error
    if target.scheme not in ("https", "http") or (target.scheme == "http" and not allows_private):
        raise ReachError(
            f"{place}.url: expected https://host/path; plain HTTP takes allow_private_webhooks = true in "
            "[cache.recalls] of the settings"
        )
    if not allows_private and not _may_be_public(target.host):
        raise ReachError(
            f"{place}.url: {target.host} is in a private network; set allow_private_webhooks = true in "
            "[cache.recalls] of the settings to allow that"
        )
    secret = _secret(f"{place}.secret_env", rule.secret_env, environment)
    return RecallWebhook(tenant=tenant.id, target=target, path=urlsplit(rule.url).path or "/", secret=secret)


def _may_be_public(host: str) -> bool:
    """Return whether a host may have a public address; a name is looked up when the webhook is sent."""
    if ":" in host or host.rpartition(".")[2].isdigit():
        return is_public_address(host)
    return host.lower().rstrip(".") != "localhost"


def _secret(place: str, name: str, environment: Mapping[str, str]) -> bytes:
    text = environment.get(name, "").strip()
    if not text:
        raise ReachError(
            f"{place}: the environment variable {name} is not set; set it for the gateway's process and start it again"
        )
    try:
        encoded = text.removeprefix(_BASE64_PREFIX)
        secret = text.encode() if encoded == text else base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ReachError(f"{place}: {name} begins with {_BASE64_PREFIX}, and the rest is not base64") from None
    if len(secret) < MIN_SECRET_BYTES:
        raise ReachError(f"{place}: the secret in {name} is shorter than {MIN_SECRET_BYTES} bytes; use a random one")
    return secret


def signature_of(secret: bytes, webhook_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`."""
    signed = b"%b.%d.%b" % (webhook_id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()


def webhook_request(webhook: RecallWebhook, notice: RecallNotice, timestamp: int) -> UpstreamRequest:
    """Return the signed request that carries a notice; `timestamp` is the attempt's, in seconds since 1970."""
    event = RecallEvent(id=notice.id, created_at=int(notice.recalled_at), data=shown_notice(notice))
    body = msgspec.json.encode(event)
    headers = (
        (b"content-type", b"application/json"),
        (b"user-agent", b"penstock"),
        (b"webhook-id", notice.id.encode()),
        (b"webhook-timestamp", b"%d" % timestamp),
        (b"webhook-signature", signature_of(webhook.secret, notice.id, timestamp, body).encode()),
    )
    path = webhook.path.encode()
    return UpstreamRequest(method=b"POST", path=path, headers=headers, body=body, is_at_root=True)


class WebhookSender:
    """Sender of webhooks, with one client for each. Redirects are not followed."""

    def __init__(self, connect: Callable[[Target], UpstreamClient], *, wall: Callable[[], float]) -> None:
        """Make a sender; `connect` makes the client of a target."""
        self._connect = connect
        self._wall = wall
        self._clients: dict[str, tuple[Target, UpstreamClient]] = {}

    async def send(self, webhook: RecallWebhook, notice: RecallNotice) -> str | None:
        """Send a notice; return None when the receiver took it (a status of 2xx), else the failure in a few words."""
        client = await self._client_of(webhook)
        try:
            response = await client.send(webhook_request(webhook, notice, int(self._wall())), _TIMEOUTS)
            status = response.status
            response.close()
        except UpstreamError as error:
            return str(error)
        return None if 200 <= status < 300 else f"status {status}"

    async def aclose(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for _, client in clients.values():
            await client.aclose()

    async def _client_of(self, webhook: RecallWebhook) -> UpstreamClient:
        known = self._clients.get(webhook.tenant)
        if known is not None and known[0] == webhook.target:
            return known[1]
        client = self._connect(webhook.target)
        self._clients[webhook.tenant] = webhook.target, client
        if known is not None:
            await known[1].aclose()
        return client
