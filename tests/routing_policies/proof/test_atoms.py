"""Listed values of numbers: every interval that conditions cut out has one, with all remainders."""

from __future__ import annotations

import random

import pytest

from routing_policies.conditions.condition import Condition
from routing_policies.proof.atoms import MAX_PROMPT_BYTES, AtomTable, ReadRequest, ValueAtom
from tests.routing_policies.documents import policy

TURNS = (
    "request.turns <= 7", "request.turns * 3 - 2 > 10", "12 - request.turns >= 4", "request.turns / 3 == 2",
    "-request.turns <= -5", "request.turns in [1, 4, 9]", "request.turns % 3 == 1", "request.turns % 2 != 0",
    "(request.turns + 1) * 2 < 9", "request.turns - 4 < 0",
)  # fmt: skip


def table_of(*conditions: str) -> AtomTable:
    routes = "".join(
        f"  - {{id: r{n}, match: {{when: '{when}'}}, select: {{candidates: [small]}}}}\n"
        for n, when in enumerate(conditions)
    )
    return AtomTable(policy(f"routes:\n{routes}"))


def signatures(values: list[object], conditions: tuple[str, ...]) -> set[tuple[bool, ...]]:
    compiled = [Condition(when) for when in conditions]
    return {tuple(ReadRequest({"turns": value}).holds(one) for one in compiled) for value in values}  # type: ignore[dict-item]


@pytest.mark.parametrize("seed", range(12))
def test_listed_numbers_give_every_combination_of_truths_that_any_number_gives(seed: int) -> None:
    conditions = tuple(random.Random(seed).sample(TURNS, 4))
    table = table_of(*conditions)
    assert table.coarse == set()
    assert signatures([*table.values["turns"]], conditions) == signatures([*range(200), 10**6], conditions)


@pytest.mark.parametrize(
    "condition",
    ["request.turns * request.turns > 9", "request.turns % 3 + request.turns > 4", "(request.turns < 3) == true"],
)
def test_what_may_need_other_numbers_is_coarse(condition: str) -> None:
    assert table_of(condition).coarse == {0}


@pytest.mark.parametrize(
    "condition", ["10 / request.turns > 2", "request.turns % 0 == 1", "request.turns * 9999999999 > 5"]
)
def test_a_condition_that_may_fail_is_one_atom(condition: str) -> None:
    table = table_of(f"!({condition}) && request.turns < 5")
    assert len(table.atoms) == 1
    atom = table.atoms[0]
    assert isinstance(atom, ValueAtom)
    whole = Condition(f"!({condition}) && request.turns < 5")
    expected = [ReadRequest({"turns": value}).holds(whole) for value in table.values["turns"]]
    assert [bool(atom.mask >> place & 1) for place in range(len(expected))] == expected
    assert table.coarse == {0}


def test_the_most_usual_values_come_first() -> None:
    table = table_of("request.turns <= 4 && request.prompt_bytes < 50000")
    assert (table.values["turns"][0], table.values["prompt_bytes"][0]) == (1, 1_000)
    assert max(value for value in table.values["prompt_bytes"] if isinstance(value, int)) <= MAX_PROMPT_BYTES


def test_requests_without_a_key_are_a_tenant_only_where_no_key_is_required() -> None:
    assert table_of("request.stream").values["tenant"] == [None]
    assert table_of('tenant == "x"').values["tenant"] == ["dev"]
    keyed = 'tenants: [{id: shop, keys: [{id: k, sha256: "' + "0" * 64 + '"}]}]\n'
    assert AtomTable(policy(keyed)).values["tenant"] == ["shop"]
