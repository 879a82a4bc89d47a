"""Advice on a policy that is correct: where its choices rest on nothing that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from routing_policies.check import route_candidates
from routing_policies.operations import CHAT, operations_of
from routing_policies.policy.deployment import UP_RESUME_KEY, Deployment
from routing_policies.policy.document import Policy, Route
from routing_policies.policy.nodes import Document
from routing_policies.policy.problems import Path, PathProblem, Problem
from routing_policies.quality.cascade import default_mean_probability
from routing_policies.quality.pairs import (
    PairPredictor,
    pair_predictors_of,
    served_select,
    strongest_of,
    unknown_candidates,
)
from routing_policies.quality.predictor import Predictors


def advice_on(policy: Policy, document: Document, predictors: Predictors) -> tuple[Problem, ...]:
    """Return what a policy's author should know, each at its line; none of it makes the policy wrong."""
    found: list[tuple[Path, str]] = [
        (("routes", index, "select", "policy"), message)
        for index, route in enumerate(policy.routes)
        if route.select.min_quality is not None
        for message in _of_route(policy, route, predictors)
    ]
    found += [
        (("routes", index, "resume"), message)
        for index, route in enumerate(policy.routes)
        if route.resume != "off"
        for message in _of_resumed_streams(route, route_candidates(policy, route))
    ]
    return tuple(document.locate(PathProblem(path=path, message=message)) for path, message in found)


def _of_resumed_streams(route: Route, candidates: Sequence[Deployment]) -> Iterator[str]:
    """Yield a warning where streams of a route with `resume` have no deployment that could continue them."""
    talking = [one for one in candidates if CHAT in operations_of(one)]
    if unfit := [one.id for one in talking if not _can_resume(route, one)]:
        yield (
            f"warning: route {route.id}: resume: {route.resume} has no effect at {', '.join(unfit)} without "
            "`resume_key_env`. Start its engine with `--resume-key-env NAME`, and write `resume_key_env: NAME` at the "
            f"deployment; engines that `penstock up` starts have their key in {UP_RESUME_KEY}. For greedy text of "
            "another server, write `resume: best_effort` and the deployment's `continuation`"
        )
    for model in dict.fromkeys(one.model for one in talking):
        serving = [one for one in talking if one.model == model]
        if len(serving) == 1 and serving[0].discover is None:
            yield (
                f"warning: route {route.id}: resume: {route.resume} has no effect on streams of {serving[0].id}, "
                f"which alone serves {model}. Add another candidate with `model: {model}`, or members by `discover`"
            )


def _of_route(policy: Policy, route: Route, predictors: Predictors) -> Iterator[str]:
    candidates = route_candidates(policy, route)
    pair_predictors = pair_predictors_of(candidates, predictors)
    is_cascade = served_select(route.select, candidates, pair_predictors).policy == "cascade"
    if route.select.policy == "cascade":
        yield from _reversed(route, candidates)
    for weak in unknown_candidates(candidates, pair_predictors):
        yield _unknown_pair(route, weak, strongest_of(candidates), is_cascade=is_cascade)
    if route.select.policy == "cascade":
        yield from _untaught(route, pair_predictors)


def _can_resume(route: Route, deployment: Deployment) -> bool:
    is_keyed = deployment.resume_key_env is not None
    is_text = route.resume == "best_effort" and deployment.continuation is not None
    return deployment.dialect == "openai" and (is_keyed or is_text)


def _reversed(route: Route, candidates: Sequence[Deployment]) -> Iterator[str]:
    """Yield a warning where a cascade begins with the better one, as where only the other one's quality is stated."""
    ordered = {one.id: one for one in candidates}
    first, *others = (ordered[candidate.id] for candidate in route.select.resolved() if candidate.id in ordered)
    for other in others:
        if first.quality > other.quality:
            yield (
                f"warning: route {route.id}: the cascade begins with {first.id}, whose quality {first.quality:g} is "
                f"above the {other.quality:g} of {other.id}, so no predictor applies. Unstated quality is 1"
            )


def _unknown_pair(route: Route, weak: Deployment, strong: Deployment, *, is_cascade: bool) -> str:
    effect = (
        f"{weak.id} begins every answer, and {strong.id} takes over where {_default_rule(route)}"
        if is_cascade
        else f"{strong.model} answers in its place, because nothing shows that {weak.id} reaches min_quality"
    )
    return (
        f"warning: route {route.id}: nothing is known of {weak.model} beside {strong.model}. Until it is, {effect}. "
        f"To learn it from prompts of your own, run: penstock policy outcomes --small {weak.id} --large {strong.id} "
        "--prompts FILE --judge MODEL --out outcomes.jsonl, then: penstock policy train --data outcomes.jsonl "
        f"--weak {weak.model} --strong {strong.model} --out FILE. To learn it from requests, add "
        f"`shadow: {{id: {strong.id}}}` to the route's select, and train with --from-gateway in place of --data"
    )


def _untaught(route: Route, pair_predictors: tuple[PairPredictor, ...]) -> Iterator[str]:
    """Yield a warning for each pair whose coefficients know prompts and no tokens."""
    for pair_predictor in pair_predictors:
        if not pair_predictor.predictor.model.checkpoints:
            yield (
                f"warning: route {route.id}: what is known of {pair_predictor.deployment} was learned without log "
                "probabilities. Prompts decide whether it begins; another deployment takes over where "
                f"{_default_rule(route)}. Outcomes with `logprobs` teach the cascade"
            )


def _default_rule(route: Route) -> str:
    assert route.select.min_quality is not None, "only routes that choose by quality are advised on"
    return f"the mean probability of its first tokens is below {default_mean_probability(route.select.min_quality):.2f}"
