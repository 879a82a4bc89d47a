"""PolicyTest: an example of what a policy must do, with the state and the request that it assumes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from routing_policies.policy.values import (
    Count,
    DocumentPart,
    HeaderName,
    Id,
    Milliseconds,
    ModelName,
    NoRouteCode,
    OperationName,
    Ratio,
    Turns,
)


class GivenDeployment(DocumentPart, frozen=True, kw_only=True):
    """State that a test assumes for one deployment; by default it is ready and idle."""

    ready: bool = True
    in_flight: Annotated[int, Meta(ge=0, le=100_000)] = 0
    forecast_ttft_ms: Milliseconds | None = None
    """Time to first token for the test's request, queues included."""
    tpot_ms: Milliseconds | None = None
    cached_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    """Tokens of the test's prompt in its KV cache."""
    same_session: bool = False
    """True if it answered the conversation's last request."""
    quality: Ratio | None = None
    """Quality of its answer to the test's request.

    None means the prediction from the request's text. Without a text or coefficients for the pair, it means the
    deployment's `quality`.
    """


class TestRequest(DocumentPart, frozen=True, kw_only=True):
    """The request of a test."""

    __test__ = False  # for pytest: not a test class

    model: ModelName = "auto"
    operation: OperationName = "chat"
    tenant: Id | None = None
    text: str = ""
    turns: Turns = 1
    prompt_bytes: Count | None = None
    """Size of the prompt; None means that of `text`."""
    has_tools: bool = False
    has_images: bool = False
    stream: bool = False
    headers: dict[HeaderName, str] = msgspec.field(default_factory=dict)
    lane: Id | None = None
    """Lane whose targets apply; None means the tenant's first, or the policy's."""
    prompt_tokens: Count = 1_000
    output_tokens: Count = 250
    zone: Id | None = None
    """Zone of the gateway."""
    conversation: Annotated[str, Meta(max_length=512)] = ""
    """Identity of the conversation, for the policies that keep one at a candidate."""


class Expectation(DocumentPart, frozen=True, kw_only=True):
    """Expected result of a test; absent members are not compared."""

    route: Id | None = None
    candidates: tuple[Id, ...] | None = None
    """Deployments that may answer, in the order of the route."""
    deployment: Id | None = None
    """Deployment that is chosen."""
    error: NoRouteCode | None = None

    def __post_init__(self) -> None:
        if not self._named():
            raise ValueError("expects nothing; name at least one of route, candidates, deployment, error")
        if self.error is not None and len(self._named()) > 1:
            raise ValueError("a request that ends in an error has no route, candidates or deployment")

    def _named(self) -> list[str]:
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]


class PolicyTest(DocumentPart, frozen=True, kw_only=True):
    """An example of what the policy must do; run by `penstock policy check`."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    request: TestRequest = TestRequest()
    given: dict[Id, GivenDeployment] = msgspec.field(default_factory=dict)
    expect: Expectation
