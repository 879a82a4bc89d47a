"""What the benches' clients send."""

from __future__ import annotations

from loadtests.clients.chat_streams import prompt_text
from loadtests.overload.workload import Offer

LONG = Offer(at_s=0.0, prompt_tokens=2000, output_tokens=10)
SHARED = Offer(at_s=0.0, prompt_tokens=2000, output_tokens=10, prefix=(7, 8))


def test_no_prompt_begins_like_another_unless_the_workload_reports_it() -> None:
    first, second = (prompt_text(LONG, 8000, number) for number in (1, 2))
    assert len(first) == len(second) == 8000
    assert first[:16] != second[:16]
    assert prompt_text(SHARED, 8000, 1) == prompt_text(SHARED, 8000, 2)
