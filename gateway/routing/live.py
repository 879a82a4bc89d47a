"""The live state of deployments: what the router looks at and the forwarder uses; it outlives policy revisions."""

from __future__ import annotations

from gateway.admission.limiter import Limiter
from gateway.routing.reach import Reach
from gateway.upstreams.client import UpstreamClient
from routing_policies.document import Deployment


class LiveDeployment:
    """One deployment with its connections, its permits and whether it is ready."""

    __slots__ = (
        "authorization",
        "chat_path",
        "client",
        "context_tokens",
        "id",
        "is_ready",
        "limiter",
        "model",
        "tls",
        "url",
    )

    def __init__(self, deployment: Deployment, reach: Reach, client: UpstreamClient, limiter: Limiter) -> None:
        self.id = deployment.id
        self.model = deployment.model
        self.url = deployment.url
        self.tls = deployment.tls
        self.chat_path = b"/chat/completions" if reach.target.base_path else b"/v1/chat/completions"
        """What follows the URL; a URL with a path is the API's whole base."""
        self.authorization = reach.authorization
        """The header's value, None where the deployment wants none; a secret."""
        self.context_tokens = deployment.context_tokens
        """None: not known."""
        self.client = client
        self.limiter = limiter
        self.is_ready = False
        """As the last probe, or the last failed connect, left it."""

    @property
    def credentials(self) -> tuple[tuple[bytes, bytes], ...]:
        """The header that proves who we are to the deployment, if it wants one; a secret."""
        return () if self.authorization is None else ((b"authorization", self.authorization),)

    @property
    def in_flight(self) -> int:
        """Requests that hold a permit now."""
        return self.limiter.in_flight

    def serves(self, deployment: Deployment) -> bool:
        """Whether this live state can go on under a new revision's entry: same address and model."""
        return (self.url, self.tls, self.model) == (deployment.url, deployment.tls, deployment.model)
