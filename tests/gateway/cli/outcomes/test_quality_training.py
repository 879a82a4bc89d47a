"""Training from files of outcomes: what teaches, and what is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.chat.request import ChatRequestParser
from gateway.cli.main import main
from gateway.cli.outcomes.quality_training import TrainingError, read_lines, read_training_data
from gateway.routing.prompt_of import prompt_of
from gateway.routing.quality_files import load_predictors
from tests.gateway.test_quality_routing import EASY, write_data


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
        ("no prompt", '{"outcomes": {"s": 1, "l": 1}}', r"data\.jsonl:1: has neither `prompt`"),
        ("a mark of ten", '{"prompt": "a", "outcomes": {"s": 7, "l": 1}}', r"jsonl:1: outcomes\.s: .*0 to 1, got 7"),
        (
            "half the margins",
            '{"prompt": "a", "outcomes": {"s": 1}, "logprobs": {"s": [-1, -2]}, "margins": {"s": [1]}}',
            r"jsonl:1: margins\.s: expected one for each",
        ),
        ("others' outcomes", '{"prompt": "a", "outcomes": {"x": 1, "y": 0}}', "outcomes of x, y"),
    ],
)
def test_data_that_cannot_be_learned_from_is_reported_where_and_why(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(content)
    with pytest.raises(TrainingError, match=message):
        read_training_data([path], "s", "l")


def test_equal_outcomes_and_missing_files_teach_nothing(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "a", "outcomes": {"s": 1, "l": 1}}\n' * 200)
    with pytest.raises(TrainingError, match="nothing to fit"):
        read_training_data([path], "s", "l")
    with pytest.raises(TrainingError, match="cannot be read"):
        list(read_lines([tmp_path / "none.jsonl"]))


def test_the_training_sees_a_conversation_as_the_gateway_does(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": parts},
        {"role": "user", "content": EASY},
    ]
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"messages": messages, "outcomes": {"s": 1, "l": 1}}))
    (line,) = read_lines([path])
    request = ChatRequestParser().parse(json.dumps({"model": "auto", "messages": messages}).encode())
    assert line.as_prompt() == prompt_of(request, "")


def test_log_probabilities_need_no_margins(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "a", "outcomes": {"s": 1, "l": 1}, "logprobs": {"s": [-0.5]}}')
    (line,) = read_lines([path])
    assert [(one.logprob, one.margin) for one in line.as_outcome("s", "l").odds] == [(-0.5, 0.0)]


def test_a_place_that_cannot_be_written_is_refused_before_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["policy", "train", "--data", str(tmp_path / "none"), "--weak", "s", "--strong", "l"]
    for out in (tmp_path, tmp_path / "no" / "pair.json"):
        assert main([*command, "--out", str(out)]) == 2
        assert "no file in a folder that exists" in capsys.readouterr().err
