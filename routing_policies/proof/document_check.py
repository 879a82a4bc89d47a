"""Check of a document before it is in force: its tests, and what it states for all requests."""

from __future__ import annotations

from dataclasses import replace

from routing_policies.check import CheckResult, run_tests
from routing_policies.policy.document import Policy
from routing_policies.policy.nodes import Document
from routing_policies.quality.predictor import Predictors


def check_document(policy: Policy, document: Document, predictors: Predictors | None = None) -> CheckResult:
    """Run every test of the policy, and check what its document states for all requests; see `run_tests`."""
    result = run_tests(policy, document, predictors)
    if not policy.total:
        return result
    from routing_policies.proof.prover import stated_failures  # only a document that needs proofs pays for the search

    return replace(result, failures=(*result.failures, *stated_failures(policy, document)))
