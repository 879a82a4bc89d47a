"""ModelFacts: what is known of a model that `penstock up` is given, before its engine starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx
import msgspec

from gateway.cli.supervisor.launch import ENGINE_REMEDY, LaunchError, missing_engine_packages, module_argv, python_env

_TIMEOUT_S: Final = 10.0
_MAX_SHOWN: Final = 8
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._:/@-]")
"""Characters that a path may have and a model's name in a policy may not."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A model on this machine, or on a server that runs already."""

    name: str
    """Name that its server knows it by."""
    url: str | None = None
    """URL of the server; None for a model that an engine of `penstock up` loads."""
    folder: str = ""
    """Folder of a local model."""
    context_tokens: int | None = None
    has_chat_template: bool = True
    num_bytes: int = 0
    """Size of a local model's files."""


def is_url(text: str) -> bool:
    """Return whether a text names a server in place of a model."""
    return text.startswith(("http://", "https://"))


def find_model_facts(texts: Sequence[str], *, transport: httpx.BaseTransport | None = None) -> list[ModelFacts]:
    """Return the facts of each model, in order; models of the hub are downloaded.

    Args:
        texts: Models as `penstock engine --model` takes them, or URLs of servers.
        transport: What sends requests to servers, in tests.

    Raises:
        LaunchError: A model cannot be had, or a server does not answer.
    """
    local = iter(_local_facts([text for text in texts if not is_url(text)]))
    return [_remote_facts(text, transport) if is_url(text) else next(local) for text in texts]


def _local_facts(texts: Sequence[str]) -> list[ModelFacts]:
    """Let the engine's own command find them; its progress and its errors go to the terminal."""
    if not texts:
        return []
    if missing := missing_engine_packages():
        raise LaunchError(f"the engine needs {', '.join(missing)}; {ENGINE_REMEDY}")
    command = [*module_argv(sys.executable, "engine"), "models", "pull", "--json", *texts]
    done = subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, **python_env()})
    if done.returncode != 0:
        raise LaunchError(f"nothing was started: {' and '.join(texts)} cannot be had, for the reason above")
    found = msgspec.json.decode(done.stdout.splitlines()[-1], type=list[ModelFacts])
    return [
        msgspec.structs.replace(facts, name=_NO_NAME.sub("-", facts.name).lstrip("-._") or "model") for facts in found
    ]


def _remote_facts(text: str, transport: httpx.BaseTransport | None) -> ModelFacts:
    """Request the server's list of models. Raises LaunchError."""
    parts = urlsplit(text)
    url, wanted = urlunsplit(parts._replace(fragment="")), parts.fragment
    base = url.rstrip("/") if parts.path.strip("/") else f"{url.rstrip('/')}/v1"
    try:
        with httpx.Client(transport=transport, timeout=_TIMEOUT_S) as client:
            response = client.get(f"{base}/models")
            listed = response.json()["data"] if response.status_code == 200 else []
            found: dict[str, Mapping[str, Any]] = {str(model["id"]): model for model in listed}
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise LaunchError(f"{url}: {base}/models does not answer ({error}); is the server running?") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise LaunchError(f"{url}: {base}/models is no list of models; expected a server of OpenAI's API") from error
    if response.status_code in (401, 403):
        raise LaunchError(f"{url}: needs a key; write a policy with auth: {{bearer_env: NAME}} and give it as --policy")
    if response.status_code != 200:
        raise LaunchError(f"{url}: {base}/models answers with status {response.status_code}")
    name = wanted or (next(iter(found)) if len(found) == 1 else "")
    if name not in found:
        shown = ", ".join([*found][:_MAX_SHOWN]) or "none"
        problem = f"has no model {name}" if name else f"has {len(found)} models"
        raise LaunchError(f"{url}: {problem}; name one as {url}#MODEL: {shown}")
    context = next((found[name][key] for key in ("max_model_len", "context_length") if key in found[name]), None)
    return ModelFacts(name=name, url=url, context_tokens=context if isinstance(context, int) else None)
