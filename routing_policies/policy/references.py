"""Checks of names in a policy: references, uniqueness, and forms that types cannot express."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from routing_policies.policy.deployment import BUILTIN_ENCODER, Deployment
from routing_policies.policy.document import Lane, Policy, Route
from routing_policies.policy.members import group_of
from routing_policies.policy.problems import Path, PathProblem, did_you_mean

RESERVED_ROUTE_IDS = frozenset({"implied-auto", "implied-direct"})
"""Ids of the implied routes; see `matching`."""
MAX_GROUP_ID = 40
"""Length of the id of a deployment with members."""
MAX_UNIX_PATH_BYTES = 107
"""Length of Linux's `sun_path` without its final NUL."""
SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})

BY_PRICE = frozenset({"least_cost_within_slo", "quality_then_latency", "cost_cap"})
"""Selection policies that compare the cost of a request."""
BY_WEIGHT = frozenset({"weighted", "sticky"})
BY_CONVERSATION = frozenset({"sticky", "canary"})
"""Selection policies under which a conversation stays at its candidate."""

OWN_HEADERS = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"),
        *("expect", "content-type", "content-encoding", "accept", "accept-encoding", "x-request-id", "traceparent"),
        *("tracestate", "proxy-authorization", "proxy-connection", "authorization"),
    }
)
"""Headers of requests to deployments that only the gateway sets; `auth` sets `authorization`."""
_OWN_PREFIX = "x-penstock-"

_AUTHORITY = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


class _Names:
    """Names that a policy defines, in its order, for lookups in constant time."""

    def __init__(self, policy: Policy) -> None:
        self.routes = dict.fromkeys(route.id for route in policy.routes)
        self.deployments = dict.fromkeys(deployment.id for deployment in policy.deployments)
        self.groups = {deployment.id for deployment in policy.deployments if deployment.discover is not None}
        """Deployments that have members."""
        self.unpriced = {deployment.id for deployment in policy.deployments if deployment.cost_per_mtok is None}
        self.tenants = dict.fromkeys(tenant.id for tenant in policy.tenants)
        self.either = {**self.routes, **self.deployments}
        """Names of routes and deployments."""


def reference_problems(policy: Policy) -> Iterator[PathProblem]:
    """Yield every broken reference, duplicate and malformed URL, in document order of the sections."""
    yield from _duplicates(policy.deployments, ("deployments",), "deployment")
    yield from _duplicates(policy.lanes, ("lanes",), "lane")
    yield from _duplicates(policy.tenants, ("tenants",), "tenant")
    yield from _duplicates(policy.routes, ("routes",), "route")
    for index, deployment in enumerate(policy.deployments):
        yield from _place_problems(deployment, ("deployments", index))
        yield from _operation_problems(deployment, ("deployments", index, "operations"))
        if deployment.tls is not None and not _is_encrypted(deployment):
            yield PathProblem(path=("deployments", index, "tls"), message="has an effect only with an https:// URL")
        yield from _header_problems(deployment, ("deployments", index))
        yield from _proxy_problems(deployment, ("deployments", index, "proxy"))
    yield from _lane_problems(policy.lanes)
    yield from _tenant_problems(policy)
    yield from _budget_problems(policy)
    names = _Names(policy)
    for index, route in enumerate(policy.routes):
        yield from _route_problems(names, route, ("routes", index))
    aliases = dict.fromkeys(name for route in policy.routes for name in route.match.models)
    yield from _unknown(policy.total, aliases, ("total",), "model in a route")
    yield from _repeated(policy.total, ("total",))
    yield from _repeated(policy.session_places, ("session_places",))
    for index, place in enumerate(policy.session_places):
        if place.removeprefix("header:") in SECRET_HEADERS:
            yield PathProblem(path=("session_places", index), message="a session cannot depend on a credential")
    yield from _test_problems(policy)


def known_models(policy: Policy) -> tuple[str, ...]:
    """Return every name a client may request: `auto`, the routes' aliases, then deployments' models and ids."""
    names = ["auto", *(name for route in policy.routes for name in route.match.models)]
    for deployment in policy.deployments:
        names += [deployment.model, group_of(deployment.id)]
    return tuple(dict.fromkeys(names))


def _duplicates(items: Sequence[_HasId], path: Path, noun: str) -> Iterator[PathProblem]:
    seen: dict[str, int] = {}
    for index, item in enumerate(items):
        if item.id in seen:
            message = f'a second {noun} named "{item.id}"; the first is {path[-1]}[{seen[item.id]}]'
            yield PathProblem(path=(*path, index, "id"), message=message)
        seen.setdefault(item.id, index)


def _place_problems(deployment: Deployment, path: Path) -> Iterator[PathProblem]:
    """Yield a place that is malformed, missing, or given twice."""
    found = deployment.discover
    if found is None:
        problem = url_problem(deployment.url) if deployment.url else '"url" is missing; or give discover'
        if problem is not None:
            yield PathProblem(path=(*path, "url") if deployment.url else path, message=problem)
        return
    if deployment.url:
        message = "has no effect beside discover, which finds the URLs of the members; remove one"
        yield PathProblem(path=(*path, "url"), message=message)
    if len(deployment.id) > MAX_GROUP_ID:
        message = f"has {len(deployment.id)} characters; with discover at most {MAX_GROUP_ID}, as members add addresses"
        yield PathProblem(path=(*path, "id"), message=message)
    if found.ray is not None:
        yield from _dashboard_problems(found.ray, (*path, "discover", "ray"))


def _dashboard_problems(url: str, path: Path) -> Iterator[PathProblem]:
    is_http = url.startswith(("http://", "https://"))
    problem = url_problem(url) if is_http else "expected the URL of a Ray dashboard, such as http://ray-head:8265"
    if problem is not None:
        yield PathProblem(path=path, message=problem)


def _is_encrypted(deployment: Deployment) -> bool:
    found = deployment.discover
    return deployment.url.startswith("https://") if found is None else found.scheme == "https"


def _operation_problems(deployment: Deployment, path: Path) -> Iterator[PathProblem]:
    for index, name in enumerate(deployment.operations or ()):
        if deployment.url == BUILTIN_ENCODER and name != "embeddings":
            yield PathProblem(path=(*path, index), message=f"{BUILTIN_ENCODER} serves embeddings only")
    yield from _repeated(deployment.operations or (), path)


def _header_problems(deployment: Deployment, path: Path) -> Iterator[PathProblem]:
    """Yield headers that would override the gateway's own, and a credential that is given twice."""
    auth = None if deployment.auth is None else deployment.auth.header
    if auth is not None and auth != "authorization" and _is_own_header(auth):
        yield PathProblem(path=(*path, "auth", "header"), message=f'"{auth}" is set by the gateway itself')
    for name in deployment.headers:
        if name == "authorization":
            message = "credentials belong into auth: {header: authorization, value_env: NAME}"
            yield PathProblem(path=(*path, "headers", name), message=message)
        elif _is_own_header(name):
            yield PathProblem(path=(*path, "headers", name), message="is set by the gateway itself; remove it")
        elif name == auth:
            yield PathProblem(path=(*path, "headers", name), message="is the header of auth already; remove one")


def _is_own_header(name: str) -> bool:
    return name in OWN_HEADERS or name.startswith(_OWN_PREFIX)


def _proxy_problems(deployment: Deployment, path: Path) -> Iterator[PathProblem]:
    proxy = deployment.proxy
    if proxy is None:
        return
    if deployment.url.startswith("unix:"):
        yield PathProblem(path=path, message="has no effect on a Unix socket; remove it")
    if not isinstance(proxy, str) or proxy == "none":
        return
    scheme, _, authority = proxy.partition("://")
    if "@" in authority:
        message = "credentials do not belong here; give url_env, a variable with the whole URL"
        yield PathProblem(path=path, message=message)
    elif scheme != "http" or url_problem(proxy) is not None or "/" in authority.rstrip("/"):
        yield PathProblem(path=path, message="expected http://host:port, none, or url_env with a variable's name")


def url_problem(url: str) -> str | None:
    """Return the fault of a deployment's URL, or None."""
    if url == BUILTIN_ENCODER:
        return None
    if url.startswith("unix:"):
        return _unix_problem(url.removeprefix("unix:"))
    if not url.isascii() or any(char.isspace() or not char.isprintable() for char in url):
        return "a URL is printable ASCII without spaces"
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("http", "https"):
        return f'"{url}" must start with unix:, http:// or https://, or be {BUILTIN_ENCODER}'
    authority = rest.partition("/")[0]
    if "@" in authority:
        return "credentials do not belong in a URL; it is shown in logs and on pages"
    if "?" in rest or "#" in rest:
        return f'"{url}" must not have a query or a fragment'
    found = _AUTHORITY.fullmatch(authority)
    if found is None or not 1 <= int(found["port"] or 80) <= 65535:
        return f'"{url}" names no host and port to connect to; write {scheme}://host or {scheme}://host:port'
    return None


def _unix_problem(path: str) -> str | None:
    if not path.startswith("/"):
        return f'"unix:{path}" needs an absolute path, such as unix:/run/penstock/small.sock'
    if "\0" in path:
        return "a socket path cannot contain NUL"
    excess = len(path.encode(errors="surrogateescape")) - MAX_UNIX_PATH_BYTES
    if excess > 0:
        return (
            f"the socket path is {excess} bytes over the system's {MAX_UNIX_PATH_BYTES}; use a shorter directory "
            "(--runtime-dir chooses ${runtime_dir})"
        )
    return None


def _lane_problems(lanes: Sequence[Lane]) -> Iterator[PathProblem]:
    known = {lane.id: lane for lane in lanes}
    for index, lane in enumerate(lanes):
        path: Path = ("lanes", index)
        yield from _unknown_one(lane.longer, list(known), (*path, "longer"), "lane")
        longer = known.get(lane.longer or "")
        most, next_most = lane.max_prompt_tokens, None if longer is None else longer.max_prompt_tokens
        if most is not None and next_most is not None and next_most <= most:  # so no chain of lanes is circular
            message = f'lane "{lane.longer}" takes no longer prompts than this one, by its own max_prompt_tokens'
            yield PathProblem(path=(*path, "longer"), message=message)
        for position, step in enumerate(lane.on_overload):
            where = (*path, "on_overload", position)
            if step in lane.on_overload[:position]:
                yield PathProblem(path=where, message=f'"{step}" is listed twice')
            elif "shed" in lane.on_overload[:position]:
                yield PathProblem(path=where, message="comes after shed, which is the end")


def _tenant_problems(policy: Policy) -> Iterator[PathProblem]:
    lanes = dict.fromkeys(lane.id for lane in policy.lanes)
    models = dict.fromkeys(known_models(policy))
    owners: dict[str, str] = {}
    for index, tenant in enumerate(policy.tenants):
        path: Path = ("tenants", index)
        yield from _unknown(tenant.lanes or (), lanes, (*path, "lanes"), "lane")
        yield from _unknown(tenant.models or (), models, (*path, "models"), "model")
        yield from _duplicates(tenant.keys, (*path, "keys"), "key")
        if tenant.lanes == ():
            yield PathProblem(path=(*path, "lanes"), message="allows no lane; leave it out to allow every lane")
        for position, key in enumerate(tenant.keys):
            if key.sha256 in owners:
                message = f'the same key already belongs to tenant "{owners[key.sha256]}"'
                yield PathProblem(path=(*path, "keys", position, "sha256"), message=message)
            owners.setdefault(key.sha256, tenant.id)


def _budget_problems(policy: Policy) -> Iterator[PathProblem]:
    unpriced = [deployment.id for deployment in policy.deployments if deployment.cost_per_mtok is None]
    for index, tenant in enumerate(policy.tenants):
        for name in ("cost_per_day", "cost_per_month"):
            if unpriced and getattr(tenant.limits.budget, name) is not None:
                message = f"cannot be counted: no cost_per_mtok is given for {', '.join(unpriced)}"
                yield PathProblem(path=("tenants", index, "limits", "budget", name), message=message)


def _route_problems(names: _Names, route: Route, path: Path) -> Iterator[PathProblem]:
    if route.id in RESERVED_ROUTE_IDS:
        yield PathProblem(path=(*path, "id"), message=f'"{route.id}" is the name of a built-in route; choose another')
    yield from _unknown(route.match.tenants or (), names.tenants, (*path, "match", "tenants"), "tenant")
    for name in route.match.headers:
        if name in SECRET_HEADERS:
            yield PathProblem(path=(*path, "match", "headers", name), message="a route cannot depend on a credential")
    deployments = names.deployments
    where = (*path, "select", "candidates")
    candidates = route.select.resolved()
    ids = [candidate.id for candidate in candidates]
    yield from _unknown(ids, deployments, where, "deployment")
    if route.select.policy in BY_PRICE:
        yield from _price_problems(names, ids, where, route.select.policy)
    if route.select.policy == "cascade" and len(ids) != 2:
        message = f"a cascade goes from one deployment to another, so it has two candidates; this one has {len(ids)}"
        yield PathProblem(path=where, message=message)
    if route.select.hedge is not None and route.select.policy == "cascade":
        yield PathProblem(path=(*path, "select", "hedge"), message="has no effect with policy cascade; remove it")
    if route.select.shadow is not None:
        yield from _unknown_one(route.select.shadow.id, deployments, (*path, "select", "shadow", "id"), "deployment")
    yield from _explore_problems(route, (*path, "select", "explore"))
    if route.select.canary is not None:
        yield from _unknown_one(route.select.canary.id, ids, (*path, "select", "canary", "id"), "candidate")
    yield from _repeated(ids, where)
    for index, candidate in enumerate(candidates):
        if route.select.policy not in BY_WEIGHT and candidate.weight != 1.0:
            message = (
                f"a weight has no effect with policy {route.select.policy}; use weighted or sticky, or leave it out"
            )
            yield PathProblem(path=(*where, index), message=message)
    yield from _fallback_problems(names, route, (*path, "select", "fallback"))
    if route.cache.auditor is not None:
        where = (*path, "cache", "auditor")
        yield from _unknown_one(route.cache.auditor, deployments, where, "deployment")
        if route.cache.mode != "exact_then_semantic":
            yield PathProblem(path=where, message="has an effect only with mode exact_then_semantic")
    if route.cache.history != "exact" and route.cache.mode != "exact_then_semantic":
        yield PathProblem(path=(*path, "cache", "history"), message="has an effect only with mode exact_then_semantic")
    if route.select.hedge is not None and len(ids) == 1 and ids[0] not in names.groups:
        yield PathProblem(path=(*path, "select", "hedge"), message="has no effect with a single candidate; remove it")


def _explore_problems(route: Route, path: Path) -> Iterator[PathProblem]:
    explore, ids = route.select.explore, [candidate.id for candidate in route.select.resolved()]
    if explore is None:
        return
    if len(ids) == 1:
        yield PathProblem(path=path, message="has no effect with a single candidate; remove it")
    if route.select.policy == "cascade":
        message = "has no effect with policy cascade, whose first tokens decide who answers; remove it"
        yield PathProblem(path=path, message=message)
    if route.select.policy in BY_CONVERSATION and not explore.sessions:
        message = (
            f"has no effect with policy {route.select.policy}, which binds every conversation to a candidate; "
            "remove it, or state sessions: true"
        )
        yield PathProblem(path=path, message=message)
    for name in explore.weights:
        yield from _unknown_one(name, ids, (*path, "weights", name), "candidate")


def _fallback_problems(names: _Names, route: Route, path: Path) -> Iterator[PathProblem]:
    routes, deployments, seen = names.routes, names.deployments, set[str]()
    candidates = {candidate.id for candidate in route.select.resolved()}
    yield from _unknown(route.select.fallback, names.either, path, "route or deployment")
    for index, name in enumerate(route.select.fallback):
        if name in seen:
            yield PathProblem(path=(*path, index), message=f'"{name}" is listed twice')
        elif name in routes and name in deployments:
            yield PathProblem(path=(*path, index), message=f'"{name}" is both a route and a deployment; rename one')
        elif name == route.id:
            yield PathProblem(path=(*path, index), message="a route cannot fall back on itself")
        elif name in candidates and name not in routes:
            yield PathProblem(path=(*path, index), message=f'"{name}" is a candidate of this route already')
        seen.add(name)


def _price_problems(names: _Names, ids: Sequence[str], path: Path, chooses_by: str) -> Iterator[PathProblem]:
    for index, name in enumerate(ids):
        if name in names.unpriced:
            message = f'"{name}" has no cost_per_mtok, so {chooses_by} cannot compare it'
            yield PathProblem(path=(*path, index), message=message)


def _test_problems(policy: Policy) -> Iterator[PathProblem]:
    names = _Names(policy)
    tenants, deployments = names.tenants, names.deployments
    lanes = [lane.id for lane in policy.lanes]
    routes = {**names.routes, **dict.fromkeys(sorted(RESERVED_ROUTE_IDS))}
    seen: set[str] = set()
    for index, test in enumerate(policy.tests):
        path: Path = ("tests", index)
        if test.name in seen:
            yield PathProblem(path=(*path, "name"), message="a second test with this name")
        seen.add(test.name)
        yield from _unknown_one(test.request.tenant, tenants, (*path, "request", "tenant"), "tenant")
        yield from _unknown_one(test.request.lane, lanes, (*path, "request", "lane"), "lane")
        yield from _unknown_one(test.expect.route, routes, (*path, "expect", "route"), "route")
        yield from _unknown_one(test.expect.deployment, deployments, (*path, "expect", "deployment"), "deployment")
        yield from _unknown(test.expect.candidates or (), deployments, (*path, "expect", "candidates"), "deployment")
        for name in test.given:
            yield from _unknown_one(name, deployments, (*path, "given", name), "deployment")


def _unknown(names: Iterable[str], known: Collection[str], path: Path, noun: str) -> Iterator[PathProblem]:
    for index, name in enumerate(names):
        yield from _unknown_one(name, known, (*path, index), noun)


def _unknown_one(name: str | None, known: Collection[str], path: Path, noun: str) -> Iterator[PathProblem]:
    if name is not None and name not in known:
        yield PathProblem(path=path, message=f'no {noun} named "{name}"{did_you_mean(name, known)}')


def _repeated(names: Iterable[str], path: Path) -> Iterator[PathProblem]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield PathProblem(path=(*path, index), message=f'"{name}" is listed twice')
        seen.add(name)
