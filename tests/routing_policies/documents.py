"""Small policies for tests."""

from __future__ import annotations

from textwrap import dedent

import pytest

from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy
from routing_policies.policy.problems import PolicyError

TWO_DEPLOYMENTS = """\
schema_version: 1
deployments:
  - {id: small, url: "unix:/run/penstock/small.sock", model: penstock-small}
  - {id: large, url: "http://large.internal:8000", model: penstock-large, limits: {max_in_flight: 4}}
"""


def policy(rest: str = "") -> Policy:
    """Two deployments and whatever else is given."""
    return load_policy(TWO_DEPLOYMENTS + rest, source="policy.yaml")


def problems_of(text: str) -> list[str]:
    """Return the lines of the error that a document is refused with."""
    with pytest.raises(PolicyError) as caught:
        load_policy(dedent(text), source="p.yaml")
    return str(caught.value).splitlines()
