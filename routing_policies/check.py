"""Execution of the tests that a policy contains."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from routing_policies.conditions.condition import MAX_TEXT_CHARS
from routing_policies.decision import Decision
from routing_policies.estimation.estimators import Price, cost_of
from routing_policies.matching import NoRoute, RequestView, RouteTable
from routing_policies.operations import operations_of, route_for
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Lane, Policy, Route
from routing_policies.policy.nodes import Document
from routing_policies.policy.policy_tests import GivenDeployment, PolicyTest, TestRequest
from routing_policies.policy.problems import Path, PathProblem, Problem
from routing_policies.profile import profile_of
from routing_policies.quality.pairs import (
    QualityPrediction,
    pair_predictors_of,
    predicted_quality,
    rated_candidates,
    served_select,
)
from routing_policies.quality.predictor import Predictor, Predictors
from routing_policies.quality.prompt import Prompt
from routing_policies.share import stable_key
from routing_policies.views import Attempt, DeploymentView

_NO_LANE: Final = Lane(id="interactive")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Number of tests run, and the failures, each at its line."""

    num_tests: int
    failures: tuple[Problem, ...]


def run_tests(policy: Policy, document: Document, predictors: Predictors | None = None) -> CheckResult:
    """Run every test of the policy.

    Args:
        policy: The policy.
        document: The tree that it was loaded from.
        predictors: Quality predictors for the tests' texts, as loaded; later learning must not change a policy's tests.
    """
    table = RouteTable(policy)
    known = predictors or Predictors()
    failures = [
        document.locate(finding)
        for index, test in enumerate(policy.tests)
        for finding in _failures(policy, table, test, ("tests", index, "expect"), known)
    ]
    return CheckResult(num_tests=len(policy.tests), failures=tuple(failures))


def _failures(
    policy: Policy, table: RouteTable, test: PolicyTest, path: Path, predictors: Predictors
) -> Iterator[PathProblem]:
    expect = test.expect
    request = request_view(test.request)
    try:
        route = served_route(policy, table.match(request), test.request)
    except NoRoute as error:
        if expect.error != error.code:
            wanted = f"error {expect.error}" if expect.error else "a route"
            yield _failure(test, path, "error", f"expected {wanted}, got error {error.code}")
        return
    if expect.error is not None:
        yield _failure(test, path, "error", f"expected error {expect.error}, got route {route.id}")
        return
    if expect.route is not None and expect.route != route.id:
        yield _failure(test, path, "route", f"expected route {expect.route}, got {route.id}")
    candidates = route_candidates(policy, route)
    select = served_select(route.select, candidates, pair_predictors_of(candidates, predictors))
    route = route if select is route.select else msgspec.structs.replace(route, select=select)
    profile = profile_of(select)
    verdict = _foretold(policy, route, test.request, predictors) if profile.reads_quality else None
    views = _views(_rated(policy, route, predictors), route, test, verdict)
    decision = profile.decide(views, _attempt(policy, route, test.request), random.Random(0))
    yield from _choice_failures(test, route, decision, path)


def request_view(request: TestRequest) -> RequestView:
    """Return the properties of a test's request that matching uses."""
    return RequestView(model=request.model, tenant=request.tenant, headers=request.headers, facts=_TestFacts(request))


def served_route(policy: Policy, route: Route, request: TestRequest) -> Route:
    """Return the route as it applies to the request's operation; raises NoRoute where no candidate serves it."""
    rules = {rule.id: rule for rule in policy.deployments}
    operation = request.operation
    served = route_for(route, operation, policy.deployments, lambda name: operation in operations_of(rules[name]))
    if served is None:
        raise NoRoute("unsupported_operation", request.model)
    return served


class _TestFacts:
    """Facts of a test's request, for conditions."""

    def __init__(self, request: TestRequest) -> None:
        self._request = request

    def fact(self, name: str) -> str | int | bool:
        """Return the value of `request.NAME`; see `Facts.fact`."""
        if name == "prompt_bytes" and self._request.prompt_bytes is None:
            return len(self._request.text.encode())
        value: str | int | bool = getattr(self._request, name)
        return value[:MAX_TEXT_CHARS] if isinstance(value, str) else value


def _choice_failures(test: PolicyTest, route: Route, decision: Decision, path: Path) -> Iterator[PathProblem]:
    expect = test.expect
    if expect.candidates is not None and expect.candidates != decision.candidates:
        problem = f"expected candidates {_listed(expect.candidates)}, got {_listed(decision.candidates)}"
        yield _failure(test, path, "candidates", f"{problem} ({decision.reason})")
    if expect.deployment is None:
        return
    if route.select.policy == "weighted" and len(decision.candidates) > 1:
        message = f"route {route.id} chooses at random; expect candidates instead"
        yield _failure(test, path, "deployment", message)
    elif expect.deployment != decision.deployment:
        problem = f"expected deployment {expect.deployment}, got {decision.deployment or 'none'}"
        yield _failure(test, path, "deployment", f"{problem} ({decision.reason})")


def _attempt(policy: Policy, route: Route, request: TestRequest) -> Attempt:
    """Return the first attempt, with the targets of the request's lane."""
    tenant = request.tenant or ""
    key = stable_key(tenant) if route.select.sticky_by == "tenant" else stable_key(tenant, request.conversation)
    slo = _lane_of(policy, request).slo
    if slo is None:
        return Attempt(zone=request.zone, key=key)
    tpot_s = None if slo.tpot_p95_ms is None else slo.tpot_p95_ms / 1000
    return Attempt(ttft_slo_s=slo.ttft_p95_ms / 1000, tpot_slo_s=tpot_s, zone=request.zone, key=key)


def _lane_of(policy: Policy, request: TestRequest) -> Lane:
    """Return the requested lane, else the tenant's first, else the policy's first."""
    tenant = next((tenant for tenant in policy.tenants if tenant.id == request.tenant), None)
    wanted = request.lane or (tenant.lanes[0] if tenant is not None and tenant.lanes else None)
    return next((lane for lane in policy.lanes if lane.id == wanted), policy.lanes[0] if policy.lanes else _NO_LANE)


def _foretold(policy: Policy, route: Route, request: TestRequest, predictors: Predictors) -> QualityPrediction | None:
    """Return the prediction for the request's text, or None without a text or a predictor for the candidates."""
    pair_predictors = pair_predictors_of(route_candidates(policy, route), predictors)
    if not request.text or not pair_predictors:
        return None
    prompt = Prompt(request.text, num_turns=request.turns, num_chars=len(request.text), has_tools=request.has_tools)
    fresh = [
        msgspec.structs.replace(pair_predictor, predictor=Predictor(pair_predictor.predictor.base))
        for pair_predictor in pair_predictors
    ]
    return predicted_quality(fresh, prompt)


def _rated(policy: Policy, route: Route, predictors: Predictors) -> Mapping[str, Deployment]:
    """Return the route's candidates with the quality that its choice counts with."""
    candidates = route_candidates(policy, route)
    return rated_candidates(route.select, candidates, pair_predictors_of(candidates, predictors))


def route_candidates(policy: Policy, route: Route) -> list[Deployment]:
    """Return the deployments that a route may choose, in the policy's order."""
    ids = {item.id for item in route.select.resolved()}
    return [deployment for deployment in policy.deployments if deployment.id in ids]


def _views(
    deployments: Mapping[str, Deployment], route: Route, test: PolicyTest, verdict: QualityPrediction | None
) -> list[DeploymentView]:
    return [
        _view(deployments[item.id], item.weight, test.given.get(item.id, GivenDeployment()), test.request, verdict)
        for item in route.select.resolved()
    ]


def _view(
    deployment: Deployment,
    weight: float,
    state: GivenDeployment,
    request: TestRequest,
    verdict: QualityPrediction | None,
) -> DeploymentView:
    predicted = deployment.quality if verdict is None else verdict.quality.get(deployment.id, deployment.quality)
    price = Price(request.prompt_tokens, request.prompt_tokens, request.output_tokens)
    return DeploymentView(
        id=deployment.id,
        model=deployment.model,
        is_ready=state.ready,
        in_flight=state.in_flight,
        max_in_flight=deployment.limits.max_in_flight,
        weight=weight,
        forecast_ttft_s=_seconds(state.forecast_ttft_ms),
        tpot_s=_seconds(state.tpot_ms),
        cost=cost_of(deployment.cost_per_mtok, price),
        quality=predicted if state.quality is None else state.quality,
        is_known_prompt=verdict is None or verdict.is_known or state.quality is not None,
        affinity_tokens=state.cached_tokens,
        prompt_tokens=request.prompt_tokens,
        zone=deployment.zone,
        is_same_session=state.same_session,
        distance=0 if request.zone is None or deployment.zone in (None, request.zone) else 1,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _failure(test: PolicyTest, path: Path, key: str, message: str) -> PathProblem:
    return PathProblem(path=(*path, key), message=f'test "{test.name}" failed: {message}')


def _listed(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names)}]"
