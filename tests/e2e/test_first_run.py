"""The requests that `penstock up` prints, pasted as they are: each shows what the text says of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import httpx
import pytest

from tests.e2e.conftest import Stack

pytestmark = pytest.mark.e2e


def printed(stack: Stack) -> list[str]:
    """The commands that were printed, in order."""
    return re.findall(r"^curl .*\\\n.*$", stack.log.read_text(errors="replace"), flags=re.MULTILINE)


def pasted(command: str) -> tuple[dict[str, str], str]:
    """Headers and body of the answer."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    head, _, body = done.stdout.partition("\n\n")
    lines = (line.partition(": ") for line in head.splitlines()[1:])
    return {name.lower(): value for name, _, value in lines}, body


def penstock(stack: Stack, *arguments: str) -> str:
    """What a command prints that knows nothing but the runtime directory."""
    folder = str(stack.log.parent / "run")
    command = [sys.executable, "-m", "gateway", *arguments, "--runtime-dir", folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_three_printed_requests_show_a_model_the_cache_and_routing(stack: Stack) -> None:
    first, second, third = printed(stack)
    headers, body = pasted(first)
    assert headers["x-penstock-deployment"] == "small"
    assert "10 euros" in body
    headers, again = pasted(second)
    assert (headers["x-penstock-cache"], headers["x-penstock-deployment"]) == ("hit-exact", "cache")
    assert json.loads(again)["choices"] == json.loads(body)["choices"]
    num_right = 0
    for _ in range(3):  # however often it is pasted; the answers are sampled
        headers, body = pasted(third)
        assert headers["x-penstock-deployment"] == "large"
        num_right += "Croatia" in body
    assert num_right >= 2
    shown = penstock(stack, "explain", headers["x-request-id"])
    assert "large by cascade" in shown


def test_commands_find_the_product_on_whatever_ports_it_took(stack: Stack) -> None:
    assert "large" in penstock(stack, "top", "--once")
    assert "ok    running" in penstock(stack, "doctor")
    assert "auto" in penstock(stack, "policy", "export")


def test_a_prompt_beyond_the_context_is_trimmed_and_answered(stack: Stack) -> None:
    old = [{"role": "user", "content": f"Delivery {n} to Austria came late, the weather was bad."} for n in range(300)]
    turns = [turn for one in old for turn in (one, {"role": "assistant", "content": "I am sorry to hear that."})]
    question = {"role": "user", "content": "How much does shipping to Croatia cost?"}
    body = {"model": "auto", "messages": [*turns, question]}
    reply = httpx.post(f"{stack.url}/v1/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["prompt_tokens"] < 4096
