"""What a document must pass before it is in force."""

from __future__ import annotations

from routing_policies.loading import load_document
from routing_policies.proof.document_check import check_document

TEXT = """schema_version: 1
deployments: [{{id: a, url: 'http://a', model: m}}]
routes: [{{id: short, match: {{when: 'request.turns < 3'}}, select: {{candidates: [a]}}}}]
total: [{total}]
tests: [{{name: a short chat, request: {{turns: {turns}}}, expect: {{route: short}}}}]
"""


def failures(*, total: str = "", turns: int = 1) -> list[str]:
    policy, document = load_document(TEXT.format(total=total, turns=turns), source="test")
    result = check_document(policy, document)
    assert result.num_tests == 1
    return [failure.path for failure in result.failures]


def test_a_document_passes_its_tests_and_what_it_states() -> None:
    assert failures() == []
    assert failures(turns=5) == ["tests[0].expect.route"]
    assert failures(total="auto", turns=5) == ["tests[0].expect.route", "total[0]"]
