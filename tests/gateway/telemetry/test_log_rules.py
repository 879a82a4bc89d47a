"""What is in the log and what is not: sampling, what operators leave out, secrets, control characters, prompts."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.scripted import Wire
from tests.gateway.stack import chat, running


async def test_prompts_and_answers_are_never_logged(tmp_path: Path) -> None:
    async def echo(wire: Wire) -> None:
        await wire.answer(b'{"error": {"message": "canary-of-the-answer \\u001b[2J sk-secretsecret"}}', 500)

    async with running(tmp_path, settings={"telemetry.log.level": "debug"}) as stack:
        await stack.call({**chat(), "messages": [{"role": "user", "content": "canary-of-the-prompt"}]})
        stack.small.otherwise = stack.large.otherwise = echo
        await stack.call({**chat(), "messages": [{"role": "user", "content": "canary-of-the-prompt"}]})
        stack.gateway.log.flush()
        text = stack._log.getvalue().decode()
        assert len(stack.lines()) == 2
        assert "canary-of-the-prompt" not in text
        assert "secretsecret" not in text
        assert "\x1b" not in text
        assert "\\u001b" not in text


async def test_of_answered_requests_a_share_is_logged_of_others_every_one(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"telemetry.log.sample_ratio": 0.0}) as stack:
        for _ in range(5):
            assert (await stack.call(chat())).status == 200
        await stack.call(chat("nobody"))
        assert [line["outcome"] for line in stack.lines()] == ["rejected"]


async def test_the_sample_is_a_share_of_the_ids(tmp_path: Path) -> None:
    async with running(tmp_path, settings={"telemetry.log.sample_ratio": 0.5}) as stack:
        ids = [(await stack.call(chat())).headers["x-request-id"] for _ in range(40)]
        expected = [name for name in ids if int(name[-8:], 16) < 0.5 * 16**8]
        assert [line["request_id"] for line in stack.lines()] == expected


async def test_an_operator_leaves_out_what_must_not_be_stored(tmp_path: Path) -> None:
    settings = {"telemetry.log.omit": "tenant, client_request_id,model"}
    async with running(tmp_path, settings=settings) as stack:
        await stack.call(chat(), headers={"x-client-request-id": "who-i-am"})
        (line,) = stack.lines()
        assert not {"tenant", "client_request_id", "model"} & line.keys()
        assert line["outcome"] == "completed"
        assert line["route"] == "main"
