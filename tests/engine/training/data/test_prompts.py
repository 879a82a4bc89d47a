"""Held-out prompts as JSON lines."""

from __future__ import annotations

import json

import pytest

from engine.training.data.prompts import main


def test_each_line_is_a_conversation_with_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--samples", "1", "--seed", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    prompts = [json.loads(line) for line in lines]
    assert all(set(prompt) == {"task", "difficulty", "messages", "answer"} for prompt in prompts)
    cells = [(prompt["task"], prompt["difficulty"]) for prompt in prompts]
    assert len(set(cells)) == len(cells) > 20
    assert all(prompt["messages"][-1]["role"] == "user" for prompt in prompts)
    main(["--samples", "1", "--seed", "5"])
    assert capsys.readouterr().out.splitlines() == lines
