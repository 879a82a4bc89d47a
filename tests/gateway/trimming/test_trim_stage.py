"""Where a prompt is trimmed: a short one at once, a long one where it holds nobody up."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from gateway.chat.request import ChatRequest
from gateway.trimming.trimmer import DEFAULT_BYTES_PER_TOKEN, MAX_TRIMMED_HERE_BYTES, PolicyTrimmer, Trimmed
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
