"""Small or large by what is predicted of the prompt, and the command that learns to predict it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.chat.request import ChatRequestParser
from gateway.cli.main import main
from gateway.cli.quality_training import TrainingError, read_lines, train_from_files
from gateway.config.checks import ConfigError
from gateway.routing.prompt_of import prompt_of
from gateway.routing.quality_files import load_predictors
from routing_policies.quality.predictor import Predictor
from routing_policies.quality.prompt import Prompt
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


def test_training_prints_what_it_learned_as_json_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "pair.json"
    data = write_data(tmp_path / "data.jsonl")
    assert main(["policy", "train", "--data", str(data), "--weak", "s", "--strong", "l", "--out", str(out)]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["weak"], report["strong"], report["num_prompts"]) == ("s", "l", 300)
    assert report["bytes"] > 1000
    assert load_predictors(tmp_path).find("s", "l") is not None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nothing", "", "at least 200"),
        ("not JSON", "{", r"data\.jsonl:1: "),
        ("no outcomes", '{"prompt": "a"}', r"data\.jsonl:1: .*outcomes"),
        ("others' outcomes", '{"prompt": "a", "outcomes": {"x": 1, "y": 0}}', "outcomes of x, y"),
    ],
)
def test_data_that_cannot_be_learned_from_is_reported_where_and_why(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(content)
    with pytest.raises(TrainingError, match=message):
        train_from_files([path], "s", "l")


def test_equal_outcomes_and_missing_files_teach_nothing(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "a", "outcomes": {"s": 1, "l": 1}}\n' * 200)
    with pytest.raises(TrainingError, match="nothing to fit"):
        train_from_files([path], "s", "l")
    with pytest.raises(TrainingError, match="cannot be read"):
        list(read_lines([tmp_path / "none.jsonl"]))


def test_a_damaged_or_missing_folder_of_coefficients_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="quality_dir: "):
        load_predictors(tmp_path / "none")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"quality_dir: .*bad\.json.*train it again"):
        load_predictors(tmp_path)


def test_a_conversation_becomes_its_last_two_questions_and_the_size_of_the_rest() -> None:
    body = {
        "model": "auto",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "And books?"},
            {"role": "assistant", "content": "9 euros"},
            {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "pens?"}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }
    found = prompt_of(ChatRequestParser().parse(json.dumps(body).encode()))
    assert found == Prompt("And\npens?", "And books?", 2, 26, True, True)
    lone = prompt_of(ChatRequestParser().parse(json.dumps(requested("hi")).encode()))
    assert lone == Prompt("hi", "", 1, 2)
    system = {"model": "auto", "messages": [{"role": "system", "content": "x"}]}
    assert prompt_of(ChatRequestParser().parse(json.dumps(system).encode())).text == ""


def test_the_training_sees_a_conversation_as_the_gateway_does(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": EASY}]
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"messages": messages, "outcomes": {"s": 1, "l": 1}}))
    (line,) = read_lines([path])
    request = ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode())
    assert line.as_prompt() == prompt_of(request)


def test_coefficients_from_a_file_are_equal_as_those_that_were_trained(tmp_path: Path) -> None:
    model = train_from_files([write_data(tmp_path / "data.jsonl")], "s", "l")
    models = tmp_path / "models"
    models.mkdir()
    (models / "pair.json").write_bytes(msgspec.json.encode(model))
    found = load_predictors(models).find("s", "l")
    assert found is not None
    one = Prompt("Please add 17 and 45.", num_chars=21)
    assert found.assess(one).prediction == Predictor(model).assess(one).prediction


def test_a_route_reports_the_kind_of_work_of_its_prompts() -> None:
    request = ChatRequestParser().parse(json.dumps(requested("hi")).encode())
    assert (prompt_of(request).kind, prompt_of(request, kind="sums").kind) == ("", "sums")
