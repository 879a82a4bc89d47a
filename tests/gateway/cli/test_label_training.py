"""`penstock policy train --from-gateway`: from labels at the admin API to a file that routes by them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import msgspec
import pytest

from gateway.cli.label_training import train_from_labels
from gateway.cli.main import main
from gateway.cli.outcomes.quality_training import TrainingError
from tests.gateway.admin.handlers.test_policy import POLICY as POLICY_PATH
from tests.gateway.admin.handlers.test_policy import in_force
from tests.gateway.background.test_shadowing import POLICY
from tests.gateway.cache.similar_stack import question
from tests.gateway.stack import Stack, running
from tests.routing_policies.quality.labels import labels

MINE = ("my-small", "my-large")
EASY, HARD = "Please add 3 and 4.", "Why would the cat be afraid of the lamp?"


def policy_text(folder: Path) -> str:
    """A pair that nothing came with the package for."""
    return POLICY.format(folder=folder, ratio=0.0).replace("penstock-", "my-")


async def train(folder: Path, *arguments: str) -> int:
    (folder / "penstock.toml").write_text(f'admin.listen = "unix:{folder}/admin.sock"\n')
    given = ["policy", "train", "--from-gateway", "--config", str(folder / "penstock.toml")]
    given += ["--runtime-dir", str(folder), "--out", str(folder / "models" / "mine.json"), *arguments]
    return await asyncio.to_thread(main, given)


def record(stack: Stack, num: int, pair: tuple[str, str] = MINE) -> None:
    for label in labels(5, num, pair=pair, at=time.time() - 1000):
        stack.gateway._path.labels.record(label)


async def test_what_a_gateway_was_taught_becomes_a_file_that_it_routes_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    policy = policy_text(tmp_path)
    async with running(tmp_path, policy=policy) as stack:
        record(stack, 460)
        assert await train(tmp_path) == 0
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (report["weak"], report["strong"], report["num_prompts"]) == (*MINE, 460)
        assert report["squared_error"] < 0.15
        counted = (await stack.get("/admin/api/routing/labels", admin=True)).json["pairs"]
        (pair,) = counted
        assert (pair["num_labels"], pair["sources"], pair["is_learned"]) == (460, {"shadow": 460}, False)
        reply = await stack.call(question(EASY))
        assert reply.headers["x-penstock-deployment"] == "large", "nothing predicts for this pair yet"

    async with running(tmp_path, policy=policy, settings={"policy.quality_dir": tmp_path / "models"}) as stack:
        for text, expected in ((EASY, "small"), (HARD, "large")):
            reply = await stack.call(question(text))
            assert reply.headers["x-penstock-deployment"] == expected


async def test_check_plan_and_canary_know_what_was_trained(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    model, _ = train_from_labels(labels(5, 460, pair=MINE), MINE, None)
    (models / "mine.json").write_bytes(msgspec.json.encode(model))
    strict = (
        policy_text(tmp_path)
        + f"""
tests:
  - {{name: sums are for the small model, request: {{text: "{EASY}"}}, expect: {{deployment: small}}}}
  - {{name: stories are not, request: {{text: "{HARD}"}}, expect: {{deployment: large}}}}
"""
    )
    loose = strict.replace("min_quality: 0.8", "min_quality: 0.0001").replace("deployment: large", "deployment: small")
    wrong = loose.replace("not, request", "large, request").replace("deployment: small", "deployment: large")
    (tmp_path / "penstock.toml").write_text(f'policy.quality_dir = "{models}"\n')
    for name, document, wanted in (("strict", strict, 0), ("loose", loose, 0), ("wrong", wrong, 1)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(document)
        arguments = ["policy", "check", str(file), "--config", str(tmp_path / "penstock.toml")]
        assert await asyncio.to_thread(main, arguments) == wanted, name

    settings = {"policy.quality_dir": models, "policy.source": "store", "telemetry.recorder.mode": "features"}
    async with running(tmp_path, policy=strict, settings=settings) as stack:
        for text in (EASY, HARD):
            await stack.call(question(text))
        await asyncio.to_thread(stack.gateway.control.tape.flush)  # type: ignore[union-attr]
        plan = (await stack.call({"document": loose}, admin=True, path=f"{POLICY_PATH}/plan")).json["replay"]
        assert plan["old"]["deployments"] == {"large": 0.5, "small": 0.5}
        assert plan["new"]["deployments"] == {"small": 1.0}
        body = {"document": loose, "reason": "a trial", "percent": 100}
        headers = {"if-match": (await in_force(stack))["etag"]}
        begun = await stack.call(body, admin=True, path=f"{POLICY_PATH}/canary", headers=headers)
        assert begun.status == 201, begun.body
        async with asyncio.timeout(60):
            while (await stack.call(question(HARD))).headers["x-penstock-deployment"] != "small":
                await asyncio.sleep(0.02)


async def test_it_states_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models").mkdir()
    async with running(tmp_path, policy=policy_text(tmp_path)) as stack:
        assert await train(tmp_path) == 1
        assert "none of any pair" in capsys.readouterr().err
        record(stack, 20)
        record(stack, 20, ("a", "b"))
        assert await train(tmp_path) == 1
        assert "--weak my-small --strong my-large; --weak a --strong b" in capsys.readouterr().err
        assert await train(tmp_path, "--weak", "a") == 1
        assert "20 labels of a and b, at least 200" in capsys.readouterr().err
        assert await train(tmp_path, "--embed") == 2


def test_labels_that_all_are_equal_teach_nothing() -> None:
    good = [label for label in labels(1, 500) if label.lost == 0.0]
    with pytest.raises(TrainingError, match="nothing to fit"):
        train_from_labels(good, MINE, None)
