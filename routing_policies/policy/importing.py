"""Conversion of a LiteLLM proxy configuration to a policy, with a list of the parts that have no counterpart.

It converts `model_list`: deployments, names, weights, timeouts and prices. Of `router_settings` it converts the
strategy, the aliases, the fallbacks and the timeout. Secrets are never copied: `os.environ/NAME` becomes the name, and
a key in the file is left out and reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

MAX_CONFIG_BYTES: Final = 1024 * 1024

_ENVIRONMENT: Final = "os.environ/"
_PROVIDERS: Final[dict[str, tuple[str, str]]] = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together_ai": ("https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    "fireworks_ai": ("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
}
"""Providers with OpenAI's API: URL, and the usual variable with the key."""
_COMPATIBLE: Final = frozenset({*_PROVIDERS, "hosted_vllm", "openai_like", "custom_openai", "text-completion-openai"})
_STRATEGIES: Final = {
    "simple-shuffle": "weighted",
    "least-busy": "least_in_flight",
    "latency-based-routing": "latency_first",
    "cost-based-routing": "least_cost_within_slo",
}
_TIMEOUTS: Final = {"connect_ms": 1_000, "first_token_ms": 30_000, "inter_token_ms": 10_000}
_KNOWN_PARAMS: Final = frozenset(
    {"model", "api_base", "api_key", "weight", "timeout", "input_cost_per_token", "output_cost_per_token"}
)
_KNOWN_SETTINGS: Final = frozenset({"routing_strategy", "model_group_alias", "fallbacks", "timeout"})


class ImportFailed(ValueError):
    """Error for a configuration that nothing can be converted from."""


class Imported(msgspec.Struct, frozen=True):
    """Converted document, as JSON values, and notes for review."""

    document: dict[str, Any]
    notes: tuple[str, ...]


class _Reader:
    """Converter that collects notes."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.notes: list[str] = []
        self.deployments: list[dict[str, Any]] = []
        self.groups: dict[str, list[dict[str, Any]]] = {}
        self.timeouts: dict[str, float] = {}
        self._config = config
        self._ids: set[str] = set()

    def read(self) -> Imported:
        """Convert the whole configuration."""
        for index, entry in enumerate(_list(self._config, "model_list")):
            self._entry(entry if isinstance(entry, Mapping) else {}, f"model_list[{index}]")
        if not self.deployments:
            raise ImportFailed("model_list: nothing in it can be reached by OpenAI's API\n" + "\n".join(self.notes))
        settings = _mapping(self._config, "router_settings")
        routes = self._routes(settings)
        for key in self._config.keys() - {"model_list", "router_settings"}:
            self.notes.append(f"{key}: has no counterpart, or belongs into penstock.toml; left out")
        for key in settings.keys() - _KNOWN_SETTINGS:
            self.notes.append(f"router_settings.{key}: left out")
        return Imported({"schema_version": 1, "deployments": self.deployments, "routes": routes}, tuple(self.notes))

    def _entry(self, entry: Mapping[str, Any], place: str) -> None:
        params = _mapping(entry, "litellm_params")
        name, model = str(entry.get("model_name", "")), str(params.get("model", ""))
        if not name or not model:
            self.notes.append(f"{place}: no model_name or no litellm_params.model; left out")
            return
        provider, _, rest = model.partition("/")
        if provider not in _COMPATIBLE:
            provider, rest = ("", model) if params.get("api_base") else (provider, rest)
        url = self._url(params, provider, place)
        if url is None:
            return
        deployment: dict[str, Any] = {"id": self._free_id(name), "url": url, "model": rest or model}
        self._add_key(deployment, params, provider, place)
        self._add_prices(deployment, params)
        self.deployments.append(deployment)
        member = {"id": deployment["id"], **({"weight": params["weight"]} if _is_weight(params.get("weight")) else {})}
        self.groups.setdefault(name, []).append(member)
        if isinstance(params.get("timeout"), int | float):
            self.timeouts[name] = float(params["timeout"])
        for key in params.keys() - _KNOWN_PARAMS:
            self.notes.append(f"{place}.litellm_params.{key}: left out{_advice(key)}")

    def _url(self, params: Mapping[str, Any], provider: str, place: str) -> str | None:
        base = params.get("api_base")
        if isinstance(base, str) and base.startswith(_ENVIRONMENT):
            self.notes.append(f"{place}: its api_base is in a variable; write the URL into the policy")
            return f"https://{base.removeprefix(_ENVIRONMENT).lower().replace('_', '-')}.invalid/v1"
        if isinstance(base, str):
            return base.rstrip("/")
        if provider in _PROVIDERS:
            return _PROVIDERS[provider][0]
        self.notes.append(f"{place}: {provider or 'this provider'} does not speak OpenAI's API; left out")
        return None

    def _add_key(self, deployment: dict[str, Any], params: Mapping[str, Any], provider: str, place: str) -> None:
        key = params.get("api_key")
        if isinstance(key, str) and key.startswith(_ENVIRONMENT):
            deployment["auth"] = {"bearer_env": key.removeprefix(_ENVIRONMENT)}
        elif provider in _PROVIDERS and not params.get("api_base"):
            deployment["auth"] = {"bearer_env": _PROVIDERS[provider][1]}
        if isinstance(key, str) and not key.startswith(_ENVIRONMENT):
            self.notes.append(
                f"{place}: a key stands in the file; it was not copied. Name a variable in auth.bearer_env"
            )

    def _add_prices(self, deployment: dict[str, Any], params: Mapping[str, Any]) -> None:
        prices = params.get("input_cost_per_token"), params.get("output_cost_per_token")
        if all(isinstance(price, int | float) for price in prices):
            prompt, completion = (float(price) * 1e6 for price in prices if price is not None)
            deployment["cost_per_mtok"] = {"prompt": round(prompt, 6), "completion": round(completion, 6)}

    def _routes(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        strategy = settings.get("routing_strategy", "simple-shuffle")
        policy = _STRATEGIES.get(str(strategy))
        is_priced = all("cost_per_mtok" in deployment for deployment in self.deployments)
        if policy is None or (policy == "least_cost_within_slo" and not is_priced):
            why = "has no counterpart" if policy is None else "needs a price for every deployment"
            self.notes.append(f"router_settings.routing_strategy: {strategy} {why}; latency_first instead")
            policy = "latency_first"
        aliases = {str(alias): str(name) for alias, name in _mapping(settings, "model_group_alias").items()}
        fallbacks = self._fallbacks(settings)
        routes = []
        for name, members in self.groups.items():
            select: dict[str, Any] = {"policy": policy, "candidates": self._weighed(members, policy, name)}
            if fallbacks.get(name):
                select["fallback"] = fallbacks[name]
            route: dict[str, Any] = {
                "id": _id_of(name),
                "match": {"models": [name, *(alias for alias, target in aliases.items() if target == name)]},
                "select": select,
            }
            timeout_s = self.timeouts.get(name, settings.get("timeout"))
            if isinstance(timeout_s, int | float):
                total_ms = min(max(int(timeout_s * 1000), 1), 3_600_000)
                limits = {"connect_ms": 1_000, "first_token_ms": 30_000, "inter_token_ms": 10_000}
                route["timeouts"] = {key: min(limit, total_ms) for key, limit in limits.items()} | {
                    "total_ms": total_ms
                }
            routes.append(route)
        return routes

    def _weighed(self, members: list[dict[str, Any]], policy: str, name: str) -> list[dict[str, Any]]:
        """Return the members, without weights where the policy ignores them."""
        if policy == "weighted" or not any("weight" in member for member in members):
            return members
        self.notes.append(f"{name}: weights have no effect with {policy}; left out")
        return [{"id": member["id"]} for member in members]

    def _fallbacks(self, settings: Mapping[str, Any]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for item in _list(settings, "fallbacks"):
            for name, others in item.items() if isinstance(item, Mapping) else ():
                known = [_id_of(str(other)) for other in others if str(other) in self.groups]
                found.setdefault(str(name), []).extend(known)
        return found

    def _free_id(self, name: str) -> str:
        base = _id_of(name)[:56]
        routes = {_id_of(str(entry.get("model_name", ""))) for entry in _list(self._config, "model_list") if entry}
        candidates = [f"{base}-{number}" for number in range(1, len(self._ids) + 2 + len(routes))]
        found = next(id for id in candidates if id not in self._ids and id not in routes)
        self._ids.add(found)
        return found


def import_litellm(text: str) -> Imported:
    """Return the policy equivalent to a LiteLLM configuration; raises ImportFailed when nothing can be converted."""
    if len(text.encode()) > MAX_CONFIG_BYTES:
        raise ImportFailed(f"larger than {MAX_CONFIG_BYTES} bytes")
    if re.search(r"(?m)(?:^|[\s\[{,:-])[*&][A-Za-z0-9_]", text):
        raise ImportFailed("has YAML anchors; write what they stand for")
    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ImportFailed(f"not valid YAML: {error}") from error
    if not isinstance(config, Mapping):
        raise ImportFailed("no LiteLLM configuration: model_list is missing")
    return _Reader(config).read()


def _id_of(name: str) -> str:
    found = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:64]
    return found or "model"


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _advice(key: str) -> str:
    if key in ("rpm", "tpm", "max_parallel_requests"):
        return "; tenants have limits here, and deployments limits.max_in_flight"
    return ""


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(of: Mapping[str, Any], key: str) -> list[Any]:
    value = of.get(key)
    return value if isinstance(value, list) else []
