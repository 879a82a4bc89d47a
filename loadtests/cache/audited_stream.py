"""Streams with audits: the semantic tier, its counts and its match model as the gateway puts them together, on virtual
time.

A deployment's answer is known by the question's group, so an audit finds whether the cached response was right; `noise`
is the share of verdicts that are turned around. What lies near is worked out beforehand, once for all bounds.
Everything else is the gateway's own code: the choice among neighbours, what is audited and how that weighs, the running
error, tightening, closing and opening, and what the match model learns. Nothing expires, and no guard keeps a question
out: every one takes part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.cache.audit.audit_choice import AuditChoice
from gateway.cache.audit.audit_record import AuditRecord
from gateway.cache.audit.audit_registry import AuditRegistry
from gateway.cache.audit.error_budget import CLOSED
from gateway.cache.audit.match_models import LEARN_S, MIN_NEWS, MatchModels
from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.exact.cache_lookup import CacheIdentity
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_tier import ExactTier
from gateway.cache.exact.fingerprint import DIGEST_BYTES, Fingerprint
from gateway.cache.fitting.neighbours import Neighbours
from gateway.cache.fitting.questions import Questions
from gateway.cache.fitting.stream import Played
from gateway.cache.index.vector_index import Neighbour
from gateway.cache.semantic.semantic_tier import NUM_NEIGHBOURS, SemanticResult, SemanticTier
from routing_policies.policy.document import Cache

Vectors = NDArray[np.float32]

REQUESTS_PER_S: Final = 10.0
EXPONENTS: Final = (0.8, 1.0)
ZIPF_REQUESTS: Final = 60_000
EACH_DOMAIN: Final = 20_000
_WHOSE: Final = TenantRoute("tenant", "route")
_CONTEXT: Final = b"context"
_BEGIN: Final = 1_000_000.0
_FOR_EVER: Final = 1e12
_NEIGHBOURS: Final = 48
_BLOCK: Final = 512


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Indices into `questions`, in the order in which they are sent; errors count from `counted_from` on."""

    name: str
    questions: Questions
    vectors: Vectors
    order: NDArray[np.int64]
    counted_from: int = 0

    @cached_property
    def neighbours(self) -> Neighbours:
        """Return the neighbours of every question among those that the stream sends."""
        return neighbours_among(self.vectors, np.unique(self.order), _NEIGHBOURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audits:
    """How much is audited, and how well."""

    audit_ratio: float
    noise: float = 0.0
    """Share of verdicts that are wrong."""
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What came of a stream."""

    played: Played
    """Of the part that counts."""
    exact_ratio: float
    num_audits: int
    """Upstream calls that they cost."""
    num_compared: int
    """Comparisons that cost none."""
    levels: tuple[int, ...]
    """Requests at each level, from open to closed."""
    is_recalibrated: bool


def streams_of(questions: tuple[Questions, Vectors], intents: tuple[Questions, Vectors], seed: int) -> Iterator[Stream]:
    """With repeats, and with a change of domain in either direction."""
    for exponent in EXPONENTS:
        yield zipf_stream(*questions, exponent=exponent, count=ZIPF_REQUESTS, seed=seed)
    mixed = shuffled(intents, seed)  # in their own order they come intent by intent
    yield changed_stream("to_intents", questions, mixed, count=EACH_DOMAIN)
    yield changed_stream("from_intents", mixed, questions, count=EACH_DOMAIN)


def zipf_stream(questions: Questions, vectors: Vectors, *, exponent: float, count: int, seed: int) -> Stream:
    """Draws with replacement; which questions are popular is decided by the seed."""
    rng = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, len(questions) + 1) ** exponent
    ranks = rng.choice(len(questions), count, p=popularity / popularity.sum())
    order = rng.permutation(len(questions))[ranks].astype(np.int64)
    return Stream(name=f"zipf_{exponent:g}", questions=questions, vectors=vectors, order=order)


def changed_stream(
    name: str, before: tuple[Questions, Vectors], after: tuple[Questions, Vectors], *, count: int
) -> Stream:
    """The first so many of one domain, then as many of another; only the latter count."""
    (first, first_vectors), (second, second_vectors) = before, after
    away = int(first.question_groups.max()) + int(first.components.max()) + 1
    questions = Questions(
        texts=[*first.texts[:count], *second.texts[:count]],
        question_groups=np.concatenate([first.question_groups[:count], second.question_groups[:count] + away]),
        components=np.concatenate([first.components[:count], second.components[:count] + away]),
    )
    return Stream(
        name=name,
        questions=questions,
        vectors=np.concatenate([first_vectors[:count], second_vectors[:count]]),
        order=np.arange(len(questions)),
        counted_from=min(count, len(first)),
    )


def shuffled(outcomes: tuple[Questions, Vectors], seed: int) -> tuple[Questions, Vectors]:
    """In an order that the seed decides."""
    questions, vectors = outcomes
    order = np.random.default_rng(seed).permutation(len(questions))
    texts = [questions.texts[place] for place in order.tolist()]
    question_groups, components = questions.question_groups[order], questions.components[order]
    return Questions(texts=texts, question_groups=question_groups, components=components), vectors[order]


def neighbours_among(vectors: Vectors, places: NDArray[np.int64], count: int) -> Neighbours:
    """For each row of `vectors` that is in `places`, the nearest others there, closest first."""
    among = vectors[places]
    count = min(count, len(places) - 1)
    found = np.full((len(vectors), count), -1, np.int64)
    similarities = np.full((len(vectors), count), -1.0, np.float32)
    for start in range(0, len(places), _BLOCK):
        rows = places[start : start + _BLOCK]
        cosines = vectors[rows] @ among.T
        cosines[np.arange(len(rows)), np.arange(start, start + len(rows))] = -2.0
        best = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        values = np.take_along_axis(cosines, best, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        found[rows] = places[np.take_along_axis(best, order, axis=1)]
        similarities[rows] = np.take_along_axis(values, order, axis=1)
    return Neighbours(places=found, similarities=similarities)


def play_audited(stream: Stream, match_models: MatchModels, max_error_ratio: float, audits: Audits) -> Audited:
    """Send all questions."""
    cache = _AuditedCache(
        stream, match_models, Cache(mode="exact_then_semantic", max_error_ratio=max_error_ratio), audits
    )
    outcomes = [cache.request(place, number) for number, place in enumerate(stream.order.tolist())]
    counted = outcomes[stream.counted_from :]
    return Audited(
        played=Played(
            np.array([outcome == "wrong" or outcome == "right" for outcome in counted]),
            np.array([outcome == "wrong" for outcome in counted]),
            stream.questions.components[stream.order[stream.counted_from :]],
        ),
        exact_ratio=counted.count("exact") / len(counted),
        num_audits=cache.num_audits,
        num_compared=cache.num_compared,
        levels=tuple(cache.levels),
        is_recalibrated=cache.stats.is_recalibrated,
    )


class _AuditedCache:
    """One tenant on one route."""

    def __init__(self, stream: Stream, match_models: MatchModels, rule: Cache, audits: Audits) -> None:
        self._stream = stream
        self._match_models = match_models
        self._audits = audits
        self._wanted = CacheIdentity(rule, _WHOSE.route, _WHOSE.tenant, b"")
        self._now = _BEGIN
        self._learnt_at = _BEGIN
        self._rng = Random(audits.seed)
        self._choice = AuditChoice()
        route_stats = RouteStatsTable(match_models.first)
        self._audit_registry = AuditRegistry(route_stats, bound_of=lambda route: rule.max_error_ratio)
        self._tier = ExactTier(max_bytes=2**40)
        self._semantic = SemanticTier(
            self._tier,
            track_of=self._audit_registry.track_of,
            is_barred=self._audit_registry.is_barred,
            on_failure=_raise,
            wall=lambda: self._now,
        )
        self._cached: dict[int, bytes] = {}
        self._index_of: dict[bytes, int] = {}
        self.stats: RouteStats = route_stats.of(_WHOSE)
        self.num_audits = self.num_compared = 0
        self.levels = [0] * (CLOSED + 1)

    def request(self, place: int, number: int) -> str:
        """`exact`, `right` or `wrong` for an answer that was stored, else `new`."""
        self._tick(number)
        text = self._stream.questions.texts[place]
        exact = blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()
        if self._tier.find(exact, self._now) is not None:
            return "exact"
        near = self._near(place)
        finding = self._semantic.find(near, Fingerprint(exact, _CONTEXT, text), self._wanted, self.stats)
        entry = finding.entry
        is_wrong = entry is not None and self._means_other(entry.exact, place)
        if entry is not None and finding.is_hit:
            self.stats.note_hit(self._now, exact, entry.exact, finding.shipped_probability)
            self._served(exact, finding, entry, number, is_wrong=is_wrong)
            return "wrong" if is_wrong else "right"
        self._keep(exact, text, place, number)
        if entry is not None:
            self._compared(finding, entry, number, is_wrong=is_wrong)
        return "new"

    def _near(self, place: int) -> list[Neighbour]:
        """In the index's form."""
        table = self._stream.neighbours
        found: list[Neighbour] = []
        for other, similarity in zip(table.places[place].tolist(), table.similarities[place].tolist(), strict=True):
            exact = self._cached.get(other)
            if exact is not None:
                found.append(Neighbour(exact, similarity))
                if len(found) == NUM_NEIGHBOURS:
                    break
        return found

    def _tick(self, number: int) -> None:
        self._now = _BEGIN + number / REQUESTS_PER_S
        self.stats.note_request(self._now)
        self.levels[self.stats.level] += 1
        if self._now >= self._learnt_at + LEARN_S:
            self._learnt_at = self._now
            if self.stats.num_news >= MIN_NEWS:
                self.stats.recalibrated(self._match_models.learn(tuple(self.stats.evidence.samples)))

    def _means_other(self, cached_index: bytes, place: int) -> bool:
        question_groups = self._stream.questions.question_groups
        return bool(question_groups[self._index_of[cached_index]] != question_groups[place])

    def _served(self, exact: bytes, finding: SemanticResult, entry: CacheEntry, number: int, *, is_wrong: bool) -> None:
        ratio = self._audits.audit_ratio
        probability = self._choice.of_served(
            (exact, entry.exact), finding.match_probability, ratio, self.stats, _WHOSE.tenant
        )
        if probability > 0.0 and self._rng.random() < probability:
            self._choice.audited((exact, entry.exact), _WHOSE.tenant)
            self.num_audits += 1
            self._settle(finding, entry, number, 1.0 / probability, is_wrong=is_wrong, was_served=True)

    def _compared(self, finding: SemanticResult, entry: CacheEntry, number: int, *, is_wrong: bool) -> None:
        lowest = self.stats.lowest(self._wanted.rule.max_error_ratio)
        probability = self._choice.of_other(finding.match_probability, self._audits.audit_ratio, lowest)
        if probability > 0.0 and self._rng.random() < probability:
            self.num_compared += 1
            self._settle(finding, entry, number, 1.0 / probability, is_wrong=is_wrong, was_served=False)

    def _settle(
        self,
        finding: SemanticResult,
        entry: CacheEntry,
        number: int,
        weight: float,
        *,
        is_wrong: bool,
        was_served: bool,
    ) -> None:
        is_called_wrong = is_wrong != (self._rng.random() < self._audits.noise)
        record = AuditRecord(
            id=str(number),
            at=self._now,
            tenant=_WHOSE.tenant,
            route=_WHOSE.route,
            exact=entry.exact,
            entry_id=entry.id,
            similarity=finding.similarity,
            runner_up=finding.runner_up,
            match_probability=finding.match_probability,
            shipped_probability=finding.shipped_probability,
            weight=weight,
            verdict="wrong" if is_called_wrong else "right",
            by="words",
            was_served=was_served,
        )
        self._audit_registry.add(record, self._now)

    def _keep(self, exact: bytes, text: str, place: int, number: int) -> None:
        entry = CacheEntry(
            id=str(number),
            exact=exact,
            context=_CONTEXT,
            text=text,
            answer=b"{}",
            tenant=_WHOSE.tenant,
            route=_WHOSE.route,
            deployment="",
            created_at=self._now,
            expires_at=_FOR_EVER,
        )
        self._index_of[exact] = place
        self._tier.put(entry, self._now)
        self._cached[place] = exact


def _raise(error: BaseException) -> None:
    raise error


def describe(audited: Audited) -> Iterator[str]:
    """For people."""
    played = audited.played
    low, high = played.error_limits()
    yield f"{played.hits.sum()} similar of {len(played.hits)}, {played.wrong.sum()} wrong, {low:.4f} to {high:.4f}"
    yield f"{audited.num_audits} audits, {audited.num_compared} compared"
    yield f"requests by level {'/'.join(map(str, audited.levels))}"
