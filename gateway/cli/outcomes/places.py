"""Where the models of a comparison are: servers by URL, or deployments of the gateway that runs."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from gateway.cli.admin_client import START_REMEDY, open_client
from gateway.cli.commands import CommandError, UsageError, settings
from gateway.cli.outcomes.model_server import ModelServer, Prices
from gateway.cli.supervisor.launch import LaunchError
from gateway.cli.supervisor.model_facts import find_model_facts, is_url
from gateway.cli.supervisor.probe import base_url_of
from gateway.config.running import running_product
from gateway.http.certificate import CertificateError, pinning_context
from routing_policies.loading import load_policy
from routing_policies.policy.document import Deployment
from routing_policies.policy.problems import PolicyError

_MAX_SHOWN: Final = 12


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
        raise CommandError(str(error)) from error
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
