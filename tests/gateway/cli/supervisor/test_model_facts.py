"""Facts about models, from servers and from the engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from gateway.cli.supervisor.launch import LaunchError
from gateway.cli.supervisor.model_facts import ModelFacts, find_model_facts


def server(content: Any, status: int = 200) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path in ("/v1/models", "/api/models")
        if content is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(status, content=content if isinstance(content, str) else json.dumps(content))

    return httpx.MockTransport(answer)


def listing(*models: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": list(models)}


def test_a_servers_only_model_is_taken_with_its_context() -> None:
    transport = server(listing({"id": "org/big", "max_model_len": 8192}))
    assert find_model_facts(["http://host:8000"], transport=transport) == [
        ModelFacts(name="org/big", url="http://host:8000", context_tokens=8192)
    ]
    assert find_model_facts(["http://host/api"], transport=transport)[0].url == "http://host/api"


def test_one_of_several_is_named_after_a_hash() -> None:
    transport = server(listing({"id": "a"}, {"id": "b", "context_length": 100}))
    (found,) = find_model_facts(["http://host#b"], transport=transport)
    assert (found.name, found.url, found.context_tokens) == ("b", "http://host", 100)
    with pytest.raises(LaunchError, match="has 2 models; name one as http://host#MODEL: a, b"):
        find_model_facts(["http://host"], transport=transport)
    with pytest.raises(LaunchError, match="has no model c"):
        find_model_facts(["http://host#c"], transport=transport)


@pytest.mark.parametrize(
    ("content", "status", "expected"),
    [
        (None, 200, r"/v1/models does not answer \(refused\)"),
        ("<html>", 200, "no list of models"),
        ([], 200, "no list of models"),
        ({"data": [1]}, 200, "no list of models"),
        ({}, 401, "needs a key; write a policy"),
        ({}, 500, "answers with status 500"),
    ],
)
def test_a_server_that_is_of_no_use_is_named_with_the_reason(content: Any, status: int, expected: str) -> None:
    with pytest.raises(LaunchError, match=expected):
        find_model_facts(["http://host"], transport=server(content, status))


def test_local_models_are_found_by_the_engine_with_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Sequence[str]] = []

    def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        called.append(command)
        found = [{"name": name, "folder": "/m", "context_tokens": 64, "num_bytes": 5} for name in ("my model", "b")]
        return subprocess.CompletedProcess(command, 0, json.dumps(found).encode())

    monkeypatch.setattr("gateway.cli.supervisor.model_facts.subprocess.run", run)
    transport = server(listing({"id": "r"}))
    found = find_model_facts(["./my model", "http://host", "b"], transport=transport)
    assert [facts.name for facts in found] == ["my-model", "r", "b"]
    assert [list(command[-5:]) for command in called] == [["models", "pull", "--json", "./my model", "b"]]


def test_a_model_that_cannot_be_had_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gateway.cli.supervisor.model_facts.subprocess.run",
        lambda command, **_: subprocess.CompletedProcess(command, 1, b""),
    )
    with pytest.raises(LaunchError, match="nothing was started: org/none cannot be had, for the reason above"):
        find_model_facts(["org/none"])
