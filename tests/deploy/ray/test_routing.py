"""The proxies' choice of a replica: every node's replicas are candidates."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("ray", reason="needs the extra: pip install 'penstock[ray]'")

from ray.serve._private.common import DeploymentHandleSource, DeploymentID, RequestMetadata
from ray.serve._private.request_router.common import PendingRequest
from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter
from ray.serve._private.test_utils import FakeRunningReplica

from deploy.ray.routing import FewestRequestsRouter

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def candidates(kind: type[PowerOfTwoChoicesRequestRouter]) -> set[str]:
    """Replicas among which a sender on node `here` chooses first."""

    async def found() -> set[str]:
        router = kind(
            deployment_id=DeploymentID(name="Engine"),
            handle_source=DeploymentHandleSource.REPLICA,
            self_node_id="here",
            prefer_local_node_routing=True,
        )
        router.update_replicas([FakeRunningReplica(one, node_id=one) for one in ("here", "there")])
        request = PendingRequest(args=[], kwargs={}, metadata=RequestMetadata(request_id="1", internal_request_id="1"))
        return {one.unique_id for one in router.apply_locality_routing(request)}

    return asyncio.run(found())


def test_replicas_of_every_node_are_candidates() -> None:
    assert candidates(PowerOfTwoChoicesRequestRouter) == {"here"}, "Serve's own choice"
    assert candidates(FewestRequestsRouter) == {"here", "there"}
