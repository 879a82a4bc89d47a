"""The first requests of a new installation, ready to paste, and what to look at in the answers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from gateway.cli.supervisor.probe import base_url_of
from gateway.cli.supervisor.served_model import PACKAGED_MODEL
from routing_policies.operations import operations_of
from routing_policies.policy.document import Policy, Route

BUNDLED_MODELS: Final = frozenset({"penstock-small", "penstock-large"})
QUESTION: Final = "How much does shipping to Croatia cost?"
"""A question that the bundled small model answers, and is predicted to answer."""
SAME_QUESTION: Final = "What does shipping to Croatia cost?"
HARD_QUESTION: Final = "Which of Croatia or Hungary has the lowest shipping price?"
"""A question that is predicted to be beyond the small model."""
ANY_QUESTION: Final = "Write a haiku about rain on a tin roof."
"""A request that every general model has an answer to."""
ANY_BEGINNING: Final = "The best thing about rain on a tin roof is"
"""A beginning that every model which only continues texts can continue."""

Tour = Literal["first_run", "pair", "plain", "completions"]

SHOP_KNOWS: Final = "a made-up shop, sums and small text tasks, in English, and nothing else"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRun:
    """Facts that a start prints for its user."""

    needs_key: bool
    """True if clients need an API key."""
    tour: Tour = "plain"
    """Requests that show what the policy does: the real model and the shop, the bundled pair, or any model."""
    explain: str = "penstock explain ID"
    """The command that explains a request of this process."""


def first_run_of(policy: Policy, explain: str = "penstock explain ID") -> FirstRun:
    """Return what a start with this policy tells its user."""
    return FirstRun(needs_key=policy.has_keys, tour=_tour_of(policy), explain=explain)


def first_request(public: str, first_run: FirstRun, *, is_tls: bool = False) -> str:
    """Return example requests for curl and OpenAI's library; `public` is the address of the listener."""
    curl = _Curl(public, needs_key=first_run.needs_key, is_tls=is_tls)
    parts = {"first_run": _first_run, "pair": _pair, "plain": _plain, "completions": _completions}
    return "\n\n".join(parts[first_run.tour](curl, first_run))


def _tour_of(policy: Policy) -> Tour:
    routes = {name: route for route in reversed(policy.routes) for name in route.match.models}
    models = {deployment.id: deployment.model for deployment in policy.deployments}
    auto, shop = routes.get("auto"), routes.get("shop")
    if auto is None:
        return "plain"
    if _shows_pair(auto, models):
        return "pair"
    served = [models.get(candidate.id) for candidate in auto.select.resolved()]
    if served == [PACKAGED_MODEL] and shop is not None and _shows_pair(shop, models):
        return "first_run"
    able = [operations_of(one) for one in policy.deployments if one.model in served]
    return "completions" if able and not any("chat" in operations for operations in able) else "plain"


def _shows_pair(route: Route, models: dict[str, str]) -> bool:
    """Return whether a route caches and routes the bundled models as the requests show."""
    served = {models.get(candidate.id) for candidate in route.select.resolved()}
    return served == BUNDLED_MODELS and route.select.policy == "cascade" and route.cache.mode == "exact_then_semantic"


def _first_run(curl: _Curl, first_run: FirstRun) -> Iterator[str]:
    yield (
        "`auto` is SmolLM2 135M Instruct, a small general model that often errs on facts, sums and code.\n"
        f"`shop` is two toy models that know {SHOP_KNOWS}.\n"
        "Paste these one after the other:"
    )
    yield (
        "# 1. Answered by the real model; x-penstock-deployment says model, or cache after an earlier start\n"
        f"{curl.chat(ANY_QUESTION)}"
    )
    yield f"# 2. The same again: x-penstock-cache says hit-exact, and no model computes\n{curl.chat(ANY_QUESTION)}"
    yield (
        "# 3. Routing between the toys: x-penstock-deployment says small for this question, or cache\n"
        f"{curl.chat(QUESTION, model='shop')}"
    )
    yield (
        "# 4. and large for a harder one. (no-cache: a model answers however often you ask.)\n"
        f"#    {first_run.explain} tells why; ID is the answer's x-request-id.\n"
        f"{curl.chat(HARD_QUESTION, 'cache-control: no-cache', model='shop')}"
    )
    yield from _library(curl, ANY_QUESTION)


def _pair(curl: _Curl, first_run: FirstRun) -> Iterator[str]:
    yield f"The two bundled models know {SHOP_KNOWS}.\nPaste these one after the other:"
    yield (
        "# 1. Answered by a model; x-penstock-deployment says which (small), or cache after an earlier start\n"
        f"{curl.chat(QUESTION)}"
    )
    yield (
        "# 2. The same again: x-penstock-cache says hit-exact, and no model computes.\n"
        f'#    In other words, such as "{SAME_QUESTION}", it is hit-semantic when found before a model answers.\n'
        f"{curl.chat(QUESTION)}"
    )
    yield (
        "# 3. A harder question: x-penstock-deployment says large. (no-cache: a model answers however often you ask.)\n"
        f"#    {first_run.explain} tells why; ID is the answer's x-request-id.\n"
        f"{curl.chat(HARD_QUESTION, 'cache-control: no-cache')}"
    )
    yield from _library(curl, QUESTION)


def _plain(curl: _Curl, first_run: FirstRun) -> Iterator[str]:
    yield curl.chat(ANY_QUESTION)
    if not curl.is_socket:
        yield _python(curl, ANY_QUESTION)


def _completions(curl: _Curl, first_run: FirstRun) -> Iterator[str]:
    yield "# The model has no chat template: it continues texts and holds no conversation"
    yield curl.send("completions", {"model": "auto", "prompt": ANY_BEGINNING, "max_tokens": 32})


def _library(curl: _Curl, question: str) -> Iterator[str]:
    if not curl.is_socket:
        yield f"# From code, with OpenAI's library\n{_python(curl, question)}"


class _Curl:
    """Requests as curl sends them to one address."""

    def __init__(self, public: str, *, needs_key: bool, is_tls: bool) -> None:
        self.is_socket = public.startswith("unix:")
        self.needs_key = needs_key
        self.base = "http://penstock" if self.is_socket else base_url_of(public, is_tls=is_tls)
        self._option = f" --unix-socket {shlex.quote(public.removeprefix('unix:'))}" if self.is_socket else ""
        self._key = ' -H "authorization: Bearer $OPENAI_API_KEY"' if needs_key else ""

    def chat(self, question: str, *headers: str, model: str = "auto") -> str:
        """Return a command that prints the answer with its headers."""
        return self.send("chat/completions", {"model": model, "messages": _messages(question)}, *headers)

    def send(self, path: str, body: dict[str, object], *headers: str) -> str:
        """Return a command that sends a body to a path below `/v1` and prints the response with its headers."""
        more = "".join(f" -H {shlex.quote(header)}" for header in ("content-type: application/json", *headers))
        return f"curl{self._option} {self.base}/v1/{path} -i{more}{self._key} \\\n  -d '{json.dumps(body)}'"


def _messages(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def _python(curl: _Curl, question: str) -> str:
    key = "" if curl.needs_key else ', api_key="none"'
    return (
        "from openai import OpenAI\n"
        f'client = OpenAI(base_url="{curl.base}/v1"{key})\n'
        f"messages = {json.dumps(_messages(question))}\n"
        'print(client.chat.completions.create(model="auto", messages=messages).choices[0].message.content)'
    )
