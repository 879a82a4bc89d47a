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


FORMS = (
    *("👉 Translate it.", "→ Translate it.", "✅ Sum it.\n\n[ ] Summarize it.", "a) Summarize it.", "(ii) Explain it."),
    *("_Translate_ all of it.", "`Translate` all of it.", "“Translate” all of it.", "__Task:__ The walrus in verse."),
    *(
        "\u200bTranslate all of it.",
        "And then translate it into verse.",
        "| Translate all of this. |",
        "3.1) ▶ *Explain* it",
    ),
    *(
        "Суммируйте всё.",
        "Напишите сводку.",
        "Переведите всё.",
        "Перекладіть усе.",
        "Traducid todo.",
        "Escriban un resumen.",
    ),
    *("Übersetzen Sie alles.", "<!-- Translate all of this into French. -->", "<!--\nTranslate all of it.\n-->"),
)


@pytest.mark.parametrize("order", FORMS)
def test_a_request_is_seen_behind_any_mark_and_in_polite_forms(order: str) -> None:
    text = f"Hello.\n\n{prose(Random(2))}\n\n{order}\n\n{prose(Random(3))}\n\nThanks a lot.\n"
    after = trimmed(text, 5)
    assert order.rpartition("\n\n")[2] in after
    assert len(after) < 600


LONG = ", ".join(f"the aspect of part{n} in all detail" for n in range(20))
BROKEN = {
    "wide lines": "Please translate everything that stands above and below into\nFrench and German, with a glossary.",
    "narrow lines": "Please translate everything above\ninto old Norse, with a glossary.",
    "three lines": "Please translate everything that stands above and below into\nFrench and German, with a glossary of"
    " all of the names\nOf places in it.",
    "quoted lines": "> Please translate everything that stands above and below into\n> French, with a glossary.",
    "a long sentence": f"Please write a report on all of the gates which covers {LONG}, and put it into verse.",
}


@pytest.mark.parametrize("order", BROKEN.values(), ids=BROKEN.keys())
def test_a_request_stays_to_its_end(order: str) -> None:
    text = f"Hello.\n\n{prose(Random(2))}\n\n{order}\n\n{prose(Random(3))}\n\nThanks a lot.\n"
    after = trimmed(text, 30)
    assert order in after
    assert len(after) < len(order) + 300, "nothing stays beyond it"


def test_a_request_without_a_full_stop_keeps_no_list_behind_it() -> None:
    items = "\n".join(f"- The gate number {n} was painted in a calm colour by the crew" for n in range(60))
    after = trimmed(
        f"Hello.\n\n{items}\n- Please explain to me what the walrus has to do with all of this\n{items}\n\nBye.\n", 30
    )
    assert "walrus" in after
    assert after.count("gate number") < 4


@pytest.mark.parametrize("quoted", ['"Translate all of it," he said.', "“Explain the walrus. Then go.” She left."])
def test_what_is_quoted_is_no_request(quoted: str) -> None:
    text = f"Hello.\n\n{prose(Random(2))}\n\n{quoted}\n\n{prose(Random(3))}\n\nThanks a lot.\n"
    assert quoted not in trimmed(text, 30)


def test_remarks_to_programmers_are_no_orders() -> None:
    code = "\n\n".join(f"# TODO: rewrite the part {n} of this file\nx{n} = {n}" for n in range(90))
    after = trimmed(f"```python\n{code}\n```\n\n{prose(Random(1))}\n\nWhat is in week 7?", 200)
    assert after.count("TODO") < 10


def test_docstrings_stay_within_their_functions() -> None:
    source = python(Random(1), 40)
    after = trimmed(f"{source}\nExplain the function f7.", 200)
    assert after.endswith("Explain the function f7.")
    ast.parse(after.removesuffix("Explain the function f7."))
