"""Prover: checks a policy document for all requests, not for examples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from routing_policies.policy.document import Policy
from routing_policies.policy.nodes import Document
from routing_policies.policy.problems import PathProblem, Problem
from routing_policies.proof.contexts import fallback_cycles, short_contexts
from routing_policies.proof.findings import OpenQuestion, Proof, Violation, shown_request
from routing_policies.proof.requests import ProvenPolicy
from routing_policies.proof.routes import unreached_aliases, unreached_routes, unserved_names
from routing_policies.proof.search import MAX_NODES
from routing_policies.proof.tenants import starved_tenants, wide_keys

_Check = Callable[[ProvenPolicy], Iterable[Violation | OpenQuestion]]
_CHECKS: Final[tuple[_Check, ...]] = (
    unserved_names,
    unreached_aliases,
    unreached_routes,
    fallback_cycles,
    short_contexts,
    starved_tenants,
    wide_keys,
)


def prove(policy: Policy, *, max_nodes: int = MAX_NODES) -> Proof:
    """Return what holds for all requests of a policy, and a confirmed request for each violation.

    Args:
        policy: The policy as written, with groups in place of their members.
        max_nodes: Branches after which one search gives up; what it looked for is then an open question.
    """
    return _proof(ProvenPolicy(policy, max_nodes=max_nodes), _CHECKS)


def stated_failures(policy: Policy, document: Document) -> tuple[Problem, ...]:
    """Return the failures of what the document itself states for all requests, its `total`, each at its line."""
    proof = _proof(ProvenPolicy(policy, max_nodes=MAX_NODES), (unserved_names,))
    return located(proof.violations, document)


def located(found: Sequence[Violation | OpenQuestion], document: Document) -> tuple[Problem, ...]:
    """Return findings at their lines, with the requests that show them."""
    return tuple(document.locate(PathProblem(path=one.path, message=_message(one))) for one in found)


def proof_as_json(proof: Proof, document: Document) -> dict[str, Any]:
    """Return a proof for programs, with positions."""
    return {
        "proven": proof.proven,
        "violations": [_as_json(one, document) for one in proof.violations],
        "open_questions": [_as_json(one, document) for one in proof.open_questions],
    }


def _proof(proven: ProvenPolicy, checks: Sequence[_Check]) -> Proof:
    found = [one for check in checks for one in check(proven)]
    return Proof(
        violations=tuple(one for one in found if isinstance(one, Violation)),
        open_questions=tuple(one for one in found if isinstance(one, OpenQuestion)),
        num_searched=proven.search.num_searched,
    )


def _as_json(found: Violation | OpenQuestion, document: Document) -> dict[str, Any]:
    problem = document.locate(PathProblem(path=found.path, message=found.message))
    requests = [shown_request(one) for one in found.requests] if isinstance(found, Violation) else []
    return {
        "kind": found.kind,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": found.message,
        "requests": requests,
    }


def _message(found: Violation | OpenQuestion) -> str:
    if isinstance(found, OpenQuestion) or not found.requests:
        return found.message
    shown = "; ".join(json.dumps(shown_request(one), ensure_ascii=False) for one in found.requests)
    return f"{found.message}. Request: {shown}"
