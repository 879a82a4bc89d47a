"""Strict loading of a `Policy` from YAML: all problems at once, each with file, line, dotted path and a suggestion."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice

from routing_policies.conditions.problems import condition_problems
from routing_policies.policy.availability import unavailable
from routing_policies.policy.document import Policy
from routing_policies.policy.nodes import Document, compose
from routing_policies.policy.problems import PolicyError, Problem
from routing_policies.policy.references import reference_problems
from routing_policies.policy.structs import StructReader

MAX_DOCUMENT_BYTES = 1024 * 1024
MAX_FINDINGS = 1000
"""Number of problems reported at once."""


def load_policy(text: str, *, source: str, variables: Mapping[str, str] | None = None) -> Policy:
    """Return the policy in `text`.

    Args:
        text: The YAML document.
        source: Name of the document in errors.
        variables: Values of `${name}` in strings.

    Raises:
        PolicyError: The document is invalid.
    """
    return load_document(text, source=source, variables=variables)[0]


def load_document(text: str, *, source: str, variables: Mapping[str, str] | None = None) -> tuple[Policy, Document]:
    """Return the policy and its node tree, for callers that report positions of their own; raises PolicyError."""
    if len(text.encode()) > MAX_DOCUMENT_BYTES:
        problem = Problem(line=1, column=1, path="", message=f"larger than {MAX_DOCUMENT_BYTES} bytes; split it")
        raise PolicyError(source, [problem])
    document = compose(text, source)
    reader = StructReader(variables or {})
    policy = reader.read(document.root, Policy)
    if reader.problems or policy is None:
        raise PolicyError(source, reader.problems)
    found = chain(reference_problems(policy), condition_problems(policy), unavailable(policy))
    findings = list(islice(found, MAX_FINDINGS))
    if findings:
        raise PolicyError(source, [document.locate(finding) for finding in findings])
    return policy, document
