"""The first requests of a new installation, ready to paste, and what to look at in the answers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gateway.cli.supervisor.probe import base_url_of
from routing_policies.policy.document import Policy

BUNDLED_MODELS: Final = frozenset({"penstock-small", "penstock-large"})
QUESTION: Final = "How much does shipping to Croatia cost?"
"""A question that the bundled small model answers, and is predicted to answer."""
SAME_QUESTION: Final = "What does shipping to Croatia cost?"
HARD_QUESTION: Final = "Which of Croatia or Hungary has the lowest shipping price?"
"""A question that is predicted to be beyond the small model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRun:
    """Facts that a start prints for its user."""

    needs_key: bool
    """True if clients need an API key."""
    has_tour: bool = False
    """True if the policy caches and routes the bundled models as the further requests show."""
    explain: str = "penstock explain ID"
    """The command that explains a request of this process."""


def first_run_of(policy: Policy, explain: str = "penstock explain ID") -> FirstRun:
    """Return what a start with this policy tells its user."""
    auto = next((route for route in policy.routes if "auto" in route.match.models), None)
    has_tour = (
        auto is not None
        and auto.select.policy == "cascade"
        and auto.cache.mode == "exact_then_semantic"
        and {deployment.model for deployment in policy.deployments} >= BUNDLED_MODELS
    )
    return FirstRun(needs_key=policy.has_keys, has_tour=has_tour, explain=explain)


def first_request(public: str, first_run: FirstRun, *, is_tls: bool = False) -> str:
    """Return example requests for curl and OpenAI's library; `public` is the address of the listener."""
    return "\n\n".join(_parts(_Curl(public, needs_key=first_run.needs_key, is_tls=is_tls), first_run))


def _parts(curl: _Curl, first_run: FirstRun) -> Iterator[str]:
    if not first_run.has_tour:
        yield curl.request(QUESTION)
        if not curl.is_socket:
            yield _python(curl.base, needs_key=first_run.needs_key)
        return
    yield (
        "The two bundled models know a made-up shop, sums and small text tasks, in English, and nothing else.\n"
        "Paste these one after the other:"
    )
    yield f"# 1. Answered by a model; x-penstock-deployment says which (small)\n{curl.request(QUESTION)}"
    yield (
        "# 2. The same again: x-penstock-cache says hit-exact, and no model computes.\n"
        f'#    In other words, such as "{SAME_QUESTION}", it is hit-semantic when found before a model answers.\n'
        f"{curl.request(QUESTION)}"
    )
    yield (
        "# 3. A harder question: x-penstock-deployment says large. (no-cache: a model answers however often you ask.)\n"
        f"#    {first_run.explain} tells why; ID is the answer's x-request-id.\n"
        f"{curl.request(HARD_QUESTION, 'cache-control: no-cache')}"
    )
    if not curl.is_socket:
        yield f"# From code, with OpenAI's library\n{_python(curl.base, needs_key=first_run.needs_key)}"


class _Curl:
    """Requests as curl sends them to one address."""

    def __init__(self, public: str, *, needs_key: bool, is_tls: bool) -> None:
        self.is_socket = public.startswith("unix:")
        self.base = "http://penstock" if self.is_socket else base_url_of(public, is_tls=is_tls)
        self._option = f" --unix-socket {shlex.quote(public.removeprefix('unix:'))}" if self.is_socket else ""
        self._key = ' -H "authorization: Bearer $OPENAI_API_KEY"' if needs_key else ""

    def request(self, question: str, *headers: str) -> str:
        """Return a command that prints the answer with its headers."""
        body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": question}]})
        more = "".join(f" -H {shlex.quote(header)}" for header in ("content-type: application/json", *headers))
        return f"curl{self._option} {self.base}/v1/chat/completions -i{more}{self._key} \\\n  -d '{body}'"


def _python(base: str, *, needs_key: bool) -> str:
    key = "" if needs_key else ', api_key="none"'
    return (
        "from openai import OpenAI\n"
        f'client = OpenAI(base_url="{base}/v1"{key})\n'
        f'messages = [{{"role": "user", "content": "{QUESTION}"}}]\n'
        'print(client.chat.completions.create(model="auto", messages=messages).choices[0].message.content)'
    )
