"""The Serve config of `penstock ray deploy`: the engine's application beside others of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

IMPORT_PATH: Final = "deploy.ray.app:app"


class ServedApplication(msgspec.Struct, frozen=True):
    """One application in the answer of `GET /api/serve/applications/`."""

    status: str = ""
    message: str = ""
    deployed_app_config: dict[str, Any] | None = None
    """Config that it was deployed with; None for one that a program started."""


class ServeDetails(msgspec.Struct, frozen=True):
    """The part of that answer which a deployment reads."""

    proxy_location: str | None = None
    http_options: dict[str, Any] | None = None
    applications: dict[str, ServedApplication] = {}


def application(
    name: str, arguments: Mapping[str, Any], *, route_prefix: str = "/", working_dir: str | None = None
) -> dict[str, Any]:
    """Return one application of a Serve config.

    Args:
        name: Name of the application.
        arguments: The `args` of its builder.
        route_prefix: Path in front of its requests.
        working_dir: URI of a checkout that the replicas' processes import from; None where their image has one.
    """
    environment = {} if working_dir is None else {"runtime_env": {"working_dir": working_dir}}
    return {
        "name": name,
        "route_prefix": route_prefix,
        "import_path": IMPORT_PATH,
        "args": dict(arguments),
        **environment,
    }


def serve_document(found: ServeDetails, own: dict[str, Any], *, port: int) -> dict[str, Any]:
    """Return the config to send: Serve removes every application that it does not list.

    Proxies that run stay as they are, because Serve cannot change them while they do.
    """
    others = [
        one.deployed_app_config
        for name, one in found.applications.items()
        if name != own["name"] and one.deployed_app_config is not None
    ]
    options = found.http_options or {"host": "0.0.0.0", "port": port}
    return {
        "proxy_location": found.proxy_location or "EveryNode",
        "http_options": {key: value for key, value in options.items() if key in ("host", "port")},
        "applications": [*others, own],
    }
