"""The first requests of a new installation, as a shell reads them."""

from __future__ import annotations

import json
import shlex

import pytest

from gateway.cli.supervisor.first_request import (
    HARD_QUESTION,
    QUESTION,
    FirstRun,
    first_request,
    first_run_of,
)
from gateway.config.settings import bundled_policy_path
from routing_policies.loading import load_policy

PATHS = ["/run/a.sock", "/my folder/a.sock", "/für/a.sock", "/it's/$(x)/`y`/a.sock", '/"/a.sock', "/two\nlines/a.sock"]
PLAIN = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n"


def commands(text: str) -> list[list[str]]:
    """The words of each curl command."""
    blocks = text.replace("\\\n", "").split("\n\n")
    return [shlex.split(block[block.index("curl ") :]) for block in blocks if "curl " in block]


@pytest.mark.parametrize("has_tour", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_a_sockets_path_is_one_argument_whatever_is_in_it(path: str, has_tour: bool) -> None:
    first_run = FirstRun(needs_key=False, has_tour=has_tour)
    words = shlex.split(first_request(f"unix:{path}", first_run).replace("\\\n", ""), comments=True)
    start = words.index("curl")
    assert words[start : start + 4] == ["curl", "--unix-socket", path, "http://penstock/v1/chat/completions"]


def test_the_shipped_policy_is_toured_in_three_requests() -> None:
    text = bundled_policy_path().read_text()
    policy = load_policy(text, source="bundled", variables={"runtime_dir": "/run"})
    shown = first_request("127.0.0.1:8080", first_run_of(policy, "p explain ID --x"))
    first, second, third = commands(shown)
    questions = [json.loads(words[words.index("-d") + 1])["messages"][0]["content"] for words in (first, second, third)]
    assert questions == [QUESTION, QUESTION, HARD_QUESTION]
    assert "cache-control: no-cache" in third
    assert "made-up shop" in shown
    assert "p explain ID --x" in shown
    assert "from openai import OpenAI" in shown


def test_any_other_policy_has_one_request_and_no_word_of_the_bundled_models() -> None:
    shown = first_request("0.0.0.0:80", first_run_of(load_policy(PLAIN, source="plain")))
    assert len(commands(shown)) == 1
    assert "curl http://127.0.0.1:80/v1/" in shown
    assert "shop" not in shown


def test_where_keys_are_needed_the_request_has_one() -> None:
    shown = first_request("127.0.0.1:80", FirstRun(needs_key=True))
    assert '-H "authorization: Bearer $OPENAI_API_KEY"' in shown
    assert "api_key=" not in shown
