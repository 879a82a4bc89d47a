"""The command `penstock policy outcomes`: what to compare and where it is, what it may cost, and what came of it."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from gateway.cli.actions import print_json
from gateway.cli.admin_client import START_REMEDY, open_client
from gateway.cli.commands import CommandError, UsageError, settings
from gateway.cli.outcomes.answer_check import require_answers
from gateway.cli.outcomes.answer_comparer import AnswerComparer
from gateway.cli.outcomes.gathering import CostEstimate, Gathered, ModelComparison, estimated, gather_outcomes
from gateway.cli.outcomes.model_server import ModelServer, Prices
from gateway.cli.outcomes.prompt_file import ComparedPrompt, OutcomeFile, OutcomesError, read_prompts
from gateway.cli.outcomes.quality_training import MIN_PROMPTS
from gateway.cli.supervisor.launch import LaunchError
from gateway.cli.supervisor.model_facts import find_model_facts, is_url
from gateway.cli.supervisor.probe import base_url_of
from gateway.config.running import running_product
from gateway.http.certificate import CertificateError, pinning_context
from routing_policies.loading import load_policy
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.problems import PolicyError

TIMEOUT_S: Final = 300.0
_PROGRESS_STEP: Final = 25
_MAX_SHOWN: Final = 12
_MOST_CONTRADICTED: Final = 0.25
"""Share of contradictory verdicts above which a comparer is not to be relied on."""


def policy_outcomes(options: argparse.Namespace) -> int:
    """Compare two models on a file of prompts; 1 when some prompts failed."""
    try:
        return _compare(options)
    except OutcomesError as error:
        raise CommandError(str(error)) from error


def _compare(options: argparse.Namespace) -> int:
    prompts = read_prompts(options.prompts)[: options.limit]
    if options.check is not None:
        require_answers(options.check, prompts)
    places = model_places(options)
    limits = httpx.Limits(max_connections=4 * options.concurrency)
    clients = {
        role: httpx.AsyncClient(
            headers=_key_headers(options, role), timeout=TIMEOUT_S, limits=limits, **place.connection
        )
        for role, place in places.items()
    }
    servers = {role: place.server(clients[role]) for role, place in places.items()}
    comparison = ModelComparison(
        small=servers["small"],
        large=servers["large"],
        scorer=options.check or AnswerComparer(servers["judge"]),
        max_tokens=options.max_tokens,
    )
    file = OutcomeFile(options.out, (comparison.small.name, comparison.large.name))
    left = [one for one in prompts if one.key not in file.keys]
    if left:
        _confirm(options, estimated(comparison, left), len(left), len(prompts) - len(left))
    with file:
        done = asyncio.run(_gathered(options, comparison, left, file, [*clients.values()]))
    return _report(options, comparison, done, len(prompts) - len(left), has_odds=done.has_odds or file.has_odds)


async def _gathered(
    options: argparse.Namespace,
    comparison: ModelComparison,
    left: list[ComparedPrompt],
    file: OutcomeFile,
    clients: list[httpx.AsyncClient],
) -> Gathered:
    async with AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(client)
        try:
            return await gather_outcomes(
                comparison,
                left,
                file,
                concurrency=options.concurrency,
                on_progress=_progress(len(left)),
                on_failure=lambda message: print(f"a prompt failed: {message}", file=sys.stderr),
            )
        except (asyncio.CancelledError, OutcomesError):
            if file.num_bytes:
                shown = f"{options.out} keeps the outcomes so far; the same command goes on with the rest"
                print(shown, file=sys.stderr)
            raise


def _key_headers(options: argparse.Namespace, role: str) -> dict[str, str]:
    flag, name = f"--{role}-key-env", getattr(options, f"{role}_key_env")
    if name is None:
        flag, name = "--key-env", options.key_env
    if name is None:
        return {}
    key = os.environ.get(name, "")
    if not key:
        raise UsageError(f"{flag}: the environment has no {name}")
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"{flag}: {name} holds characters that no key has")
    return {"authorization": f"Bearer {key}"}


def _confirm(options: argparse.Namespace, estimate: CostEstimate, num_left: int, num_done: int) -> None:
    """Print the estimate to stderr, and prompt unless `--yes` is given. Raises CommandError or UsageError."""
    already = f", {num_done} have outcomes already" if num_done else ""
    print(f"{num_left} prompts to compare{already}; at most:", file=sys.stderr)
    for role, num in estimate.num_requests.items():
        cost = estimate.costs[role]
        priced = f"cost unknown (--{role}-prices)" if cost is None else f"cost {cost:.4g}"
        tokens = f"{estimate.num_prompt_tokens[role]:,} + {estimate.num_completion_tokens[role]:,} tokens"
        print(f"  {role:<6} {num:,} requests, {tokens}, {priced}", file=sys.stderr)
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("no terminal to prompt; give --yes to go ahead")
    print("go ahead? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("no request was sent")


def _progress(num: int) -> Any:
    def show(num_done: int) -> None:
        if num_done % _PROGRESS_STEP == 0 or num_done == num:
            print(f"{num_done} of {num} prompts", file=sys.stderr)

    return show


def _report(
    options: argparse.Namespace, comparison: ModelComparison, done: Gathered, num_before: int, *, has_odds: bool
) -> int:
    small, large = comparison.small.name, comparison.large.name
    num = num_before + done.num_done
    if options.json:
        print_json(
            {
                "file": str(options.out),
                "weak": small,
                "strong": large,
                "num_outcomes": num,
                "num_failed": done.num_failed,
                "has_logprobs": has_odds,
            }
        )
    else:
        print(f"{options.out}: outcomes of {num} prompts")
        train = ["penstock", "policy", "train", "--data", str(options.out), "--weak", small, "--strong", large]
        later = f" (it needs {MIN_PROMPTS} outcomes)" if num < MIN_PROMPTS else ""
        print(f"next: {shlex.join([*train, '--out', 'pair.json'])}{later}")
    for warning in _warnings(options, comparison, done, has_odds=has_odds or not num):
        print(f"warning: {warning}", file=sys.stderr)
    if done.num_failed:
        print(f"{done.num_failed} prompts failed, as above; run it again to retry them", file=sys.stderr)
        return 1
    return 0


def _warnings(
    options: argparse.Namespace, comparison: ModelComparison, done: Gathered, *, has_odds: bool
) -> Iterator[str]:
    """Yield what makes the outcomes say less than they seem to."""
    if not has_odds:
        yield (
            f"{comparison.small.name} states no log probabilities, so these outcomes teach a cascade which prompts "
            "to skip and nothing about the first tokens of an answer"
        )
    for role, server in (("small", comparison.small), ("large", comparison.large)):
        if num_empty := done.num_empty.get(role, 0):
            yield f"{num_empty} of {done.num_done} answers of {server.name} have no text and count as wrong"
        if num_cut := done.num_cut.get(role, 0):
            yield (
                f"{num_cut} of {done.num_done} answers of {server.name} ended at {options.max_tokens} tokens; "
                "--max-tokens allows more, which a model that thinks first needs"
            )
    scorer = comparison.scorer
    if isinstance(scorer, AnswerComparer) and scorer.num_contradicted > _MOST_CONTRADICTED * scorer.num_compared:
        yield (
            f"{scorer.server.name} preferred another answer in the other order for {scorer.num_contradicted} of "
            f"{scorer.num_compared} pairs, which count as ties; another judge would say more"
        )


class ModelPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One model's server."""

    url: str
    """Base URL, up to and including `/v1`."""
    name: str
    served_as: str
    prices: Prices | None
    connection: dict[str, Any] = {}
    """Arguments of an HTTP client that reaches the server."""

    def server(self, client: httpx.AsyncClient) -> ModelServer:
        """Return the client of the model."""
        return ModelServer(client, url=self.url, name=self.name, served_as=self.served_as, prices=self.prices)


def model_places(options: argparse.Namespace, *, transport: httpx.BaseTransport | None = None) -> dict[str, ModelPlace]:
    """Return the place of each role that the flags name.

    Args:
        options: The command's flags.
        transport: What sends requests to servers, in tests.

    Raises:
        CommandError: A server or the gateway does not answer.
        UsageError: A flag is wrong.
    """
    named = {role: text for role in ("small", "large", "judge") if (text := getattr(options, role)) is not None}
    prices = {role: _prices(role, getattr(options, f"{role}_prices")) for role in named}
    gateway = None if all(map(is_url, named.values())) else _Gateway(options)
    places = {
        role: _at_url(text, prices[role], transport)
        if is_url(text)
        else _require(gateway).place(role, text, prices[role])
        for role, text in named.items()
    }
    if places["small"].name == places["large"].name:
        raise UsageError(f"--large: is {places['large'].name}, as --small is; outcomes need two names")
    return places


def _prices(role: str, text: str | None) -> Prices | None:
    if text is None:
        return None
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != 2 or not all(math.isfinite(price) and price >= 0.0 for price in found):
        raise UsageError(f"--{role}-prices: expected two prices such as 0.1,0.4, got {text!r}")
    return Prices(*found)


def _at_url(text: str, prices: Prices | None, transport: httpx.BaseTransport | None) -> ModelPlace:
    url, _, wanted = text.partition("#")
    try:
        base = url.rstrip("/") if httpx.URL(url).path.strip("/") else f"{url.rstrip('/')}/v1"
        name = wanted or find_model_facts([text], transport=transport)[0].name
    except httpx.InvalidURL as error:
        raise UsageError(f"{text}: {error}") from error
    except LaunchError as error:
        hint = "" if wanted else f"; {url}#MODEL names a model without the list"
        raise CommandError(f"{error}{hint}") from error
    return ModelPlace(url=base, name=name, served_as=name, prices=prices)


def _require(gateway: _Gateway | None) -> _Gateway:
    assert gateway is not None, "a deployment is only looked up where one is named"
    return gateway


class _Gateway:
    """The gateway of the runtime directory, and its deployments."""

    def __init__(self, options: argparse.Namespace) -> None:
        config = settings(options)
        running = running_product(config.process.runtime_dir)
        if running is None:
            raise CommandError(
                f"no penstock runs in {config.process.runtime_dir}; {START_REMEDY}, or name models by URL"
            )
        listen, cert = running.public_listener
        is_socket = listen.startswith("unix:")
        base = "http://localhost" if is_socket else base_url_of(listen, is_tls=cert is not None)
        self._url = f"{base}/v1"
        self._connection: dict[str, Any] = {"trust_env": False, **_verification(cert)}
        if is_socket:
            self._connection["transport"] = httpx.AsyncHTTPTransport(uds=listen.removeprefix("unix:"))
        with open_client(options) as client:
            document = client.get("policy")["document"]
        try:
            policy = load_policy(document, source="the gateway's policy", variables=config.process.policy_variables)
        except PolicyError as error:
            raise CommandError(str(error)) from error
        self._deployments: Mapping[str, Deployment] = {one.id: one for one in policy.deployments}

    def place(self, role: str, id: str, prices: Prices | None) -> ModelPlace:
        """Return the place of a deployment, which answers to its id as the model."""
        found = self._deployments.get(id)
        if found is None:
            shown = ", ".join([*self._deployments][:_MAX_SHOWN])
            raise UsageError(f"--{role}: the gateway has no deployment {id}; it has {shown}")
        rates = found.cost_per_mtok
        known = None if rates is None else Prices(rates.prompt, rates.completion)
        return ModelPlace(
            url=self._url, name=found.model, served_as=id, prices=prices or known, connection=self._connection
        )


def _verification(cert: Path | None) -> dict[str, Any]:
    try:
        return {} if cert is None else {"verify": pinning_context(cert)}
    except CertificateError as error:
        raise UsageError(f"public.{error}") from error
