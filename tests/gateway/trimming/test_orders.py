"""Every sentence of the last user message that asks or instructs stays, wherever it stands."""

from __future__ import annotations

import ast
import json
from random import Random

import pytest

from gateway.chat.request import ChatRequestParser
from gateway.trimming.trimmer import PolicyTrimmer
from routing_policies.policy.document import Trim
from tests.gateway.trimming.order_cases import PLACES, order_cases, prose, python

NUM_CASES = 10 * len(PLACES)


def trimmed(text: str, tokens: int) -> str:
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": text}]}).encode()
    rule = Trim(budget_tokens=tokens, strategies=("drop_old_turns", "extract_passages"))
    found: str = PolicyTrimmer().trim(ChatRequestParser().parse(body), rule).request.document["messages"][0]["content"]
    return found


@pytest.mark.parametrize("tokens", [60, 200, 500])
def test_no_order_is_lost(tokens: int) -> None:
    cases = order_cases(seed=77, count=NUM_CASES)
    after = {case: trimmed(case.text, tokens) for case in cases}
    assert [case.kind for case, text in after.items() if case.order not in text] == []
    assert sum(map(len, after.values())) < sum(len(case.text) for case in cases) * 0.8, "the rest is cut"


def test_remarks_to_programmers_are_no_orders() -> None:
    code = "\n\n".join(f"# TODO: rewrite the part {n} of this file\nx{n} = {n}" for n in range(90))
    after = trimmed(f"```python\n{code}\n```\n\n{prose(Random(1))}\n\nWhat is in week 7?", 200)
    assert after.count("TODO") < 10


def test_docstrings_stay_within_their_functions() -> None:
    source = python(Random(1), 40)
    after = trimmed(f"{source}\nExplain the function f7.", 200)
    assert after.endswith("Explain the function f7.")
    ast.parse(after.removesuffix("Explain the function f7."))
