"""The semantic tier alone: whatever is called, nobody gets the answer of another context."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from gateway.cache.audit.route_stats import RouteStats
from gateway.cache.exact.cache_lookup import CacheIdentity
from gateway.cache.exact.control import CacheControl
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_cache import STALE_S, ExactCache
from gateway.cache.exact.exact_tier import ExactTier
from gateway.cache.exact.fingerprint import fingerprint, scope_of
from gateway.cache.index.vector_index import VectorIndex
from gateway.cache.semantic.semantic_tier import SemanticResult, SemanticTier
from gateway.chat.request import ChatRequest, ChatRequestParser
from routing_policies.policy.document import Cache
from tests.gateway.cache.word_encoder import DIMENSIONS, NearMatchModel

RULE = Cache(mode="exact_then_semantic", ttl_s=60)
SAME = "Where is the red button of it?"


class World:
    """A tier, and what it takes to call it. All texts lie at the same place: only contexts show them apart."""

    def __init__(self, rule: Cache = RULE) -> None:
        self.now = 1000.0
        self.barred: set[bytes] = set()
        self.failures: list[BaseException] = []
        self.exact = ExactTier(on_removed=lambda entry: self.semantic.removed(entry))
        self.semantic = SemanticTier(
            self.exact,
            track_of=lambda exact: None,
            is_barred=lambda exact: exact in self.barred,
            on_failure=self.failures.append,
            wall=lambda: self.now,
        )
        self.index = VectorIndex(DIMENSIONS, "words")
        self.semantic.open(self.index, "words")
        self.stats = RouteStats(NearMatchModel())
        self.rule = rule
        self.vector = np.zeros(DIMENSIONS, np.float32)
        self.vector[0] = 1.0

    def keep(self, request: ChatRequest, wanted: CacheIdentity, *, number: int, vector: Any = None) -> CacheEntry:
        key = self.key(request, wanted)
        entry = CacheEntry(
            id=f"r{number}",
            exact=key.exact,
            context=key.context,
            text=key.text,
            answer=b"%d" % number,
            tenant=wanted.tenant,
            route=wanted.route,
            deployment="small",
            created_at=self.now,
            expires_at=self.now + self.rule.ttl_s + STALE_S,
        )
        self.exact.put(entry, self.now)
        self.semantic.place(entry, self.vector if vector is None else vector)
        return entry

    def key(self, request: ChatRequest, wanted: CacheIdentity) -> Any:
        scope = scope_of(self.rule.scope, tenant=wanted.tenant, user=request.fields.user)
        assert scope is not None
        key = fingerprint(request, scope=scope, candidates=wanted.candidates)
        assert key is not None
        return key

    def find(self, request: ChatRequest, wanted: CacheIdentity) -> SemanticResult:
        key = self.key(request, wanted)
        return self.semantic.find(self.semantic.nearest(key.context, self.vector), key, wanted, self.stats)


def wanted_by(tenant: str = "acme", candidates: bytes = b"small", **control: Any) -> CacheIdentity:
    return CacheIdentity(RULE, "faq", tenant, candidates, CacheControl(**control))


def request(text: str = SAME, **fields: Any) -> ChatRequest:
    history = fields.pop("history", [])
    document = {"model": "auto", "messages": [*history, {"role": "user", "content": text}], **fields}
    return ChatRequestParser().parse(msgspec.json.encode(document))


def drawn(rng: Random) -> tuple[ChatRequest, CacheIdentity, tuple[Any, ...]]:
    """A request, whose it is, and all that must be equal for two of them to share an answer."""
    tenant = rng.choice(["acme", "acme2", "umbrella"])
    candidates = rng.choice([b"small", b"large", b"large\nsmall"])
    system = rng.choice([None, "Answer briefly.", "Answer briefly!", "Answer  briefly."])
    turns = rng.choice([(), ("Hello there.",), ("Hello there.", "Hi."), ("Hello there", "Hi.")])
    fields: dict[str, Any] = rng.choice(
        [
            {},
            {"temperature": 0.5},
            {"temperature": 0},
            {"max_tokens": 20},
            {"stop": ["."]},
            {"top_p": 0.5},
            {"response_format": {"type": "json_object"}},
            {"response_format": {"type": "text"}},
            {"reasoning_effort": "low"},
        ]
    )
    history = [] if system is None else [{"role": "system", "content": system}]
    history += [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(turns)]
    text = f"Where is button {rng.randrange(40)} of it?"
    identity = (tenant, candidates, system, turns, msgspec.json.encode(fields, order="sorted"))
    return request(text, history=history, **fields), wanted_by(tenant, candidates), identity


def test_over_thousands_of_scopes_nothing_is_ever_found_in_another() -> None:
    rng, world = Random(11), World()
    owners: dict[str, tuple[Any, ...]] = {}
    num_hits = 0
    for number in range(6000):
        requested, wanted, identity = drawn(rng)
        found = world.find(requested, wanted)
        if found.is_hit:
            num_hits += 1
            assert found.entry is not None
            assert owners[found.entry.id] == identity
        if number % 3 == 0 and world.key(requested, wanted).exact not in world.exact:
            owners[world.keep(requested, wanted, number=number).id] = identity
    assert num_hits > 500, "or nothing was tried"
    world.exact.check_integrity()
    assert len(world.index) == len(world.exact)


def test_scope_user_keeps_users_of_one_tenant_apart() -> None:
    world = World(Cache(mode="exact_then_semantic", scope="user", ttl_s=60))
    world.keep(request(user="anna"), wanted_by(), number=1)
    assert world.find(request("Where is the blue button of it?", user="anna"), wanted_by()).is_hit
    assert not world.find(request("Where is the blue button of it?", user="bert"), wanted_by()).is_hit


def test_what_is_not_fresh_quarantined_or_barred_is_not_found() -> None:
    world = World()
    entry = world.keep(request(), wanted_by(), number=1)
    other = request("Where is the blue button of it?")
    assert world.find(other, wanted_by()).is_hit
    world.now += 30.0
    assert not world.find(other, wanted_by(max_age_s=10.0)).is_hit
    world.barred.add(entry.exact)
    assert world.find(other, wanted_by()).reason == "alone"
    world.barred.clear()
    assert world.find(other, wanted_by()).is_hit
    world.exact.quarantine(entry.id)
    assert world.find(other, wanted_by()).reason == "alone"
    world.now += 31.0
    again = world.keep(request("Where is the green button of it?"), wanted_by(), number=2)
    world.now += 61.0
    assert world.find(other, wanted_by()).reason == "alone", "past its time, kept for a moment of need only"
    assert again.exact in world.exact


def test_the_second_nearest_answers_when_the_nearest_may_not() -> None:
    world = World()
    near = world.vector.copy()
    near[1] = 0.3
    near /= np.linalg.norm(near)
    first = world.keep(request("Where is button 1 of it?"), wanted_by(), number=1)
    second = world.keep(request("Where is button 2 of it?"), wanted_by(), number=2, vector=near)
    requested = request("Where is button 3 of it?")
    found = world.find(requested, wanted_by())
    assert found.entry == first
    assert found.runner_up == pytest.approx(float(near[0]), abs=1e-3)
    world.barred.add(first.exact)
    found = world.find(requested, wanted_by())
    assert (found.entry, found.runner_up) == (second, None)


@pytest.mark.parametrize("how", ["evicted", "purged", "replaced", "expired"])
def test_what_leaves_the_exact_tier_leaves_the_index(how: str) -> None:
    world = World()
    entry = world.keep(request(), wanted_by(), number=1)
    if how == "evicted":
        world.exact._max_bytes = 1
        world.exact._make_room()
    elif how == "purged":
        world.exact.discard(entry.exact)
    elif how == "replaced":
        world.now += 1.0
        world.keep(request(), wanted_by(), number=2)
        assert len(world.index) == 1
        return
    else:
        world.exact.expire(entry.expires_at)
    assert len(world.index) == 0


def test_a_vector_travels_with_its_entry_and_comes_out_the_same() -> None:
    world, other = World(), World()
    rng = np.random.default_rng(1)
    vector = rng.normal(size=DIMENSIONS).astype(np.float32)
    vector /= np.linalg.norm(vector)
    entry = world.keep(request(), wanted_by(), number=1, vector=vector)
    sent = world.semantic.packed(entry, vector)
    assert len(sent.vector) == 2 * DIMENSIONS
    other.exact.put(entry, other.now)
    other.semantic.taken(sent)
    (near,) = other.semantic.nearest(entry.context, vector)
    assert near.similarity == pytest.approx(1.0, abs=1e-3)


def test_vectors_of_another_encoder_are_left_alone_and_early_ones_wait() -> None:
    world = World()
    entry = world.keep(request(), wanted_by(), number=1)
    sent = world.semantic.packed(entry, world.vector)
    world.index.remove(entry.context, entry.exact)
    world.semantic.taken(msgspec.structs.replace(sent, encoder="another"))
    assert len(world.index) == 0

    early = SemanticTier(
        world.exact,
        track_of=lambda _: None,
        is_barred=lambda _: False,
        on_failure=world.failures.append,
        wall=lambda: world.now,
    )
    early.taken(sent)
    assert early.num_entries == 0
    early.open(world.index, "words")
    assert early.num_entries == 1


def test_a_cache_that_takes_an_entry_keeps_its_vector_once() -> None:
    world = World()
    taken: list[CacheEntry] = []
    cache = ExactCache(ExactTier(), wall=lambda: world.now, on_taken=taken.append)
    entry = world.keep(request(), wanted_by(), number=1)
    cache.take(world.semantic.packed(entry, world.vector))
    assert [bool(found.vector) for found in taken] == [True]
    assert cache.tier.by_exact(entry.exact) == entry


def test_what_the_index_has_and_nobody_keeps_is_dropped_when_everything_was_read() -> None:
    world = World()
    requested = request()
    world.index.add(world.key(requested, wanted_by()).context, b"orphan", world.vector)
    assert world.find(requested, wanted_by()).reason == "alone"
    assert len(world.index) == 1, "it may be read yet"
    world.semantic.drops_orphans = True
    assert world.find(requested, wanted_by()).reason == "alone"
    assert len(world.index) == 0
