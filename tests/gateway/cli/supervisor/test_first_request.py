"""The first requests of a new installation, as a shell reads them."""

from __future__ import annotations

import json
import shlex

import pytest

from gateway.cli.supervisor.first_request import (
    HARD_QUESTION,
    QUESTION,
    FirstRun,
    Tour,
    first_request,
    first_run_of,
)
from gateway.config.settings import bundled_policy_path, first_run_policy_path
from routing_policies.loading import load_policy

PATHS = ["/run/a.sock", "/my folder/a.sock", "/für/a.sock", "/it's/$(x)/`y`/a.sock", '/"/a.sock', "/two\nlines/a.sock"]
PLAIN = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n"


def commands(text: str) -> list[list[str]]:
    """The words of each curl command."""
    blocks = text.replace("\\\n", "").split("\n\n")
    return [shlex.split(block[block.index("curl ") :]) for block in blocks if "curl " in block]


@pytest.mark.parametrize("tour", ["first_run", "pair", "plain", "completions"])
@pytest.mark.parametrize("path", PATHS)
def test_a_sockets_path_is_one_argument_whatever_is_in_it(path: str, tour: Tour) -> None:
    first_run = FirstRun(needs_key=False, tour=tour)
    words = commands(first_request(f"unix:{path}", first_run))[0]
    assert words[:3] == ["curl", "--unix-socket", path]
    assert words[3].startswith("http://penstock/v1/")


def test_the_real_model_and_the_shop_are_toured_with_what_each_knows() -> None:
    policy = load_policy(first_run_policy_path().read_text(), source="first-run", variables={"runtime_dir": "/run"})
    first_run = first_run_of(policy)
    assert first_run.tour == "first_run"
    shown = first_request("127.0.0.1:8080", first_run)
    bodies = [json.loads(words[words.index("-d") + 1]) for words in commands(shown)]
    assert [body["model"] for body in bodies] == ["auto", "auto", "shop", "shop"]
    assert bodies[0] == bodies[1]
    assert [body["messages"][0]["content"] for body in bodies[2:]] == [QUESTION, HARD_QUESTION]
    for fact in ("often errs on facts", "a made-up shop, sums and small text tasks", "nothing else"):
        assert fact in shown


@pytest.mark.parametrize("tour", ["first_run", "pair"])
def test_requests_without_no_cache_may_be_answered_from_the_cache_of_an_earlier_start(tour: Tour) -> None:
    shown = first_request("127.0.0.1:8080", FirstRun(needs_key=False, tour=tour))
    steps = [block for block in shown.split("\n\n") if "x-penstock-deployment says" in block]
    assert ["or cache" in step for step in steps] == ["cache-control: no-cache" not in step for step in steps]
    assert "or cache after an earlier start" in steps[0]


def test_a_model_that_only_continues_texts_gets_a_completion() -> None:
    text = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m, operations: [completions]}]\n"
    routes = "routes: [{id: auto, match: {models: [auto]}, select: {candidates: [a]}}]\n"
    shown = first_request("127.0.0.1:80", first_run_of(load_policy(text + routes, source="plain")))
    assert commands(shown)[0][1] == "http://127.0.0.1:80/v1/completions"


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
