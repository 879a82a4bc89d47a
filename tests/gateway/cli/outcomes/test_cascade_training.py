"""`policy train --max-loss` and `--large-share`: thresholds for a route, as the gateway then applies them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from gateway.cli.outcomes.cascade_training import NUM_FOLDS
from routing_policies.loading import load_policy
from tests.routing_policies.quality.prompts import prompt

POLICY = """\
schema_version: 1
deployments:
  - {{id: little, url: "http://localhost:1", model: s}}
  - {{id: big, url: "http://localhost:2", model: l}}
routes:
  - {{id: auto, match: {{models: [auto]}}, select: {{{select}, candidates: [little, big]}}}}
"""


def write_outcomes(path: Path, *, num: int = 500, has_odds: bool = True, num_tokens: int = 3) -> Path:
    """Outcomes of sums and stories; the tokens of right answers are surer."""
    rng, lines = random.Random(6), []
    for _ in range(num):
        is_hard = rng.random() < 0.5
        is_right = rng.random() < (0.15 if is_hard else 0.9)
        logprobs = [round(-rng.random() * (0.2 if is_right else 3.0), 4) for _ in range(3)]
        line: dict[str, Any] = {"prompt": prompt(rng, is_hard=is_hard).text, "outcomes": {"s": float(is_right), "l": 1}}
        if has_odds:
            line |= {"logprobs": {"s": logprobs}, "tokens": {"s": num_tokens}}
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines) + "\n")
    return path


def train(data: Path, out: Path, *flags: str) -> int:
    return main(["policy", "train", "--data", str(data), "--weak", "s", "--strong", "l", "--out", str(out), *flags])


def test_a_stated_loss_gives_a_select_that_a_policy_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_outcomes(tmp_path / "data.jsonl")
    assert train(data, tmp_path / "pair.json", "--max-loss", "0.05") == 0
    *lines, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)["cascade"]
    assert found["loss_interval"][0] <= found["loss"] <= found["loss_interval"][1]
    assert found["loss_interval"][0] <= 0.05
    assert found["loss"] < found["random_loss"]
    assert 0.2 < found["large_share"] < 0.7
    assert found["num_held_out"] == 500
    (shown,) = (line for line in lines if line.startswith("thresholds for the route"))
    select = shown.partition("select: {")[2].removesuffix(", …}")
    policy = load_policy(POLICY.format(select=select), source="policy.yaml", variables={})
    (route,) = policy.routes
    assert route.select.min_quality == found["min_quality"]
    assert route.select.cascade is not None
    assert route.select.cascade.skip_below == found["skip_below"]
    assert not route.select.cascade.calibrate, "else labels would take the threshold for a share"


def test_a_stated_share_is_about_the_share_that_prompts_outside_the_choice_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_outcomes(tmp_path / "data.jsonl")
    assert train(data, tmp_path / "pair.json", "--large-share", "0.3", "--json") == 0
    found = json.loads(capsys.readouterr().out)["cascade"]
    assert found["large_share"] == pytest.approx(0.3, abs=0.06)
    assert found["loss"] < found["random_loss"] - 0.1


def test_thresholds_of_the_bundled_pair_lose_less_than_random_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "outcomes.jsonl"
    make = ["-m", "engine.training.evaluation.outcomes", "--samples", "9", "--seed", "23", "--out", str(data)]
    subprocess.run([sys.executable, *make], check=True, timeout=500, stderr=subprocess.DEVNULL)
    pair = ["--weak", "penstock-small", "--strong", "penstock-large"]
    command = ["policy", "train", "--data", str(data), *pair, "--out", str(tmp_path / "pair.json"), "--json"]
    assert main([*command, "--max-loss", "0.05"]) == 0
    found = json.loads(capsys.readouterr().out)["cascade"]
    assert found["num_held_out"] > 200
    assert found["loss_interval"][0] <= 0.05, "what was stated is within the interval of what came of it"
    assert found["loss"] < found["random_loss"]
    assert found["large_share"] < 0.8


def test_what_thresholds_cannot_be_chosen_from_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_outcomes(tmp_path / "data.jsonl", num=90 * NUM_FOLDS, has_odds=False), tmp_path / "pair.json"
    assert train(data, out, "--max-loss", "0.01") == 1
    assert "0 outcomes have them, 200 are enough" in capsys.readouterr().err
    assert not out.exists()
    cut_short = write_outcomes(tmp_path / "short.jsonl", num_tokens=90)
    assert train(cut_short, out, "--max-loss", "0.01") == 1
    assert "0 outcomes have the log probabilities of the weak model's first 24 tokens" in capsys.readouterr().err
    assert main(["policy", "train", "--from-gateway", "--out", str(out), "--max-loss", "0.01"]) == 2
    assert "/admin/api/routing/cascades" in capsys.readouterr().err
    for flags in (("--max-loss", "2"), ("--large-share", "nan"), ("--max-loss", "0.1", "--large-share", "0.1")):
        with pytest.raises(SystemExit) as caught:
            train(data, out, *flags)
        assert caught.value.code == 2
