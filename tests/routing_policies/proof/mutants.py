"""Seeded policies without violations, their mutants, and a brute force over requests that checks both.

`python -m tests.routing_policies.proof.mutants --seeds 300` runs the whole count.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any, Final

import msgspec
import yaml

from routing_policies.check import request_view, served_route
from routing_policies.conditions.condition import Condition
from routing_policies.loading import load_policy
from routing_policies.matching import NoRoute, RouteTable
from routing_policies.policy.document import Policy
from routing_policies.policy.policy_tests import TestRequest
from routing_policies.policy.problems import PolicyError
from routing_policies.proof.findings import Proof
from routing_policies.proof.prover import prove

Json = dict[str, Any]
ALIASES: Final = ("auto", "chat", "code")
TENANTS: Final = ("alpha", "beta", "gamma")
TURNS: Final = tuple(range(8))
NUM_BYTES: Final = (60, 99, 100, 101, 150, 1_999, 2_000, 2_001, 600_000)
TEXTS: Final = ("ping", *map("".join, product(("", "tr"), ("", "sql"), ("", "x", "xxxxxxxx"), ("", "?"))))
PLANS: Final = ("", "pro", "free", "other")
MAX_BYTES_OF_4K: Final = 4096 * 128
KEYS: Final = ("", "Bearer one", "Bearer two")

ATOMS: Final[dict[str, tuple[str, ...]]] = {
    "turns": (
        "request.turns <= 2", "request.turns > 3", "request.turns == 4", "request.turns * 2 + 1 > 7",
        "request.turns in [1, 5]", "3 < request.turns", "request.turns % 2 == 0", "request.turns / 2 == 1",
        "request.turns != 2", "-request.turns < -4", "request.turns <= 5",
    ),
    "prompt_bytes": ("request.prompt_bytes < 100", "request.prompt_bytes >= 2000", "request.prompt_bytes - 1 < 2000"),
    "text": (
        'request.text.contains("sql")', 'request.text.startsWith("tr")', 'request.text.endsWith("?")',
        'request.text == "ping"', 'request.text in ["ping", "x"]', "size(request.text) > 6",
        'request.text.matches("^tr.*sql")', "request.text.size() <= 3", 'request.text != "ping"',
    ),
    "has_tools": ("request.has_tools", "request.has_tools == false"),
    "stream": ("request.stream",),
    "tenant": ('tenant == "alpha"', 'tenant in ["alpha", "beta"]', 'tenant.startsWith("g")'),
    "headers": ('headers["x-plan"] == "pro"', 'headers["x-plan"] in ["pro", "free"]', 'headers["x-plan"] != ""'),
    "both": (
        "request.has_tools == request.stream", 'tenant == headers["x-plan"]',
        "request.turns * 100 < request.prompt_bytes",
    ),
}  # fmt: skip


@dataclass(slots=True)
class Maker:
    """Maker of one seed's document."""

    rng: random.Random
    variables: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, seed: int, mutation: Mutation, variables: tuple[str, ...]) -> Maker:
        """Return the maker of one mutant."""
        return cls(random.Random(f"{seed} {mutation.__name__}"), [*variables])

    def document(self) -> Json:
        """Return a document that may still have violations."""
        rng = self.rng
        self.variables = rng.sample([name for name in ATOMS if name != "both"], 2)
        if rng.random() < 0.15:
            self.variables.append("both")
        aliases = list(ALIASES[: rng.randint(1, 3)])
        deployments = [
            {
                "id": f"d{n}",
                "url": f"http://d{n}",
                "model": f"model-{n}",
                "context_tokens": 4096,
                "limits": {"max_in_flight": 4},
            }
            for n in range(3)
        ]
        routes = [route for alias in aliases for route in self._routes(alias)]
        return {
            "schema_version": 1,
            "deployments": deployments,
            "lanes": [{"id": "fast", "weight": 8}, {"id": "slow", "weight": 1, "max_queue": 10}],
            "tenants": [
                {
                    "id": name,
                    "models": sorted({*aliases, "model-0"}),
                    "lanes": ["fast", "slow"],
                    "keys": [{"id": "k", "sha256": f"{n}" * 64}],
                }
                for n, name in enumerate(TENANTS, 1)
            ],
            "routes": routes,
            "total": aliases,
        }

    def condition(self) -> str:
        """Return a condition of one to three atoms."""
        atoms = [self.rng.choice(ATOMS[self.rng.choice(self.variables)]) for _ in range(self.rng.randint(1, 3))]
        if len(atoms) == 3 and self.rng.random() < 0.3:
            return f"{atoms[0]} ? {atoms[1]} : !({atoms[2]})"
        text = atoms[0]
        for atom in atoms[1:]:
            text = f"({text}) {self.rng.choice(('&&', '||'))} {self.rng.choice((atom, f'!({atom})'))}"
        return text

    def _routes(self, alias: str) -> Iterator[Json]:
        names = ["d0", "d1", "d2"]
        for n in range(self.rng.randint(1, 3)):
            match: Json = {"models": [alias], "when": self.condition()}
            if self.rng.random() < 0.25:
                match["tenants"] = self.rng.sample(TENANTS, self.rng.randint(1, 2))
            if self.rng.random() < 0.2:
                match["headers"] = {"x-plan": self.rng.choice(("pro", "free"))}
            yield {"id": f"{alias}-{n}", "match": match, "select": {"candidates": self.rng.sample(names, 2)}}
        yield {"id": f"{alias}-rest", "match": {"models": [alias]}, "select": {"candidates": self.rng.sample(names, 2)}}


Point = tuple[int, int, str, bool, bool, str]
"""Turns, bytes of the prompt, text, tools, stream and plan of a request."""


def grid(policy: Policy) -> Iterator[tuple[Point, tuple[str, ...]]]:
    """Yield points over all that the policy's conditions read, as real requests can have it, each with the keys to try.

    A point is left out where every condition is as true, for each tenant and key, as at an earlier one with the same
    tools, stream and plan, and a prompt that deployments hold as well: its requests take the same routes.
    """
    read = " ".join(route.match.when or "" for route in policy.routes)
    by_header = 'headers["x-plan"]' in read or any(route.match.headers for route in policy.routes)
    values = (
        TURNS if "request.turns" in read else (1,),
        NUM_BYTES if "request.prompt_bytes" in read else (150,),
        TEXTS if "request.text" in read else ("",),
        (False, True) if "has_tools" in read else (False,),
        (False, True) if "request.stream" in read else (False,),
        (*PLANS, *(TENANTS if "tenant == headers" in read else ())) if by_header else ("",),
    )
    keys = KEYS if "authorization" in read else ("",)
    served = RouteTable(policy).conditions
    conditions = [_Truth(route.match.when, served[route.id]) for route in policy.routes if route.match.when]
    callers = [(tenant.id, key) for tenant in policy.tenants for key in keys]
    seen: set[tuple[object, ...]] = set()
    for point in product(*values):
        turns, num_bytes, text, *shape = point
        if (turns == 0 and text) or len(text) > num_bytes:
            continue
        truths = tuple(condition.of(point, *caller) for condition in conditions for caller in callers)
        kind = (*shape, num_bytes <= MAX_BYTES_OF_4K, truths)
        if kind not in seen:
            seen.add(kind)
            yield point, keys


class _Truth:
    """Truth of one condition by the values that it reads, which the code that serves has computed once each."""

    def __init__(self, when: str, condition: Condition) -> None:
        names = ("request.turns", "request.prompt_bytes", "request.text", "has_tools", "request.stream", "headers")
        self._read = [place for place, name in enumerate(names) if name in when]
        self._by_tenant, self._by_key = "tenant" in when, "authorization" in when
        self._condition = condition
        self._known: dict[tuple[object, ...], bool] = {}

    def of(self, point: Point, tenant: str, key: str) -> bool:
        """Return whether the condition holds for the caller's request at this point."""
        read = (*[point[place] for place in self._read], tenant if self._by_tenant else "", key if self._by_key else "")
        found = self._known.get(read)
        if found is None:
            view = request_view(_request(point, "auto", tenant, key))
            assert view.facts is not None
            found = self._known[read] = self._condition.holds(view.facts, view.tenant, view.headers)
        return found


def _request(point: Point, model: str, tenant: str, key: str) -> TestRequest:
    turns, num_bytes, text, tools, stream, plan = point
    headers = {name: value for name, value in (("x-plan", plan), ("authorization", key)) if value}
    return TestRequest(
        model=model, tenant=tenant, turns=turns, prompt_bytes=num_bytes, text=text, has_tools=tools, stream=stream,
        headers=headers,
    )  # fmt: skip


Subject = tuple[str, str]
"""A kind of violation and the name that it is about."""


def brute_force(policy: Policy) -> set[Subject]:
    """Return every violation that trying all requests of the grid shows."""
    table = RouteTable(policy)
    written = {route.id: route for route in policy.routes}
    reached: set[str] = set()
    served: set[Subject] = set()
    fitting: set[str] = set()
    found: set[Subject] = set()
    routes_of: dict[str, set[str]] = {}
    keys: dict[tuple[object, ...], set[str]] = {}
    models = dict.fromkeys(name for route in policy.routes for name in route.match.models)
    for point, key, model, tenant in (
        (point, key, model, tenant.id)
        for point, tried in grid(policy)
        for key, model, tenant in product(tried, models, policy.tenants)
    ):
        request = _request(point, model, tenant, key)
        try:
            route = table.match(request_view(request))
        except NoRoute as error:
            if error.code == "model_not_found" and request.model in policy.total:
                found.add(("not_total", request.model))
            continue
        if route.id not in written:
            if request.model in policy.total:
                found.add(("not_total", request.model))
            continue
        reached.add(route.id)
        routes_of.setdefault(str(request.tenant), set()).add(route.id)
        served |= {("", request.model), (str(request.tenant), request.model)}
        if (request.prompt_bytes or 0) <= MAX_BYTES_OF_4K:
            fitting.add(route.id)
        if "authorization" in (route.match.when or "") or keys:
            keys.setdefault((point, model, tenant), set()).add(route.id)
        if request.model in policy.total:
            for operation in ("chat", "completions", "embeddings"):
                found |= _unserved(policy, table, request, operation)
    in_use = {name for name in reached for name in written[name].select.fallback}
    found |= {("unreachable_route", name) for name in written if name not in reached | in_use}
    implied = {"auto", *(name for one in policy.deployments for name in (one.id, one.model))}
    found |= {
        ("unreachable_alias", name)
        for route in policy.routes
        for name in route.match.models
        if name not in implied and ("", name) not in served
    }
    found |= {
        ("unreachable_alias", tenant.id)
        for tenant in policy.tenants
        for name in tenant.models or ()
        if name not in implied and (tenant.id, name) not in served
    }
    found |= {("context", name) for name in reached - fitting if written[name].match.when and _is_bounded(policy, name)}
    found |= _stated(policy, reached, routes_of)
    found |= {("wide_key", "")} if any(len(routes) > 1 for routes in keys.values()) else set()
    return found


def _is_bounded(policy: Policy, name: str) -> bool:
    route = next(route for route in policy.routes if route.id == name)
    contexts = {one.id: one.context_tokens for one in policy.deployments}
    return all(contexts[item.id] is not None for item in route.select.resolved())


def _unserved(policy: Policy, table: RouteTable, request: TestRequest, operation: str) -> set[Subject]:
    """An operation that some route of the name serves, and this request's does not."""
    serving = {one.id: one.operations or ("chat", "completions") for one in policy.deployments}
    able = {
        name
        for route in policy.routes
        if request.model in route.match.models
        for item in route.select.resolved()
        for name in serving[item.id]
    }
    if operation not in able or (
        operation != "chat" and (request.has_tools or (operation == "embeddings" and request.stream))
    ):
        return set()
    same = msgspec.structs.replace(request, operation=operation)
    try:
        served_route(policy, table.match(request_view(same)), same)
    except NoRoute:
        return {("not_total", request.model)}
    return set()


def _stated(policy: Policy, reached: set[str], routes_of: dict[str, set[str]]) -> set[Subject]:
    """Violations that are in what the document states, counted without the prover's code."""
    found: set[Subject] = set()
    routes = {route.id: route for route in policy.routes}
    contexts = {one.id: one.context_tokens for one in policy.deployments}
    for route in policy.routes:
        ids = {item.id for item in route.select.resolved()}
        for name in route.select.fallback:
            ids |= {item.id for item in routes[name].select.resolved()} if name in routes else {name}
        budget = route.trim.budget_tokens
        if route.id in reached and budget is not None and any((contexts[id] or 10**9) <= budget for id in ids):
            found.add(("context", route.id))
        back = {name for name in route.select.fallback if name in routes and route.id in routes[name].select.fallback}
        if any({route.id, name} <= reached and _differ(policy, route.id, name) for name in back):
            found.add(("fallback_cycle", ""))
    lanes = {lane.id: lane for lane in policy.lanes}
    for victim in policy.tenants:
        own = [lanes[name] for name in victim.lanes or lanes]
        for other in policy.tenants:
            free = other.limits.max_in_flight is None and other.limits.requests_per_min is None
            heaviest = max(lanes[name].weight for name in other.lanes or lanes)
            starved = all(lane.max_queue == 0 or heaviest > 999 * lane.weight for lane in own)
            names = other.models
            direct = {one.id for one in policy.deployments if names is None or {one.id, one.model} & {*names}}
            held = direct.union(*(_answering(policy, name) for name in routes_of.get(other.id, ())))
            is_held = any(_answering(policy, name) <= held for name in routes_of.get(victim.id, ()))
            if victim.id != other.id and free and starved and is_held:
                found.add(("starvation", victim.id))
    return found


def _answering(policy: Policy, name: str) -> set[str]:
    """Deployments that may answer a route's requests."""
    routes = {route.id: route for route in policy.routes}
    found = {item.id for item in routes[name].select.resolved()}
    for other in routes[name].select.fallback:
        found |= {item.id for item in routes[other].select.resolved()}
    return found


def _differ(policy: Policy, a: str, b: str) -> bool:
    ids = {route.id: {item.id for item in route.select.resolved()} for route in policy.routes}
    return bool(ids[a] - ids[b]) and bool(ids[b] - ids[a])


def subjects(proof: Proof, policy: Policy) -> set[Subject]:
    """Return the prover's violations in the form of the brute force."""
    found: set[Subject] = set()
    for one in proof.violations:
        place = one.path[1] if len(one.path) > 1 else None
        assert isinstance(place, int)
        if one.kind == "not_total":
            found.add((one.kind, policy.total[place]))
        elif one.kind in ("unreachable_alias", "starvation") and one.path[0] == "tenants":
            found.add((one.kind, policy.tenants[place].id))
        elif one.kind == "unreachable_alias":
            model = one.path[-1]
            assert isinstance(model, int)
            found.add((one.kind, policy.routes[place].match.models[model]))
        else:
            found.add((one.kind, "" if one.kind in ("fallback_cycle", "wide_key") else policy.routes[place].id))
    return found


# Mutations: each changes the document in place, or returns False where it has nothing to change.

Mutation = Callable[[Json, Maker], bool]


def _some(items: list[Json], rng: random.Random) -> Json:
    return rng.choice(items)


def _conditioned(document: Json) -> list[Json]:
    return [route for route in document["routes"] if "when" in route["match"]]


def drop_route(document: Json, maker: Maker) -> bool:
    """Remove a route."""
    document["routes"].remove(_some(document["routes"], maker.rng))
    names = {name for route in document["routes"] for name in route["match"]["models"]}
    document["total"] = [name for name in document["total"] if name in names]
    for tenant in document["tenants"]:
        tenant["models"] = [name for name in tenant["models"] if name in names | {"model-0"}]
    return bool(document["routes"])


def swap_routes(document: Json, maker: Maker) -> bool:
    """Exchange two routes."""
    a, b = maker.rng.sample(range(len(document["routes"])), 2)
    routes = document["routes"]
    routes[a], routes[b] = routes[b], routes[a]
    return True


def copy_condition(document: Json, maker: Maker) -> bool:
    """Give a route the condition of another."""
    routes = _conditioned(document)
    if len(routes) < 2:
        return False
    a, b = maker.rng.sample(routes, 2)
    a["match"]["when"] = b["match"]["when"]
    return True


def shift_constant(document: Json, maker: Maker) -> bool:
    """Change a number in a condition by one, or a sign beside it."""
    for route in _shuffled(_conditioned(document), maker.rng):
        when = route["match"]["when"]
        for old, new in _shuffled(
            [
                ("<= 2", "<= 1"),
                ("> 3", "> 2"),
                ("== 4", "== 5"),
                ("<=", "<"),
                ("< 100", "< 101"),
                (">=", ">"),
                ("[1, 5]", "[1]"),
            ],
            maker.rng,
        ):
            if old in when:
                route["match"]["when"] = when.replace(old, new, 1)
                return True
    return False


def _shuffled(items: list[Any], rng: random.Random) -> list[Any]:
    return rng.sample(items, len(items))


def contradict(document: Json, maker: Maker) -> bool:
    """Add what contradicts itself, or the rest of a condition, to a condition."""
    routes = _conditioned(document)
    more = maker.rng.choice(
        (
            "request.turns > 5 && request.turns < 3",
            'request.text == "ping" && request.text.contains("sql")',
            "request.has_tools && !request.has_tools",
            maker.condition(),
        )
    )
    route = _some(routes, maker.rng)
    route["match"]["when"] = f"({route['match']['when']}) && {more}"[:1000]
    return True


def loosen(document: Json, maker: Maker) -> bool:
    """Add an alternative to a condition."""
    route = _some(_conditioned(document), maker.rng)
    route["match"]["when"] = f"({route['match']['when']}) || ({maker.condition()})"
    return True


def negate(document: Json, maker: Maker) -> bool:
    """Turn a condition round."""
    route = _some(_conditioned(document), maker.rng)
    route["match"]["when"] = f"!({route['match']['when']})"
    return True


def condition_rest(document: Json, maker: Maker) -> bool:
    """Give the last route of a name a condition."""
    rest = [route for route in document["routes"] if "when" not in route["match"]]
    _some(rest, maker.rng)["match"]["when"] = maker.condition()
    return True


def restrict_rest(document: Json, maker: Maker) -> bool:
    """Give the last route of a name to some tenants, or to requests with a header."""
    route = _some([route for route in document["routes"] if "when" not in route["match"]], maker.rng)
    if maker.rng.random() < 0.5:
        route["match"]["tenants"] = maker.rng.sample(TENANTS, 2)
    else:
        route["match"]["headers"] = {"x-plan": "pro"}
    return True


def take_name(document: Json, maker: Maker) -> bool:
    """Take a model name from tenants."""
    name = maker.rng.choice(document["total"])
    for tenant in maker.rng.sample(document["tenants"], maker.rng.randint(1, 3)):
        tenant["models"] = [one for one in tenant["models"] if one != name]
    return True


def change_tenants(document: Json, maker: Maker) -> bool:
    """Give a route to one tenant."""
    route = _some(document["routes"], maker.rng)
    route["match"]["tenants"] = [maker.rng.choice(TENANTS)]
    return True


def fall_back(document: Json, maker: Maker) -> bool:
    """Add a fallback, often one that leads back."""
    a, b = maker.rng.sample(document["routes"], 2)
    a["select"]["fallback"] = [b["id"]]
    if maker.rng.random() < 0.6:
        b["select"]["fallback"] = [a["id"]]
    return True


def shrink_context(document: Json, maker: Maker) -> bool:
    """Trim a route's prompts to a length, and let a deployment hold less or just as much."""
    route = _some(document["routes"], maker.rng)
    route["trim"] = {"budget_tokens": 2048, "strategies": ["minify"]}
    document["deployments"][maker.rng.randrange(3)]["context_tokens"] = maker.rng.choice((2047, 2048, 2049))
    return True


def lengthen(document: Json, maker: Maker) -> bool:
    """Let a route take long prompts only."""
    route = _some(_conditioned(document), maker.rng)
    route["match"]["when"] = maker.rng.choice(("request.prompt_bytes > 550000", "request.prompt_bytes > 2000"))
    return True


def close_queue(document: Json, maker: Maker) -> bool:
    """Let nobody wait in a lane, and give it to a tenant alone or with another lane."""
    document["lanes"][1]["max_queue"] = 0
    victim = _some(document["tenants"], maker.rng)
    victim["lanes"] = maker.rng.choice((["slow"], ["slow", "fast"]))
    return _limit_others(document, maker, victim)


def outweigh(document: Json, maker: Maker) -> bool:
    """Make one lane far heavier than another."""
    document["lanes"][0]["weight"] = maker.rng.choice((900, 1000, 5000))
    victim = _some(document["tenants"], maker.rng)
    victim["lanes"] = ["slow"]
    return _limit_others(document, maker, victim)


def _limit_others(document: Json, maker: Maker, victim: Json) -> bool:
    limit = maker.rng.choice((None, 2))
    for tenant in document["tenants"]:
        if limit is not None and tenant is not victim:
            tenant["limits"] = {"max_in_flight": limit}
    return True


def read_key(document: Json, maker: Maker) -> bool:
    """Let a route depend on a key."""
    route = _some(_conditioned(document), maker.rng)
    route["match"]["when"] = maker.rng.choice(
        (
            'headers["authorization"] == "Bearer one"',
            f'({route["match"]["when"]}) && headers["authorization"] == "Bearer one"',
        )
    )
    return True


def narrow_operations(document: Json, maker: Maker) -> bool:
    """Let a deployment serve other operations."""
    document["deployments"][maker.rng.randrange(3)]["operations"] = maker.rng.choice(
        (["embeddings"], ["chat"], ["chat", "embeddings"])
    )
    return True


MUTATIONS: Final[tuple[Mutation, ...]] = (
    drop_route, swap_routes, copy_condition, shift_constant, contradict, loosen, negate, condition_rest, restrict_rest,
    take_name, change_tenants, fall_back, shrink_context, lengthen, close_queue, outweigh, read_key, narrow_operations,
)  # fmt: skip


def loaded(document: Json) -> Policy | None:
    """Return the policy; None where loading refuses it."""
    try:
        return load_policy(yaml.safe_dump(document, sort_keys=False), source="p")
    except PolicyError:
        return None


@cache
def base(seed: int) -> tuple[Json, tuple[str, ...]]:
    """Return a document without a violation, by the prover and by brute force, and the variables of its conditions."""
    maker = Maker(random.Random(seed))
    while True:
        document = maker.document()
        policy = loaded(document)
        assert policy is not None
        if not brute_force(policy):
            found = subjects(prove(policy), policy)
            assert not found, (found, json.dumps(document))
            return document, tuple(maker.variables)


def mutant(document: Json, maker: Maker, mutation: Mutation) -> Json | None:
    """Return a mutant of a document; None where the mutation does not apply."""
    changed = copy.deepcopy(document)
    return changed if mutation(changed, maker) and changed != document else None


@dataclass(slots=True)
class MutantResult:
    """One mutant: what both find."""

    found: set[Subject]
    expected: set[Subject]
    open_kinds: set[str]

    @property
    def is_right(self) -> bool:
        """True if both agree, open questions excepted."""
        differing = self.found ^ self.expected
        return all(kind in self.open_kinds for kind, _ in differing) and self.found <= self.expected


def evaluate(policy: Policy) -> MutantResult:
    """Run the prover and the brute force."""
    proof = prove(policy)
    return MutantResult(subjects(proof, policy), brute_force(policy), {one.kind for one in proof.open_questions})


def main() -> int:
    """Evaluate mutants of many seeds; 1 when any is wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    began = time.perf_counter()
    for seed in range(options.first, options.first + options.seeds):
        document, variables = base(seed)
        for mutation in MUTATIONS:
            changed = mutant(document, Maker.of(seed, mutation, variables), mutation)
            policy = None if changed is None else loaded(changed)
            if policy is None:
                counts["refused or unchanged"] += 1
                continue
            verdict = evaluate(policy)
            if not verdict.is_right:
                print(f"seed {seed} {mutation.__name__}: found {verdict.found}, expected {verdict.expected}")
                print(json.dumps(changed), flush=True)
                counts["wrong"] += 1
            elif verdict.expected - verdict.found:
                counts["open"] += 1
            else:
                counts["found" if verdict.found else "equivalent"] += 1
        print(f"seed {seed}: {dict(counts)}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    print(
        json.dumps(
            {"seeds": options.seeds, "kinds": len(MUTATIONS), "took_s": round(time.perf_counter() - began), **counts}
        )
    )
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
