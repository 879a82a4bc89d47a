"""Schemathesis against what the admin listener serves: the public listener does exactly what the document states."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.admission import guard
from gateway.chat.schema import MAX_PARTS
from tests.e2e.conftest import Stack
from tests.e2e.scripted_gateway import scripted_gateway
from tests.gateway.dialects.messages.upstream.anthropic_server import TEXT, answering, message_with
from tests.gateway.dialects.responses.upstream.test_responses_upstream import EVENTS, MESSAGE, response, streaming
from tests.gateway.scripted import Wire

pytestmark = pytest.mark.e2e

SEED = 7
KEY = "sk-penstock-schema-0123456789"
TIMEOUT_S = 240.0
"""A run takes about ten seconds; a busy machine may need many times that."""
ELSEWHERE = [
    f"--exclude-operation-id={one}"
    for one in ("createChatCompletion", "createMessage", "countMessageTokens", "createResponse")
]
"""Leave out operations with tests of their own below."""
_DEPLOYMENT = """
schema_version: 1
deployments: [{{id: small, url: "unix:{folder}/small.sock", model: tiny, dialect: {dialect}}}]
"""
_RUN = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"


@pytest.fixture(autouse=True)
def _any_lag_is_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no request be shed because the machine of the tests is busy: of 503, the checks accept none."""
    monkeypatch.setattr(guard, "OVERLOADED_LAG_S", 60.0)
    monkeypatch.setattr(guard, "STRAINED_LAG_S", 60.0)


def served_document(admin_url: str) -> dict[str, Any]:
    """The document as an operator gets it, but for the limit on parts."""
    document: dict[str, Any] = httpx.get(f"{admin_url}/openapi.json", timeout=30.0).raise_for_status().json()
    assert _without_item_limit(document), "messages have a limit on their parts"
    return document


def _without_item_limit(node: Any) -> int:
    """Remove the limit on parts, which has tests of its own; return how often it stood there.

    Requests at that limit in every message would exceed the size of a body, and take a minute to make.
    """
    if isinstance(node, list):
        return sum(_without_item_limit(each) for each in node)
    if not isinstance(node, dict):
        return 0
    num_here = int(node.get("maxItems") == MAX_PARTS)
    if num_here:
        del node["maxItems"]
    return num_here + sum(_without_item_limit(each) for each in node.values())


def check(document: dict[str, Any], url: str, folder: Path, *options: str) -> str:
    """Run every check of schemathesis; its report when it found nothing, else a failure with the report."""
    location = folder / "openapi.json"
    location.write_text(json.dumps(document))
    command = [sys.executable, "-c", _RUN, "run", str(location), "--url", url, "--seed", str(SEED), "--no-color"]
    command += ["--checks", "all", "--generation-database", "none", "--request-timeout", "60", "--no-shrink", *options]
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, "COLUMNS": "120"}
    )
    report = "\n".join(line[:600] for line in ran.stdout.splitlines())
    assert ran.returncode == 0, report + ran.stderr[-2000:]
    return report


def test_nothing_is_found_where_no_key_is_needed(tmp_path: Path) -> None:
    with scripted_gateway(tmp_path) as gateway:
        document = served_document(gateway.admin_url)
        report = check(document, gateway.url, tmp_path, "-n", "25", "--phases", "coverage,fuzzing", *ELSEWHERE)
    assert "17 selected / 21 total" in report


def test_nothing_is_found_in_requests_that_reach_a_deployment(tmp_path: Path) -> None:
    with scripted_gateway(tmp_path) as gateway:
        document = served_document(gateway.admin_url)
        # Any text may be a model's name, and next to none is one: without this nearly every answer would be a 404.
        document["components"]["schemas"]["ChatFields"]["properties"]["model"] = {"enum": ["auto", "tiny", "only"]}
        where = ("--include-operation-id", "createChatCompletion")
        # Parts of unknown kinds are passed on, which the negative mode takes for a fault; the last test has that mode.
        mode = ("--mode", "positive")
        check(document, gateway.url, tmp_path, "-n", "60", "--phases", "examples,coverage,fuzzing", *mode, *where)
        metrics = httpx.get(f"{gateway.admin_url}/metrics", timeout=30.0).text
    answered = [line for line in metrics.splitlines() if 'outcome="completed"' in line]
    assert sum(float(line.rpartition(" ")[2]) for line in answered) >= 50
    assert 'outcome="failed"' not in metrics


def test_nothing_is_found_in_quotes(tmp_path: Path) -> None:
    with scripted_gateway(tmp_path, "quotes: {hold_ms: 100}\n") as gateway:
        document = served_document(gateway.admin_url)
        document["components"]["schemas"]["ChatFields"]["properties"]["model"] = {"enum": ["auto", "tiny", "only"]}
        where = ("--include-operation-id", "createQuote")
        # Which bodies are accepted is the matter of chat completions, whose schema this is.
        mode = ("--mode", "positive", "--exclude-checks", "positive_data_acceptance")
        check(document, gateway.url, tmp_path, "-n", "40", "--phases", "coverage,fuzzing", *mode, *where)
        metrics = httpx.get(f"{gateway.admin_url}/metrics", timeout=30.0).text
    given = [line for line in metrics.splitlines() if line.startswith("penstock_quotes_total{")]
    assert sum(float(line.rpartition(" ")[2]) for line in given) >= 20


def test_nothing_is_found_in_messages(tmp_path: Path) -> None:
    policy = _DEPLOYMENT.format(folder=tmp_path, dialect="anthropic")
    with scripted_gateway(tmp_path, policy, script=_answer_messages) as gateway:
        document = served_document(gateway.admin_url)
        for name in ("MessageFields", "CountTokensFields"):
            document["components"]["schemas"][name]["properties"]["model"] = {"enum": ["auto", "tiny"]}
        where = ("--include-operation-id", "createMessage", "--include-operation-id", "countMessageTokens")
        check(document, gateway.url, tmp_path, "-n", "25", "--phases", "coverage,fuzzing", *where)


def test_nothing_is_found_in_responses(tmp_path: Path) -> None:
    policy = _DEPLOYMENT.format(folder=tmp_path, dialect="responses")
    with scripted_gateway(tmp_path, policy, script=_answer_responses) as gateway:
        document = served_document(gateway.admin_url)
        request = document["components"]["schemas"]["ResponsesFields"]
        request["properties"]["model"] = {"enum": ["auto", "tiny"]}
        # Next to no text is the id of a stored response.
        request["properties"]["previous_response_id"] = {"$ref": "#/components/schemas/Absent"}
        request["required"].append("input")
        where = ("--include-operation-id", "createResponse")
        check(document, gateway.url, tmp_path, "-n", "25", "--phases", "coverage,fuzzing", *where)


async def _answer_messages(wire: Wire) -> None:
    if "/count_tokens" in wire.request.line:
        await wire.answer(b'{"input_tokens": 7}')
    else:
        await answering(message_with([TEXT]))(wire)


async def _answer_responses(wire: Wire) -> None:
    if wire.request.json.get("stream"):
        await streaming(EVENTS)(wire)
    else:
        await wire.answer(json.dumps(response([MESSAGE])).encode())


def test_nothing_is_found_where_a_key_is_needed(tmp_path: Path) -> None:
    key = f'{{id: k, sha256: "{sha256(KEY.encode()).hexdigest()}"}}'
    with scripted_gateway(tmp_path, f"tenants: [{{id: shop, keys: [{key}]}}]\n") as gateway:
        document = served_document(gateway.admin_url)
        assert document["security"] == [{"key": []}]
        sent = ("-H", f"Authorization: Bearer {KEY}")
        check(document, gateway.url, tmp_path, "--phases", "coverage", *sent, *ELSEWHERE)


def test_nothing_is_found_in_bad_requests_to_the_whole_product(stack: Stack, tmp_path: Path) -> None:
    document = served_document(stack.admin_url)
    check(document, stack.url, tmp_path, "-n", "15", "--phases", "coverage,fuzzing", "--mode", "negative")
