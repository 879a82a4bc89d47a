"""Where a prompt is trimmed: a short one at once, a long one where it holds nobody up."""

from __future__ import annotations

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
        reply = await stack.call({**chat(), "messages": [{"role": "user", "content": content}]})

        assert reply.status == 200
        assert b"\\n\\n\\n" not in stack.small.received[0].body
        removed, _, strategies = reply.headers["x-penstock-trimmed"].partition(";")
        assert (removed.startswith("tokens="), strategies) == (True, "strategies=minify")
    assert [thread is threading.current_thread() for thread in threads] == [is_here]
