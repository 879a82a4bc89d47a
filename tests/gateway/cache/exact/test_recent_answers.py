"""A user who repeats an equal conversation soon after its answer wants a new one; nobody else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.cache.exact.recent_answers import RecentAnswers
from tests.gateway.stack import Stack, chat, policy_text, running


def test_an_answer_is_remembered_for_its_user_and_conversation_within_the_window() -> None:
    recent = RecentAnswers()
    recent.note(b"exact", "ann", "shop", 100.0)
    assert recent.is_repeated(b"exact", "ann", 129.9, 30.0)
    assert not recent.is_repeated(b"exact", "ann", 130.0, 30.0)
    assert not recent.is_repeated(b"exact", "bob", 101.0, 30.0)
    assert not recent.is_repeated(b"other", "ann", 101.0, 30.0)
    assert not recent.is_repeated(b"exact", "ann", 99.0, 30.0)  # the wall clock was set back


def policy(folder: Path, window: str) -> str:
    cache = f"cache: {{mode: exact, scope: tenant{window}}}"
    return policy_text(folder).replace("    match: {models: [auto]}\n", f"    match: {{models: [auto]}}\n    {cache}\n")


async def results(stack: Stack, *requests: tuple[dict[str, Any], dict[str, str]]) -> list[str]:
    return [
        (await stack.call(chat(**fields), headers=headers)).headers["x-penstock-cache"] for fields, headers in requests
    ]


ANN: tuple[dict[str, Any], dict[str, str]] = ({"user": "ann"}, {})
BOB: tuple[dict[str, Any], dict[str, str]] = ({"user": "bob"}, {})
NOBODY: tuple[dict[str, Any], dict[str, str]] = ({}, {})


async def test_the_same_user_gets_a_new_answer_and_others_get_the_stored_one(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path, ", regenerate_window_s: 60")) as stack:
        assert await results(stack, ANN, BOB, ANN, BOB) == ["miss", "hit-exact", "bypass", "bypass"]
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert [
            line for line in metrics.splitlines() if 'reason="regenerate"' in line and line.endswith((" 2", " 2.0"))
        ]
        assert await results(stack, NOBODY, NOBODY) == ["hit-exact", "hit-exact"]
        assert await results(stack, ({"prompt_cache_key": "product"}, {}), ({"prompt_cache_key": "product"}, {})) == [
            "hit-exact",
            "hit-exact",
        ]
        assert len(stack.small.received) == 3


async def test_a_session_header_names_the_user_and_a_retry_is_no_such_request(tmp_path: Path) -> None:
    session: tuple[dict[str, Any], dict[str, str]] = ({}, {"x-session-id": "s"})
    retry: tuple[dict[str, Any], dict[str, str]] = ({}, {"x-session-id": "s", "x-stainless-retry-count": "1"})
    async with running(tmp_path, policy=policy(tmp_path, ", regenerate_window_s: 60")) as stack:
        assert await results(stack, session, retry, session) == ["miss", "hit-exact", "bypass"]


async def test_it_is_off_by_default(tmp_path: Path) -> None:
    async with running(tmp_path, policy=policy(tmp_path, "")) as stack:
        assert await results(stack, ANN, ANN) == ["miss", "hit-exact"]
