"""Small or large by what is predicted of the prompt, and the command that learns to predict it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from gateway.cli.main import main
from tests.gateway.stack import PRICED_PAIR, running
from tests.routing_policies.quality.prompts import prompt

POLICY = (
    PRICED_PAIR
    + """\
routes:
  - id: good
    match: {{models: [auto]}}
    select: {{policy: quality_then_latency, min_quality: 0.8, candidates: [small, large]}}
"""
)
EASY = "What is 7 plus 5?"
HARD = "Which of Croatia or Hungary has the lowest shipping price?"
STRANGE = "Prove that every bounded entire function is constant."


def requested(text: str) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": text}]}


async def test_each_prompt_goes_to_the_smallest_model_that_is_good_enough(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        replies = [await stack.call(requested(text)) for text in (EASY, HARD, STRANGE)]

        assert [reply.headers["x-penstock-deployment"] for reply in replies] == ["small", "large", "large"]
        text = (await stack.get("/metrics", admin=True)).body.decode()
        for choice, reason in (("small", "good_enough"), ("large", "good_enough"), ("large", "unknown_prompt")):
            labels = f'choice="{choice}",policy="quality_then_latency",reason="{reason}"'
            assert f"penstock_routing_decisions_total{{{labels}}} 1.0" in text.splitlines()


async def test_what_was_trained_for_a_pair_replaces_what_came_with_the_package(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    data = write_data(tmp_path / "data.jsonl", weak="penstock-small", strong="penstock-large")
    arguments = ["--weak", "penstock-small", "--strong", "penstock-large", "--out", str(models / "mine.json")]
    assert main(["policy", "train", "--data", str(data), *arguments]) == 0
    settings = {"policy.quality_dir": models}
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path), settings=settings) as stack:
        for text, expected in (("Please add 3 and 4.", "small"), ("Why would the cat be afraid of the lamp?", "large")):
            reply = await stack.call(requested(text))
            assert reply.headers["x-penstock-deployment"] == expected


def write_data(path: Path, *, weak: str = "s", strong: str = "l", num: int = 300) -> Path:
    rng = random.Random(4)
    lines = []
    for number in range(num):
        is_hard = number % 3 == 0
        line: dict[str, Any] = {"outcomes": {weak: 0.0 if is_hard else 1.0, strong: 1.0, "other": 0.5}}
        text = prompt(rng, is_hard=is_hard).text
        if number % 2:
            line["messages"] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
        else:
            line["prompt"] = text
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines) + "\n")
    return path
