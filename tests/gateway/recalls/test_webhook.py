"""Webhooks: signed so that others' libraries verify them, and sent to nowhere that the settings forbid."""

from __future__ import annotations

import base64
import time

import openai
import pytest

from gateway.app.connections.upstream_clients import open_upstream
from gateway.recalls.notice import ReceivedAnswer, WrongAnswer, notice_of
from gateway.recalls.webhook import RecallWebhook, WebhookSender, signature_of, webhook_of
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from gateway.upstreams.public_addresses import PublicResolver
from gateway.upstreams.reach import ReachError
from gateway.upstreams.resolver import Resolver
from routing_policies.policy.document import Tenant, TenantWebhook
from tests.gateway.recalls.webhook_receiver import WebhookReceiver

SECRET = "a secret of more than sixteen bytes"
NOTICE = notice_of(
    ReceivedAnswer(
        tenant="shop", request_id="req_1", entry_id="req_e", entry_tenant="shop", route="faq", served_at=1000.7
    ),
    WrongAnswer(entry_id="req_e", reason="feedback", at=2000.2, tenant="shop", request_id="req_1", route="faq"),
    7,
)


def sender(resolver: Resolver) -> WebhookSender:
    def connect(target: Target) -> UpstreamClient:
        return open_upstream(target, limits=PoolLimits(), resolver=resolver)

    return WebhookSender(connect, wall=time.time)


def webhook(url: str, secret: bytes = SECRET.encode()) -> RecallWebhook:
    return RecallWebhook(tenant="shop", target=Target.parse(url), path="/hooks/recalls", secret=secret)


@pytest.fixture
def anywhere() -> Resolver:
    return Resolver(clock=time.monotonic)


@pytest.mark.parametrize("secret", [SECRET, "whsec_" + base64.b64encode(bytes(range(32))).decode()])
async def test_openais_sdk_verifies_what_is_sent(anywhere: Resolver, secret: str) -> None:
    async with WebhookReceiver() as receiver:
        tenant = Tenant(id="shop", recall_webhook=TenantWebhook(url=receiver.url, secret_env="S"))
        found = webhook_of(tenant, {"S": secret}, allows_private=True)
        assert found is not None
        sends = sender(anywhere)
        assert await sends.send(found, NOTICE) is None
        await sends.aclose()
    (sent,) = receiver.received
    client = openai.OpenAI(api_key="none")
    client.webhooks.verify_signature(sent.body.decode(), sent.headers, secret=secret)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.verify_signature(sent.body.decode().replace("req_1", "req_2"), sent.headers, secret=secret)
    later = {**sent.headers, "webhook-timestamp": str(int(sent.headers["webhook-timestamp"]) + 1)}
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.verify_signature(sent.body.decode(), later, secret=secret)
    assert sent.path == "/hooks/recalls"
    assert sent.headers["webhook-id"] == sent.event["id"] == NOTICE.id
    assert sent.event == {
        "id": NOTICE.id,
        "object": "event",
        "type": "recall.created",
        "created_at": 2000,
        "data": {
            "id": NOTICE.id,
            "object": "recall",
            "request_id": "req_1",
            "served_at": 1000,
            "entry": "req_e",
            "route": "faq",
            "reason": "feedback",
            "basis": "response",
            "recalled_at": 2000,
        },
    }


def test_the_signature_is_that_of_the_specification() -> None:
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = signature_of(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "the example of its libraries' tests"


@pytest.mark.parametrize("status", ["500 Internal Server Error", "404 Not Found", "307 Temporary Redirect"])
async def test_only_a_status_of_2xx_counts_and_no_redirect_is_followed(anywhere: Resolver, status: str) -> None:
    async with WebhookReceiver() as receiver:
        receiver.status = status
        sends = sender(anywhere)
        assert await sends.send(webhook(receiver.url), NOTICE) == f"status {status[:3]}"
        await sends.aclose()
        assert len(receiver.received) == 1


async def test_a_receiver_that_is_not_there_is_a_failure_with_its_reason(anywhere: Resolver) -> None:
    async with WebhookReceiver() as receiver:
        url = receiver.url
    sends = sender(anywhere)
    failure = await sends.send(webhook(url), NOTICE)
    await sends.aclose()
    assert failure is not None
    assert "127.0.0.1" in failure


async def test_a_name_with_a_private_address_gets_nothing() -> None:
    async with WebhookReceiver() as receiver:
        resolver = PublicResolver(clock=time.monotonic, lookup=lambda host: ["127.0.0.1"])
        sends = sender(resolver)
        failure = await sends.send(webhook(receiver.url.replace("127.0.0.1", "hooks.example.com")), NOTICE)
        await sends.aclose()
        resolver.close()
        assert failure is not None
        assert "private networks" in failure
        assert receiver.received == []


async def test_another_url_of_a_tenant_takes_effect_at_once(anywhere: Resolver) -> None:
    async with WebhookReceiver() as one, WebhookReceiver() as other:
        sends = sender(anywhere)
        for receiver in (one, other, one):
            assert await sends.send(webhook(receiver.url), NOTICE) is None
        await sends.aclose()
        assert (len(one.received), len(other.received)) == (2, 1)


@pytest.mark.parametrize(
    ("url", "environment", "problem"),
    [
        ("http://hooks.example.com/", {"S": SECRET}, "url: expected https://"),
        ("https://localhost/x", {"S": SECRET}, "url: localhost is in a private network"),
        ("https://127.0.0.1/x", {"S": SECRET}, "url: 127.0.0.1 is in a private network"),
        ("https://[::1]/x", {"S": SECRET}, "url: ::1 is in a private network"),
        ("https://169.254.169.254/x", {"S": SECRET}, "is in a private network"),
        ("https://127.1/x", {"S": SECRET}, "is in a private network"),
        ("https://user:pass@hooks.example.com/", {"S": SECRET}, "url: .* may not carry a user"),
        ("https://hooks.example.com/?key=1", {"S": SECRET}, "url: .* no query"),
        ("https://hooks.example.com/", {}, "secret_env: the environment variable S is not set"),
        ("https://hooks.example.com/", {"S": "short"}, "secret_env: the secret in S is shorter than 16"),
        ("https://hooks.example.com/", {"S": "whsec_%"}, "secret_env: S begins with whsec_, and the rest"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused_with_its_place(
    url: str, environment: dict[str, str], problem: str
) -> None:
    tenant = Tenant(id="shop", recall_webhook=TenantWebhook(url=url, secret_env="S"))
    with pytest.raises(ReachError, match=rf"^tenants\.shop\.recall_webhook\..*{problem}"):
        webhook_of(tenant, environment, allows_private=False)


def test_a_tenant_without_a_webhook_has_none() -> None:
    assert webhook_of(Tenant(id="shop"), {}, allows_private=False) is None


def test_a_public_webhook_is_taken() -> None:
    tenant = Tenant(id="shop", recall_webhook=TenantWebhook(url="https://hooks.example.com/x/", secret_env="S"))
    found = webhook_of(tenant, {"S": SECRET}, allows_private=False)
    assert found is not None
    assert found.path == "/x/"
    assert SECRET not in repr(found)
