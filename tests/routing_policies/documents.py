"""Small policies for tests."""

from __future__ import annotations

from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy

TWO_DEPLOYMENTS = """\
schema_version: 1
deployments:
  - {id: small, url: "unix:/run/penstock/small.sock", model: penstock-small}
  - {id: large, url: "http://large.internal:8000", model: penstock-large, limits: {max_in_flight: 4}}
"""


def policy(rest: str = "") -> Policy:
    """Two deployments and whatever else is given."""
    return load_policy(TWO_DEPLOYMENTS + rest, source="policy.yaml")
