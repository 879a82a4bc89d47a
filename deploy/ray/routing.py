"""FewestRequestsRouter: the proxies' choice of a replica, without a preference for their own node."""

from __future__ import annotations

from typing import Any

from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter


class FewestRequestsRouter(PowerOfTwoChoicesRequestRouter):  # type: ignore[misc]  # Ray has no types here
    """Takes the replica with fewer requests of two random ones, on any node.

    Serve's default fills the replicas of the proxy's node first, and prompts wait there beside idle engines.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "prefer_local_node_routing": False})
