"""What trimming keeps and what it saves, with the real engine behind the gateway.

First facts hidden in meetings, with the question after, before or in a later turn, in the words of the fact or in
others: the share that stays at 30, 50 and 70 percent of the tokens, beside BM25 over windows of three sentences.
Held-out passage tasks of the bundled models are padded to four times the budget with sentences about other people, and
answered whole and cut. Then a chat of twenty turns that outgrows its budget: how much of its prompts the engine still
had in its prefix cache. Last the CPU time: the same long prompts through a route that trims and through one that does
not, to an upstream that does no work.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from loadtests.clients.http_client import Address, LoadConnection, request_bytes
from loadtests.gateway.passages import Passage, held_out_passages
from loadtests.harness.card import Card, Value
from loadtests.harness.processes import ProcessFailed, Workbench
from loadtests.harness.stack import Script, Server, chat_body, start_engine, start_gateway_with, start_upstream
from loadtests.trimming.needles import encoder_similarity, needle_results

_MODEL = Path(__file__).resolve().parents[2] / "engine/bundled/models/penstock-large"
_STRATEGIES = ["dedupe", "cap_tool_outputs", "drop_old_turns", "extract_passages"]
_BYTES_PER_TOKEN = 4
"""What the gateway goes by before it has seen any usage."""
_TIMES_BUDGET = 4
_MAX_TOKENS = 24
_CHAT_TURNS = 20
_CHAT_BUDGET_TOKENS = 1000
_CHAT_SYSTEM_CHARS = 800
_CHAT_MESSAGE_CHARS = 200
_LONG_BYTES = 16 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--model", type=Path, default=_MODEL, help="of the engine (default: the bundled large one)")
    parser.add_argument("--samples", type=int, default=20, help="tasks of each difficulty (default %(default)s)")
    parser.add_argument("--budget", type=int, default=300, help="tokens of a trimmed prompt (default %(default)s)")
    parser.add_argument("--cpu-requests", type=int, default=400, help="for the CPU time (default %(default)s)")
    parser.add_argument("--needles", type=int, default=100, help="meetings a figure of recall (default %(default)s)")
    parser.add_argument("--encoder", type=Path, help="folder for the encoder's graph: compare passages by it, too")
    parser.add_argument("--only-needles", action="store_true", help="measure recall alone")
    parser.add_argument("--seed", type=int, default=1, help="of tasks and padding (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    similarity = await encoder_similarity(options.encoder) if options.encoder is not None else None
    recall = needle_results(options.needles, options.seed, similarity)
    if options.only_needles:
        return Card(bench="trim", arrivals="one conversation at a time", results=recall)
    rng = Random(options.seed)
    async with Workbench() as bench:
        tasks = await held_out_passages(bench, options.seed, options.samples)
        engine = await start_engine(bench, options.model)
        upstream = await start_upstream(bench, Script())
        policy = _policy(engine.address.url, upstream.admin.url, options.budget)
        gateway = await start_gateway_with(bench, policy)
        answers = await _answer_all(gateway.address, tasks, options.budget, rng)
        chat = await _chat(gateway.address, tasks, rng)
        cpu_ms = await _cpu_ms(gateway, tasks, options.cpu_requests, rng)
    return _card(options, answers, chat, cpu_ms, recall)


def _policy(engine: str, scripted: str, budget: int) -> dict[str, object]:
    """Routes with and without trimming to the engine and to the scripted upstream."""
    limits = {"max_in_flight": 1000}
    budgets = {"whole": None, "cut": budget, "chat": _CHAT_BUDGET_TOKENS, "long": None, "long-cut": budget}
    routes = []
    for name, tokens in budgets.items():
        deployment = "scripted" if name.startswith("long") else "engine"
        route: dict[str, object] = {
            "id": name,
            "match": {"models": [name]},
            "select": {"policy": "first_available", "candidates": [deployment]},
        }
        if tokens is not None:
            route["trim"] = {"budget_tokens": tokens, "strategies": _STRATEGIES}
        routes.append(route)
    return {
        "schema_version": 1,
        "deployments": [
            {"id": "engine", "url": engine, "model": "bench", "limits": limits},
            {"id": "scripted", "url": scripted, "model": "scripted", "limits": limits},
        ],
        "routes": routes,
    }


@dataclass(slots=True)
class _Answers:
    """How the tasks were answered."""

    num_tasks: int = 0
    num_right_bare: int = 0
    """Without the padding."""
    num_right_whole: int = 0
    num_right_cut: int = 0
    num_tokens_whole: int = 0
    num_tokens_cut: int = 0


@dataclass(slots=True)
class _Chat:
    """Prompt tokens of the turns."""

    num_tokens: int = 0
    num_cached: int = 0


async def _answer_all(address: Address, tasks: Sequence[Passage], budget: int, rng: Random) -> _Answers:
    found = _Answers(num_tasks=len(tasks))
    sentences = [sentence for task in tasks for sentence in task.sentences]
    num_bytes = _TIMES_BUDGET * budget * _BYTES_PER_TOKEN
    for task in tasks:
        messages = [{"role": "user", "content": task.padded(sentences, num_bytes, rng)}]
        bare = await _complete(address, "whole", [{"role": "user", "content": task.text}])
        whole = await _complete(address, "whole", messages)
        cut = await _complete(address, "cut", messages)
        found.num_right_bare += _is_right(bare, task.answer)
        found.num_right_whole += _is_right(whole, task.answer)
        found.num_right_cut += _is_right(cut, task.answer)
        found.num_tokens_whole += whole["usage"]["prompt_tokens"]
        found.num_tokens_cut += cut["usage"]["prompt_tokens"]
    return found


async def _chat(address: Address, tasks: Sequence[Passage], rng: Random) -> _Chat:
    """A person and the engine, turn by turn; what the person states is sentences from the tasks."""
    found = _Chat()
    sentences = [sentence for task in tasks for sentence in task.sentences]
    messages: list[dict[str, str]] = [{"role": "system", "content": _filler(sentences, _CHAT_SYSTEM_CHARS, rng)}]
    for _ in range(_CHAT_TURNS):
        messages.append({"role": "user", "content": _filler(sentences, _CHAT_MESSAGE_CHARS, rng)})
        answer = await _complete(address, "chat", messages)
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or "."})
        usage = answer["usage"]
        found.num_tokens += usage["prompt_tokens"]
        found.num_cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return found


async def _cpu_ms(gateway: Server, tasks: Sequence[Passage], num_requests: int, rng: Random) -> float:
    """CPU milliseconds that trimming 16 KiB adds to a request: both routes by turns, in blocks."""
    sentences = [sentence for task in tasks for sentence in task.sentences]
    text = max(tasks, key=lambda task: len(task.text)).padded(sentences, _LONG_BYTES, rng)
    connection = await LoadConnection.open(gateway.address)
    spent = {"long": 0.0, "long-cut": 0.0}
    requests = {name: request_bytes("POST", "/v1/chat/completions", chat_body(name, text)) for name in spent}
    blocks = 8
    for block in range(2 * blocks):
        name = list(spent)[block % 2]
        before = gateway.process.cpu_s()
        for _ in range(max(1, num_requests // blocks)):
            exchange = await connection.exchange(requests[name])
            if not exchange.is_ok:
                raise ProcessFailed(f"a long prompt: {exchange.error or exchange.status}")
        spent[name] += gateway.process.cpu_s() - before
    connection.close()
    added_s = (spent["long-cut"] - spent["long"]) / (blocks * max(1, num_requests // blocks))
    return added_s * 1e3 * _LONG_BYTES / len(text.encode())


async def _complete(address: Address, model: str, messages: Sequence[Mapping[str, str]]) -> Any:
    """The completion. Raises ProcessFailed."""
    body = json.dumps({"model": model, "messages": messages, "temperature": 0, "max_tokens": _MAX_TOKENS}).encode()
    connection = await LoadConnection.open(address, keep_body=True)
    try:
        exchange = await connection.exchange(request_bytes("POST", "/v1/chat/completions", body))
        content = connection.scanner.content
    finally:
        connection.close()
    if not exchange.is_ok:
        raise ProcessFailed(f"{model} answered {exchange.status} ({exchange.error}): {content[-300:]!r}")
    return json.loads(content)


def _is_right(completion: Any, expected: str) -> bool:
    """Whether the answer is the expected one, apart from case, white space and punctuation at the end."""
    text_content = completion["choices"][0]["message"]["content"] or ""
    return _plain(text_content) == _plain(expected)


def _plain(text: str) -> str:
    return " ".join(text.split()).rstrip(".!?,;: ").casefold()


def _filler(sentences: Sequence[str], num_chars: int, rng: Random) -> str:
    text_content = ""
    while len(text_content) < num_chars:
        text_content += rng.choice(sentences) + " "
    return text_content.strip()


def _card(
    options: argparse.Namespace, answers: _Answers, chat: _Chat, cpu_ms: float, recall: Mapping[str, Value]
) -> Card:
    compared = {"accuracy_ratio": answers.num_right_cut / answers.num_right_whole} if answers.num_right_whole else {}
    return Card(
        bench="trim",
        arrivals="one request at a time",
        results={
            **compared,
            "token_ratio": answers.num_tokens_cut / answers.num_tokens_whole,
            "accuracy_unpadded": answers.num_right_bare / answers.num_tasks,
            "accuracy_whole": answers.num_right_whole / answers.num_tasks,
            "accuracy_trimmed": answers.num_right_cut / answers.num_tasks,
            "prefix_hit_ratio": chat.num_cached / max(1, chat.num_tokens),
            "cpu_ms_per_16kb": cpu_ms,
            "tasks": answers.num_tasks,
            **recall,
        },
        notes=(
            *(() if compared else ("no task was answered right whole: there is no accuracy_ratio",)),
            f"{answers.num_tokens_whole / answers.num_tasks:.0f} prompt tokens whole, "
            f"{answers.num_tokens_cut / answers.num_tasks:.0f} cut to {options.budget}",
            f"a chat of {_CHAT_TURNS} turns in {_CHAT_BUDGET_TOKENS} tokens: {chat.num_tokens} prompt tokens, "
            f"{chat.num_cached} of them cached",
        ),
    )
