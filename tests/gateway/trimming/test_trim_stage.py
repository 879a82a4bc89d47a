"""Where a prompt is trimmed: a short one at once, a long one where it holds nobody up."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.price import Pricer
from gateway.embedding.encoder import Vector
from gateway.trimming.similarity import PassageSimilarity
from gateway.trimming.trim_stage import TrimStage
from gateway.trimming.trimmer import DEFAULT_BYTES_PER_TOKEN, MAX_TRIMMED_HERE_BYTES, PolicyTrimmer, Trimmed
from gateway.util.workers import Workers
from routing_policies.policy.document import Trim
from tests.gateway.stack import chat, policy_text, running


@pytest.mark.parametrize(("num_bytes", "is_here"), [(100, True), (MAX_TRIMMED_HERE_BYTES + 1, False)])
async def test_only_long_prompts_leave_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: int, is_here: bool
) -> None:
    threads: list[threading.Thread] = []

    class Watched(PolicyTrimmer):
        def trim(self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN) -> Trimmed:
            threads.append(threading.current_thread())
            return super().trim(request, rule, bytes_per_token)

    monkeypatch.setattr("gateway.app.request_path.PolicyTrimmer", Watched)
    rule = "    trim: {strategies: [minify]}\n    select:"
    async with running(tmp_path, policy=policy_text(tmp_path).replace("    select:", rule, 1)) as stack:
        content = "x " * (num_bytes // 2) + "    \n\n\n\nend"
        messages = [{"role": "user", "content": content}, {"role": "user", "content": "Well?"}]
        reply = await stack.call({**chat(), "messages": messages})

        assert reply.status == 200
        assert b"\\n\\n\\n" not in stack.small.received[0].body
        removed, _, strategies = reply.headers["x-penstock-trimmed"].partition(";")
        assert (removed.startswith("tokens="), strategies) == (True, "strategies=minify")
    assert [thread is threading.current_thread() for thread in threads] == [is_here]


WORDY = [
    {"role": "user", "content": " ".join(f"Boat {number} left the harbour at noon." for number in range(60))},
    {"role": "assistant", "content": "I see."},
    {"role": "user", "content": "When did boat 12 leave?"},
]
CUT = "    trim: {budget_tokens: 100, strategies: [extract_passages]%s}\n    select:"


async def test_a_trimmed_answer_reports_what_was_cut_and_a_client_can_turn_it_off(tmp_path: Path) -> None:
    policy = policy_text(tmp_path).replace("    select:", CUT % "", 1)
    async with running(tmp_path, policy=policy) as stack:
        cut = await stack.call({**chat(), "messages": WORDY})
        assert re.fullmatch(r"tokens=\d+;strategies=extract_passages", cut.headers["x-penstock-trimmed"])
        assert b"Boat 12 left" in stack.small.received[0].body
        assert b"Boat 50 left" not in stack.small.received[0].body

        whole = await stack.call({**chat(), "messages": WORDY}, headers={"x-penstock-trim": "off"})
        assert "x-penstock-trimmed" not in whole.headers
        assert b"Boat 50 left" in stack.small.received[1].body


async def test_a_policy_can_keep_clients_from_turning_it_off(tmp_path: Path) -> None:
    policy = policy_text(tmp_path).replace("    select:", CUT % ", client_may_turn_off: false", 1)
    async with running(tmp_path, policy=policy) as stack:
        reply = await stack.call({**chat(), "messages": WORDY}, headers={"x-penstock-trim": "off"})
        assert "x-penstock-trimmed" in reply.headers


class KeywordEncoder:
    """An encoder to which only texts about the network resemble the question."""

    encoder_id = "test"
    num_waiting = 0

    def start(self) -> None:
        raise AssertionError("it is ready")

    async def embed(self, text: str) -> Vector | None:
        is_near = "network" in text or "online" in text
        return np.array([1.0, 0.0] if is_near else [0.1, 0.995], np.float32)


async def test_passages_in_other_words_are_found_by_similarity() -> None:
    facts = [f"Page {number} of the guide describes hall {number * 7} in short." for number in range(120)]
    facts.insert(70, "Page 900 of the guide describes the network in short.")
    messages = [{"role": "user", "content": " ".join(facts)}, {"role": "user", "content": "Can I get online there?"}]
    request = ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode())
    assert request.text_bytes > MAX_TRIMMED_HERE_BYTES
    rule = Trim(budget_tokens=300, strategies=("extract_passages",))
    workers = Workers(1, name="test")
    similarity = PassageSimilarity(KeywordEncoder(), max_windows=200)
    stage = TrimStage(PolicyTrimmer(), similarity, cast(Any, None), Pricer(), workers)
    try:
        trimmed = await stage.cut(request, rule, 4.0, "a")
    finally:
        workers.shutdown()
    assert "describes the network" in trimmed.request.document["messages"][0]["content"]
    assert trimmed.request.text_bytes < 1400
